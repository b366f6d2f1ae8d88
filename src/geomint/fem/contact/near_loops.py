"""Pairs of a vertex and a face, and of two edges, that are nearer than a distance, and which of their parts are closest
(numba)."""

from __future__ import annotations

import numba

from ...numerics.linalg.xla_ffi import ARGUMENTS, RESULTS, asks_for_version, data, integers, sizes
from .boxes import next_pairs, pairs_of_parts, update_boxes
from .crossing_loops import ends_of
from .vectors import between, cross, dot

_loop = numba.njit(error_model="numpy", fastmath={"contract"})

# Kinds of closest parts; a row has the nodes of each, unused ones are 0. VERTEX_FACE: (vertex, three of the face).
VERTEX_VERTEX, VERTEX_EDGE, VERTEX_FACE, EDGE_EDGE = 0, 1, 2, 3
PARALLEL = 1e-14  # square of the sine of an angle, below which edges count as parallel
COLUMNS = 9  # of a row: kind, four nodes, and the four nodes of two edges (0 for a vertex and a face)


@_loop
def _row(rows, kind, a, b, c, d):
    rows[0], rows[1], rows[2], rows[3], rows[4] = kind, a, b, c, d


@_loop
def _to_edge(x, p, a, b, rows):
    """The square of the distance of p from the edge; writes which part is closest."""
    e, r = between(x, a, b), between(x, a, p)
    part = dot(e, r)
    if part <= 0.0:
        _row(rows, VERTEX_VERTEX, p, a, 0, 0)
        return dot(r, r)
    if part >= dot(e, e):
        _row(rows, VERTEX_VERTEX, p, b, 0, 0)
        r = between(x, b, p)
        return dot(r, r)
    _row(rows, VERTEX_EDGE, p, a, b, 0)
    n = cross(e, r)
    return dot(n, n) / dot(e, e)


@_loop
def vertex_face(x, p, a, b, c, rows, spare):
    """As `_to_edge`, of a face: inside it where p projects to its interior, and otherwise that of its edges."""
    u, v, r = between(x, a, b), between(x, a, c), between(x, a, p)
    n = cross(u, v)
    second, third, square = dot(cross(r, v), n), dot(cross(u, r), n), dot(n, n)
    if second > 0.0 and third > 0.0 and second + third < square:
        _row(rows, VERTEX_FACE, p, a, b, c)
        return dot(n, r) ** 2 / square
    best = _to_edge(x, p, a, b, rows)
    return _less(x, p, c, a, rows, spare, _less(x, p, b, c, rows, spare, best))


@_loop
def _less(x, p, a, b, rows, spare, best):
    """The smaller of `best`, which `rows` describes, and the square of the distance of p from an edge."""
    found = _to_edge(x, p, a, b, spare)
    if found >= best:
        return best
    for k in range(5):
        rows[k] = spare[k]
    return found


@_loop
def edge_edge(x, a, b, c, d, rows, spare):
    """As `_to_edge`, of the edges (a, b) and (c, d)."""
    e, f, r = between(x, a, b), between(x, c, d), between(x, a, c)
    n = cross(e, f)
    square = dot(n, n)
    if square > PARALLEL * dot(e, e) * dot(f, f):
        along, other = dot(cross(r, f), n), dot(cross(r, e), n)
        if 0.0 < along < square and 0.0 < other < square:
            _row(rows, EDGE_EDGE, a, b, c, d)
            return dot(n, r) ** 2 / square
    best = _to_edge(x, a, c, d, rows)
    best = _less(x, b, c, d, rows, spare, best)
    best = _less(x, c, a, b, rows, spare, best)
    return _less(x, d, a, b, rows, spare, best)


@_loop
def _pair(x, faces, f, g, k, rows, spare):
    """The square of the distance of the parts of two faces with the bit k in `pairs_of_parts`, negative where they have
    a node in common. rows (COLUMNS) describes it."""
    for column in range(5, COLUMNS):
        rows[column] = 0
    if k < 6:
        one, other = (f, g) if k < 3 else (g, f)
        p = faces[3 * one + k % 3]
        a, b, c = faces[3 * other], faces[3 * other + 1], faces[3 * other + 2]
        if p in (a, b, c):
            return -1.0
        return vertex_face(x, p, a, b, c, rows, spare)
    i, j = (k - 6) // 3, (k - 6) % 3
    a, b = faces[3 * f + i], faces[3 * f + (i + 1) % 3]
    c, d = faces[3 * g + j], faces[3 * g + (j + 1) % 3]
    if a in (c, d) or b in (c, d):
        return -1.0
    rows[5], rows[6], rows[7], rows[8] = a, b, c, d
    return edge_edge(x, a, b, c, d, rows, spare)


@_loop
def near_loop(frame):
    """(x, settings, faces, owned, body, children) -> counts (2,): pairs that are near, of which `room` are kept, and
    pairs of faces that intersect; kept (room, COLUMNS), boxes of nodes, the scratch of a scene, and room for two rows.
    settings: the distance, whether a body can touch itself."""
    n, _ = sizes(frame, ARGUMENTS, 0)
    x, settings = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1)
    faces, owned = integers(frame, ARGUMENTS, 2), integers(frame, ARGUMENTS, 3)
    body, children = integers(frame, ARGUMENTS, 4), integers(frame, ARGUMENTS, 5)
    counts, kept, swept = integers(frame, RESULTS, 0), integers(frame, RESULTS, 1), data(frame, RESULTS, 2)
    box, inside = data(frame, RESULTS, 3), integers(frame, RESULTS, 4)
    stack, pairs, spare = integers(frame, RESULTS, 5), integers(frame, RESULTS, 6), integers(frame, RESULTS, 7)
    rows = integers(frame, RESULTS, 8)
    room, _ = sizes(frame, RESULTS, 1)
    boxes, _ = sizes(frame, RESULTS, 3)
    distance, own_body = settings[0], settings[1] != 0.0
    update_boxes(boxes, n, x, x, 0.0, 0.5 * distance, faces, body, children, swept, box, inside)
    for k in range(COLUMNS * room):
        kept[k] = 0
    total, crossing, waiting = 0, 0, 1
    stack[0], stack[1] = 0, 0
    while waiting > 0:
        found, waiting = next_pairs(box, inside, children, own_body, stack, waiting, pairs)
        for place in range(15 * found):
            f, g, k = pairs[2 * (place // 15)], pairs[2 * (place // 15) + 1], place % 15
            if k == 0 and ends_of(x, faces, f, g, spare) >= 2:
                crossing += 1
            if pairs_of_parts(owned, f, g) >> k & 1 == 0:
                continue
            square = _pair(x, faces, f, g, k, rows, spare)
            if 0.0 <= square < distance * distance:
                if total < room:
                    for column in range(COLUMNS):
                        kept[COLUMNS * total + column] = rows[column]
                total += 1
    counts[0], counts[1] = total, crossing


def near(frame):
    if not asks_for_version(frame):
        near_loop(frame)
    return 0
