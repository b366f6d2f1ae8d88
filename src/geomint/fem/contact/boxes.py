"""The broad phase: pairs of faces whose boxes overlap, by a tree of boxes over all faces (numba).

A box contains its faces along a straight motion over a time T. Boxes of the tree are updated bottom-up at every call,
which is linear in the number of faces; parts that are far apart are then separated by a few comparisons. No list is
kept from one call to the next that could be incomplete.

The loops take addresses of arrays in row-major order, as XLA passes them (numerics/linalg/xla_ffi.py).
"""

from __future__ import annotations

import numba

from .surface import PAIRS

_loop = numba.njit(error_model="numpy", fastmath={"contract"})


@_loop
def update_boxes(count, n, x, v, time, reach, faces, body, children, swept, box, inside):
    """Boxes, lower and upper corners: `swept` (n, 6) of nodes that move from x by time · v, and `box` (count, 6) of the
    tree over faces, with `reach` added around; and the body inside each, −1 where there are several."""
    for i in range(n):
        for k in range(3):
            here = x[3 * i + k]
            there = here + time * v[3 * i + k]
            swept[6 * i + k], swept[6 * i + 3 + k] = min(here, there), max(here, there)
    for b in range(count - 1, -1, -1):
        left, right = children[2 * b], children[2 * b + 1]
        if left >= 0:
            for k in range(3):
                box[6 * b + k] = min(box[6 * left + k], box[6 * right + k])
                box[6 * b + 3 + k] = max(box[6 * left + 3 + k], box[6 * right + 3 + k])
            inside[b] = inside[left] if inside[left] == inside[right] else -1
            continue
        inside[b] = body[right]
        i, j, l = 6 * faces[3 * right], 6 * faces[3 * right + 1], 6 * faces[3 * right + 2]
        for k in range(3):
            box[6 * b + k] = min(swept[i + k], swept[j + k], swept[l + k]) - reach
            box[6 * b + 3 + k] = max(swept[i + 3 + k], swept[j + 3 + k], swept[l + 3 + k]) + reach


@_loop
def _overlap(box, i, j):
    k = 0
    while k < 3 and box[6 * i + k] <= box[6 * j + 3 + k] and box[6 * j + k] <= box[6 * i + 3 + k]:
        k += 1
    return k == 3


@_loop
def next_pairs(box, inside, children, own_body, stack, waiting, pairs):
    """(pairs found, at most PAIRS; boxes still waiting). The first call has waiting = 1 and the root twice in the
    stack. own_body: whether pairs within one body count."""
    found = 0
    while waiting > 0 and found < PAIRS:
        waiting -= 1
        i, j = stack[2 * waiting], stack[2 * waiting + 1]
        if not own_body and inside[i] >= 0 and inside[i] == inside[j]:
            continue
        if i != j and not _overlap(box, i, j):
            continue
        leaf_i, leaf_j = children[2 * i] < 0, children[2 * j] < 0
        if i == j:
            if not leaf_i:
                a, b = children[2 * i], children[2 * i + 1]
                waiting = _push(_push(_push(waiting, stack, a, a), stack, b, b), stack, a, b)
        elif leaf_i and leaf_j:
            pairs[2 * found], pairs[2 * found + 1] = children[2 * i + 1], children[2 * j + 1]
            found += 1
        else:
            if leaf_i or (not leaf_j and _size(box, j) > _size(box, i)):  # the larger box is divided
                i, j = j, i
            waiting = _push(_push(waiting, stack, children[2 * i], j), stack, children[2 * i + 1], j)
    return found, waiting


@_loop
def _push(waiting, stack, i, j):
    stack[2 * waiting], stack[2 * waiting + 1] = i, j
    return waiting + 1


@_loop
def _size(box, b):
    """The longest edge of a box."""
    longest = 0.0
    for k in range(3):
        longest = max(longest, box[6 * b + 3 + k] - box[6 * b + k])
    return longest


@_loop
def pairs_of_parts(owned, f, g):
    """The pairs of parts that two faces own, as bits: 0 to 2 for vertices of f with g, 3 to 5 for vertices of g with f,
    6 + 3 i + j for edge i of f with edge j of g."""
    one, other = owned[f], owned[g]
    bits = (one & 7) | (other & 7) << 3
    for i in range(3):
        if one >> (3 + i) & 1:
            bits |= (other >> 3 & 7) << (6 + 3 * i)
    return bits
