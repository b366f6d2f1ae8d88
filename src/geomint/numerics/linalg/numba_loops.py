"""The loops of `cpu_kernels`: elimination in tridiagonal matrices from both ends at once, in wider bands, and inner
products.

Each is a function of the call frame of XLA's foreign function interface (see `xla_ffi`), with a handler that XLA calls.
"""

from __future__ import annotations

import numba

from .xla_ffi import ARGUMENTS, RESULTS, asks_for_version, data, sizes, words

_loop = numba.njit(error_model="numpy", fastmath={"contract"})


@_loop
def eliminate_loop(frame):
    """(lower, through, upper) -> factors (3, n).

    The factors of a row are 1/pivot, and its couplings to the next and to the previous row of the elimination, each
    divided by the pivot. The middle row, which is eliminated last, has its two couplings as they are.
    """
    many, n = sizes(frame, ARGUMENTS, 1)
    lower, through, upper, out = (
        data(frame, ARGUMENTS, 0),
        data(frame, ARGUMENTS, 1),
        data(frame, ARGUMENTS, 2),
        data(frame, RESULTS, 0),
    )
    middle = n // 2
    for k in range(many):
        a, w, c, m = k * n, 3 * k * n, (3 * k + 1) * n, (3 * k + 2) * n
        # Rows 0, 1, … downwards and n − 1, n − 2, … upwards in one loop: two independent chains of divisions.
        top, bottom = 0.0, 0.0  # coupling to the row before, times its factor
        for s in range(middle):
            i, j = s, n - 1 - s
            first = 1.0 / (through[a + i] - (lower[a + i] * top if s else 0.0))
            top = upper[a + i] * first
            out[w + i], out[c + i], out[m + i] = first, top, (lower[a + i] * first if s else 0.0)
            if j > middle:
                second = 1.0 / (through[a + j] - (upper[a + j] * bottom if s else 0.0))
                bottom = lower[a + j] * second
                out[w + j], out[c + j], out[m + j] = second, bottom, (upper[a + j] * second if s else 0.0)
        left = lower[a + middle] * top if middle > 0 else 0.0
        right = upper[a + middle] * bottom if middle < n - 1 else 0.0
        out[w + middle] = 1.0 / (through[a + middle] - left - right)
        out[c + middle] = lower[a + middle] if middle > 0 else 0.0
        out[m + middle] = upper[a + middle] if middle < n - 1 else 0.0


@_loop
def substitute_loop(frame):
    """(factors, right) -> the solution x."""
    many, n = sizes(frame, ARGUMENTS, 1)
    factors, right, x = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1), data(frame, RESULTS, 0)
    middle = n // 2
    for k in range(many):
        a, w, c, m = k * n, 3 * k * n, (3 * k + 1) * n, (3 * k + 2) * n
        top, bottom = 0.0, 0.0
        for s in range(middle):
            i, j = s, n - 1 - s
            top = right[a + i] * factors[w + i] - factors[m + i] * top
            x[a + i] = top
            if j > middle:
                bottom = right[a + j] * factors[w + j] - factors[m + j] * bottom
                x[a + j] = bottom
        top = (right[a + middle] - factors[c + middle] * top - factors[m + middle] * bottom) * factors[w + middle]
        x[a + middle] = top
        bottom = top
        for s in range(middle):
            i, j = middle - 1 - s, middle + 1 + s
            top = x[a + i] - factors[c + i] * top
            x[a + i] = top
            if j < n:
                bottom = x[a + j] - factors[c + j] * bottom
                x[a + j] = bottom


@_loop
def factor_band_loop(frame):
    """band (n, 2w + 1), the entry K_ij at [i, w + j − i] -> L below the diagonal, 1/U on it, U above; no pivoting."""
    rows, width = sizes(frame, ARGUMENTS, 0)
    n = words(words(words(frame[ARGUMENTS])[0])[5])[words(words(frame[ARGUMENTS])[0])[4] - 2]
    band, out = data(frame, ARGUMENTS, 0), data(frame, RESULTS, 0)
    w = width // 2
    for i in range(rows * width):
        out[i] = band[i]
    for begin in range(0, rows, n):
        for k in range(begin, begin + n):
            pivot = k * width + w
            out[pivot] = 1.0 / out[pivot]
            for i in range(k + 1, min(k + w + 1, begin + n)):
                place = i * width + w + k - i
                factor = out[place] * out[pivot]
                out[place] = factor
                if factor != 0.0:
                    for j in range(1, w + 1):
                        out[place + j] -= factor * out[pivot + j]


@_loop
def solve_band_loop(frame):
    """(factors, right) -> the solution x."""
    many, n = sizes(frame, ARGUMENTS, 1)
    width = sizes(frame, ARGUMENTS, 0)[1]
    factors, right, x = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1), data(frame, RESULTS, 0)
    w = width // 2
    for begin in range(0, many * n, n):
        for i in range(n):
            total, row = right[begin + i], (begin + i) * width + w - i
            for j in range(max(0, i - w), i):
                total -= factors[row + j] * x[begin + j]
            x[begin + i] = total
        for s in range(n):
            i = n - 1 - s
            total, row = x[begin + i], (begin + i) * width + w - i
            for j in range(i + 1, min(n, i + w + 1)):
                total -= factors[row + j] * x[begin + j]
            x[begin + i] = total * factors[row + i]


@numba.njit(error_model="numpy", fastmath={"contract", "reassoc"})
def inner_loop(frame):
    """(x, y) -> x·y over the last axis; the compiler may reorder the sum."""
    many, n = sizes(frame, ARGUMENTS, 0)
    x, y, out = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1), data(frame, RESULTS, 0)
    for k in range(many):
        total = 0.0
        for i in range(k * n, (k + 1) * n):
            total += x[i] * y[i]
        out[k] = total


def eliminate(frame):
    if not asks_for_version(frame):
        eliminate_loop(frame)
    return 0


def substitute(frame):
    if not asks_for_version(frame):
        substitute_loop(frame)
    return 0


def inner(frame):
    if not asks_for_version(frame):
        inner_loop(frame)
    return 0


def factor_band(frame):
    if not asks_for_version(frame):
        factor_band_loop(frame)
    return 0


def solve_band(frame):
    if not asks_for_version(frame):
        solve_band_loop(frame)
    return 0
