"""Which faces of a surface intersect, and where the ends of their common segments lie (numba).

Two triangles in general position intersect in a segment. Each of its ends is where an edge of one pierces the other.
"""

from __future__ import annotations

import numba

from ...numerics.linalg.xla_ffi import ARGUMENTS, RESULTS, asks_for_version, data, integers, sizes
from .boxes import next_pairs, update_boxes
from .vectors import volume

_loop = numba.njit(error_model="numpy", fastmath={"contract"})


@_loop
def _pierces(x, p, q, a, b, c):
    """Whether the segment from p to q crosses the triangle (a, b, c)."""
    above, below = volume(x, a, b, c, p), volume(x, a, b, c, q)
    if not ((above > 0.0 and below < 0.0) or (above < 0.0 and below > 0.0)):
        return False
    first, second, third = volume(x, p, q, a, b), volume(x, p, q, b, c), volume(x, p, q, c, a)
    return (first >= 0.0 and second >= 0.0 and third >= 0.0) or (first <= 0.0 and second <= 0.0 and third <= 0.0)


@_loop
def ends_of(x, faces, f, g, rows):
    """How many edges of one face pierce the other, at most six; `rows` (6, 5) has each edge and the face that it
    pierces."""
    found = 0
    for k in range(6):
        one, other = (f, g) if k < 3 else (g, f)
        p, q = faces[3 * one + k % 3], faces[3 * one + (k + 1) % 3]
        a, b, c = faces[3 * other], faces[3 * other + 1], faces[3 * other + 2]
        if p in (a, b, c):
            return 0  # faces that have a node in common
        if _pierces(x, p, q, a, b, c):
            row = 5 * found
            rows[row], rows[row + 1], rows[row + 2], rows[row + 3], rows[row + 4] = p, q, a, b, c
            found += 1
    return found


@_loop
def crossings_loop(frame):
    """(x, settings, faces, body, children) -> count (1,), ends (room, 2, 5), pairs of faces (room, 2), boxes of nodes;
    then the scratch of a scene. settings: whether a body can touch itself. The count may exceed the room."""
    n, _ = sizes(frame, ARGUMENTS, 0)
    x, settings = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1)
    faces, body, children = integers(frame, ARGUMENTS, 2), integers(frame, ARGUMENTS, 3), integers(frame, ARGUMENTS, 4)
    count, ends, which = integers(frame, RESULTS, 0), integers(frame, RESULTS, 1), integers(frame, RESULTS, 2)
    room, _ = sizes(frame, RESULTS, 2)
    swept, box, inside = data(frame, RESULTS, 3), data(frame, RESULTS, 4), integers(frame, RESULTS, 5)
    stack, pairs, rows = integers(frame, RESULTS, 6), integers(frame, RESULTS, 7), integers(frame, RESULTS, 8)
    boxes, _ = sizes(frame, RESULTS, 4)
    update_boxes(boxes, n, x, x, 0.0, 0.0, faces, body, children, swept, box, inside)
    for k in range(10 * room):
        ends[k] = 0
    total, waiting = 0, 1
    stack[0], stack[1] = 0, 0
    while waiting > 0:
        found, waiting = next_pairs(box, inside, children, settings[0] != 0.0, stack, waiting, pairs)
        for k in range(found):
            f, g = pairs[2 * k], pairs[2 * k + 1]
            pierced = ends_of(x, faces, f, g, rows)
            if pierced < 2:  # by rounding, at the moment of the first touch, where the segment has no length
                continue
            if total < room:
                _keep(x, rows, pierced, ends, 10 * total)
                which[2 * total], which[2 * total + 1] = f, g
            total += 1
    count[0] = total


@_loop
def _keep(x, rows, pierced, ends, place):
    """The two ends that are farthest from each other: at a corner rounding may find one twice."""
    best, first, second = -1.0, 0, 1
    for i in range(pierced):
        for j in range(i + 1, pierced):
            size = 0.0
            for k in range(3):
                size += (_point(x, rows, 5 * i, k) - _point(x, rows, 5 * j, k)) ** 2
            if size > best:
                best, first, second = size, i, j
    for k in range(5):
        ends[place + k], ends[place + 5 + k] = rows[5 * first + k], rows[5 * second + k]


@_loop
def _point(x, rows, at, k):
    """Coordinate k of the point in which an edge pierces a face."""
    p, q = rows[at], rows[at + 1]
    above = volume(x, rows[at + 2], rows[at + 3], rows[at + 4], p)
    below = volume(x, rows[at + 2], rows[at + 3], rows[at + 4], q)
    return x[3 * p + k] + above / (above - below) * (x[3 * q + k] - x[3 * p + k])


def crossings(frame):
    if not asks_for_version(frame):
        crossings_loop(frame)
    return 0
