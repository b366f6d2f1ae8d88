"""Vectors in compiled loops: tuples of three numbers, and nodes in arrays of positions (numba)."""

from __future__ import annotations

import numba

_loop = numba.njit(error_model="numpy", fastmath={"contract"})


@_loop
def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@_loop
def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@_loop
def between(x, i, j):
    """x_j − x_i."""
    return x[3 * j] - x[3 * i], x[3 * j + 1] - x[3 * i + 1], x[3 * j + 2] - x[3 * i + 2]


@_loop
def moved(x, v, i, j, t):
    """x_j − x_i at time t."""
    p, u = between(x, i, j), between(v, i, j)
    return p[0] + t * u[0], p[1] + t * u[1], p[2] + t * u[2]


@_loop
def volume(x, a, b, c, d):
    """(b − a)·((c − a) × (d − a)), positive where d is outside the face (a, b, c)."""
    return dot(between(x, a, b), cross(between(x, a, c), between(x, a, d)))
