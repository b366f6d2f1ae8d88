"""The first time at which a surface touches itself along a straight motion (numba): continuous collision detection.

A vertex meets a face, or an edge an edge, at a time at which their four nodes are in one plane: at a root of the cubic

    w(t) = (b − a)·((c − a) × (d − a)),

six times the volume of the tetrahedron of the four nodes. For nodes (a, b, c) of a face and a vertex d outside, w > 0.
A root counts if the vertex is then inside the face, or the closest points inside both edges, and if w goes to the
inside: which side of two edges that is follows from the normals of the faces next to them.

Impacts are reported where the distance is still `gap`, a length far above rounding errors and far below any other, so
that surfaces never pass through each other by rounding. A pair that starts within twice the gap is touching; it meets
at once if it approaches, and otherwise when it comes back to its present distance.
"""

from __future__ import annotations

import numba
import numpy as np

from ...numerics.linalg.xla_ffi import ARGUMENTS, RESULTS, asks_for_version, data, integers, sizes
from .boxes import next_pairs, pairs_of_parts, update_boxes
from .vectors import between, cross, dot, moved

_loop = numba.njit(error_model="numpy", fastmath={"contract"})

INSIDE = 1e-9  # by how much of its height a face is extended
# By how much of its length an edge is shortened: where it ends, a vertex meets an edge or a vertex, which is that of a
# vertex with (extended) faces. Edges that meet there would be reflected along their common normal, which may point
# anywhere, and two of them for ever in turn.
SHORTER = 1e-12
# In the extension of a face a vertex meets the edge or the corner there. The normal of the face is a direction of that
# impact where the vertex is above the face by at least this share of how far it is beside it. Otherwise aligned bodies
# would touch by sides that lie in one plane, and be reflected at each other's sides for ever in turn.
ABOVE = 1e-3
RATE = 1e-14  # relative speed, in units of the speeds, below which nodes do not approach each other
DEPTH = 100.0  # gaps below a face, up to which a vertex counts as touching it
NEWTON = 100


@_loop
def cubic(x, v, a, b, c, d):
    """The four coefficients of w."""
    p, q, r = between(x, a, b), between(x, a, c), between(x, a, d)
    u, s, w = between(v, a, b), between(v, a, c), between(v, a, d)
    qr, sr, qw, sw = cross(q, r), cross(s, r), cross(q, w), cross(s, w)
    first = dot(u, qr) + dot(p, sr) + dot(p, qw)
    second = dot(u, sr) + dot(u, qw) + dot(p, sw)
    return dot(p, qr), first, second, dot(u, sw)


@_loop
def _value(c, t):
    return c[0] + t * (c[1] + t * (c[2] + t * c[3]))


@_loop
def _turning_points(c, time):
    """The zeros of w' in (0, time), ascending; `time` where there is none."""
    first, second = time, time
    a, b = 3.0 * c[3], c[2]  # a t² + 2 b t + c₁
    under = b * b - a * c[1]
    if under > 0.0 or (under == 0.0 and b != 0.0):
        q = -(b + np.copysign(np.sqrt(under), b))
        for t in (q / a, c[1] / q):
            if 0.0 < t < time:
                first, second = min(first, t), t if first == time else max(first, t)
    return first, max(first, second)


@_loop
def _root(c, sign, target, low, high):
    """Where sign · w falls through `target` in an interval in which it is monotone: Newton's method, with bisection
    where it leaves the bracket."""
    t = 0.5 * (low + high)
    for _ in range(NEWTON):
        f = sign * _value(c, t) - target
        low, high = (t, high) if f >= 0.0 else (low, t)
        step = -f / (sign * (c[1] + t * (2.0 * c[2] + t * 3.0 * c[3])))
        following = t + step
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - t) <= 4e-16 * high:
            return following
        t = following
    return low


@_loop
def _inside_face(x, v, a, b, c, d, t):
    """Whether d is inside the face at time t, up to INSIDE."""
    p, q, r = moved(x, v, a, b, t), moved(x, v, a, c, t), moved(x, v, a, d, t)
    n = cross(p, q)
    square = dot(n, n)
    second, third = dot(cross(r, q), n), dot(cross(p, r), n)
    least, first = -INSIDE * square, square - second - third
    if square <= 0.0 or second < least or third < least or first < least:
        return False
    side = q[0] - p[0], q[1] - p[1], q[2] - p[2]
    beside = max(-second / np.sqrt(dot(q, q)), -third / np.sqrt(dot(p, p)), -first / np.sqrt(dot(side, side)))
    return beside <= 0.0 or dot(r, n) >= ABOVE * beside  # both times the length of n


@_loop
def _inside_edges(x, v, a, b, c, d, t):
    """Whether the closest points of the lines through the edges (a, b) and (c, d) are inside both."""
    p, q, r = moved(x, v, a, b, t), moved(x, v, c, d, t), moved(x, v, a, c, t)
    n = cross(p, q)
    square, lengths = dot(n, n), dot(p, p) * dot(q, q)
    if square <= 1e-20 * lengths:  # parallel: their ends meet faces
        return False
    along, other = dot(cross(r, q), n), dot(cross(r, p), n)
    least = (SHORTER - 1e-15 * np.sqrt(lengths / square)) * square
    return along >= least and square - along >= least and other >= least and square - other >= least


@_loop
def _normal(x, v, faces, face, t):
    """Of length 1, to the outside."""
    a, b, c = faces[3 * face], faces[3 * face + 1], faces[3 * face + 2]
    n = cross(moved(x, v, a, b, t), moved(x, v, a, c, t))
    size = np.sqrt(dot(n, n))
    return n[0] / size, n[1] / size, n[2] / size


@_loop
def _outside(x, v, faces, f, across_f, a, b, g, across_g, c, d, t):
    """The sign of w of two edges that do not overlap."""
    n = cross(moved(x, v, a, b, t), moved(x, v, c, d, t))
    total = 0.0
    for face, sign in ((f, 1.0), (across_f, 1.0), (g, -1.0), (across_g, -1.0)):
        if face >= 0:
            total += sign * dot(_normal(x, v, faces, face, t), n)
    return -1.0 if total > 0.0 else 1.0


@_loop
def _speeds(v, a, b, c, d):
    """The sum of the absolute velocities of four nodes."""
    total = 0.0
    for k in range(3):
        total += abs(v[3 * a + k]) + abs(v[3 * b + k]) + abs(v[3 * c + k]) + abs(v[3 * d + k])
    return total


@_loop
def _meets(x, v, edges, a, b, c, d, t):
    return _inside_edges(x, v, a, b, c, d, t) if edges else _inside_face(x, v, a, b, c, d, t)


@_loop
def _side(x, v, faces, edges, f, across_f, g, across_g, a, b, c, d, t):
    """The sign of w outside."""
    return _outside(x, v, faces, f, across_f, a, b, g, across_g, c, d, t) if edges else 1.0


@_loop
def _time(x, v, faces, edges, f, across_f, g, across_g, a, b, c, d, time, gap):
    """When the vertex d meets the face (a, b, c), or the edge (a, b) of the faces f and across_f the edge (c, d) of g
    and across_g; infinite if they do not before `time`."""
    w = cubic(x, v, a, b, c, d)
    n = cross(between(x, a, b), between(x, c, d) if edges else between(x, a, c))
    size = np.sqrt(dot(n, n))
    near, touching = gap * size, False
    if abs(w[0]) > DEPTH * near + time * (abs(w[1]) + time * (abs(w[2]) + time * abs(w[3]))):
        return np.inf
    if abs(w[0]) <= DEPTH * near and _meets(x, v, edges, a, b, c, d, 0.0):
        side = _side(x, v, faces, edges, f, across_f, g, across_g, a, b, c, d, 0.0)
        if side * w[0] <= 2.0 * near:
            if side * w[1] < -RATE * size * _speeds(v, a, b, c, d):
                return 0.0
            w, touching = (0.0, w[1], w[2], w[3]), True
    low, value = 0.0, w[0]
    first, second = _turning_points(w, time)
    for k in range(3):
        high = first if k == 0 else second if k == 1 else time
        after = _value(w, high)
        if value != 0.0 and value * after <= 0.0 and high > low:
            sign = 1.0 if value > 0.0 else -1.0
            t = _root(w, sign, near if abs(value) > 2.0 * near and not touching else 0.0, low, high)
            if _meets(x, v, edges, a, b, c, d, t) and sign == _side(
                x, v, faces, edges, f, across_f, g, across_g, a, b, c, d, t
            ):
                return t
        low, value = high, after
    return np.inf


@_loop
def _apart(swept, edges, a, b, c, d, reach):
    """Whether the boxes of the motion of a vertex and a face, or of two edges, do not overlap."""
    for side in range(3):
        low = min(swept[6 * a + side], swept[6 * b + side])
        high = max(swept[6 * a + 3 + side], swept[6 * b + 3 + side])
        if edges:
            other_low = min(swept[6 * c + side], swept[6 * d + side])
            other_high = max(swept[6 * c + 3 + side], swept[6 * d + 3 + side])
        else:
            low, high = min(low, swept[6 * c + side]), max(high, swept[6 * c + 3 + side])
            other_low, other_high = swept[6 * d + side], swept[6 * d + 3 + side]
        if low > other_high + reach or other_low > high + reach:
            return True
    return False


@_loop
def _of_faces(x, v, swept, faces, owned, across, f, g, time, gap, nodes):
    """The first meeting of a vertex or edge that one face owns with one of the other, before `time`, which is returned
    where there is none; its four nodes are written."""
    bits, k = pairs_of_parts(owned, f, g), -1
    while bits > 0:
        k += 1
        bits, there = bits >> 1, bits & 1
        if there == 0:
            continue
        edges = k >= 6
        if edges:
            i, j = (k - 6) // 3, (k - 6) % 3
            a, b = faces[3 * f + i], faces[3 * f + (i + 1) % 3]
            c, d = faces[3 * g + j], faces[3 * g + (j + 1) % 3]
            across_f, across_g = across[3 * f + i], across[3 * g + j]
            if c in (a, b):
                continue
        else:
            one, other = (f, g) if k < 3 else (g, f)
            a, b, c = faces[3 * other], faces[3 * other + 1], faces[3 * other + 2]
            d, across_f, across_g = faces[3 * one + k % 3], f, g
            if d == c:
                continue
        if d in (a, b) or _apart(swept, edges, a, b, c, d, 2.0 * gap):
            continue
        t = _time(x, v, faces, edges, f, across_f, g, across_g, a, b, c, d, time, gap)
        if t < time:
            time = t
            nodes[0], nodes[1], nodes[2], nodes[3] = a, b, c, d
    return time


@_loop
def first_impact_loop(frame):
    """(x, v, settings, faces, owned, across, body, children) -> time (1,), nodes (4,); scratch: positions, boxes of
    nodes, boxes of the tree, bodies in them, a stack, pairs. settings: start and end of the time, the gap, whether a
    body can touch itself. The time is infinite where nothing meets."""
    n, _ = sizes(frame, ARGUMENTS, 0)
    start, v, settings = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1), data(frame, ARGUMENTS, 2)
    faces, owned, across = integers(frame, ARGUMENTS, 3), integers(frame, ARGUMENTS, 4), integers(frame, ARGUMENTS, 5)
    body, children = integers(frame, ARGUMENTS, 6), integers(frame, ARGUMENTS, 7)
    out, nodes, x = data(frame, RESULTS, 0), integers(frame, RESULTS, 1), data(frame, RESULTS, 2)
    swept, box, inside = data(frame, RESULTS, 3), data(frame, RESULTS, 4), integers(frame, RESULTS, 5)
    stack, pairs = integers(frame, RESULTS, 6), integers(frame, RESULTS, 7)
    count, _ = sizes(frame, RESULTS, 4)
    for k in range(3 * n):
        x[k] = start[k] + settings[0] * v[k]
    time, gap = settings[1] - settings[0], settings[2]
    for k in range(4):
        nodes[k] = 0
    update_boxes(count, n, x, v, time, 2.0 * gap, faces, body, children, swept, box, inside)
    best, waiting = np.nextafter(time, np.inf), 1
    never = best
    stack[0], stack[1] = 0, 0
    while waiting > 0:
        found, waiting = next_pairs(box, inside, children, settings[3] != 0.0, stack, waiting, pairs)
        for k in range(found):
            best = _of_faces(x, v, swept, faces, owned, across, pairs[2 * k], pairs[2 * k + 1], best, gap, nodes)
    out[0] = settings[0] + best if best < never else np.inf


def first_impact(frame):
    if not asks_for_version(frame):
        first_impact_loop(frame)
    return 0
