"""Two loops that numba compiles and XLA calls (see numerics/linalg/xla_ffi.py): neighbours by cells, and the sum of the
forces of pairs. XLA takes 30 times as long for the first, and 1.5 times for the second, whose sums it does not
vectorise."""

from __future__ import annotations

import functools

import numba
import numpy as np

from ..numerics.linalg import xla_ffi
from ..numerics.linalg.xla_ffi import ARGUMENTS, RESULTS, asks_for_version, data, integers, sizes

_loop = numba.njit(error_model="numpy", fastmath={"contract"})
_sum = numba.njit(error_model="numpy", fastmath=True)


@_loop
def _cell(x, edge, cells):
    """The cell of a coordinate; NaN is in the first."""
    if edge == 0.0 or cells == 1:
        return 0
    part = x / edge - np.floor(x / edge)
    return min(max(int(part * cells), 0), cells - 1) if part == part else 0


@_loop
def _by_cell(frame, n, q, s):
    """Particles in the order of their cells: `order`, where each cell starts, and their positions in the box."""
    cell, order, start = integers(frame, RESULTS, 2), integers(frame, RESULTS, 3), integers(frame, RESULTS, 4)
    inside, cells = data(frame, RESULTS, 5), int(s[4]) * int(s[5]) * int(s[6])
    for c in range(cells + 1):
        start[c] = 0
    for i in range(n):
        at = 0
        for k in range(3):
            at = at * int(s[4 + k]) + _cell(q[3 * i + k], s[k], int(s[4 + k]))
        cell[i] = at
        start[at + 1] += 1
    for c in range(cells):
        start[c + 1] += start[c]
    for i in range(n):  # ascending in every cell; start[c] moves to the end of cell c
        place = start[cell[i]]
        start[cell[i]] += 1
        order[place] = i
        for k in range(3):
            x, edge = q[3 * i + k], s[k]
            inside[3 * place + k] = x - edge * np.floor(x / edge) if edge and cells > 1 else x
    for c in range(cells, 0, -1):
        start[c] = start[c - 1]
    start[0] = 0


@_loop
def neighbours_loop(frame):
    """(q, settings) -> index (n, room), count (n,); then scratch: the cell of each particle, and what `_by_cell` makes.

    Every candidate is written to the next place of the row, which moves on if it is near: that needs no branch that is
    hard to predict."""
    n, room = sizes(frame, RESULTS, 0)
    q, s = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1)
    index, count = integers(frame, RESULTS, 0), integers(frame, RESULTS, 1)
    cell, order, start = integers(frame, RESULTS, 2), integers(frame, RESULTS, 3), integers(frame, RESULTS, 4)
    inside, reach = data(frame, RESULTS, 5), s[3] * s[3]
    cx, cy, cz = int(s[4]), int(s[5]), int(s[6])
    _by_cell(frame, n, q, s)
    wide = 1 if cx * cy * cz > 1 else 0  # whether there are cells; if not, all pairs are compared
    lx, ly, lz = (0.0, 0.0, 0.0) if wide else (s[0], s[1], s[2])  # with cells, images are a matter of cells
    ix, iy, iz = (1.0 / lx if lx else 0.0), (1.0 / ly if ly else 0.0), (1.0 / lz if lz else 0.0)
    for slot in range(n):
        i, found = order[slot], 0
        row, at = i * room, cell[i]
        for around in range(27 if wide else 1):
            a, b, c = at // (cy * cz), at // cz % cy, at % cz
            x, y, z = inside[3 * slot], inside[3 * slot + 1], inside[3 * slot + 2]
            if wide:  # the cell beside this one, and this particle as it is seen from there
                a, b, c = a + around // 9 - 1, b + around // 3 % 3 - 1, c + around % 3 - 1
                x += s[0] if a < 0 else -s[0] if a >= cx else 0.0
                y += s[1] if b < 0 else -s[1] if b >= cy else 0.0
                z += s[2] if c < 0 else -s[2] if c >= cz else 0.0
                a, b, c = (a + cx) % cx, (b + cy) % cy, (c + cz) % cz
            other = (a * cy + b) * cz + c
            for k in range(start[other], start[other + 1]):
                dx, dy, dz = x - inside[3 * k], y - inside[3 * k + 1], z - inside[3 * k + 2]
                if not wide:
                    dx -= lx * np.rint(dx * ix)
                    dy -= ly * np.rint(dy * iy)
                    dz -= lz * np.rint(dz * iz)
                if found < room:
                    index[row + found] = order[k]
                found += int((dx * dx + dy * dy + dz * dz < reach) & (k != slot))
        for k in range(found, room):
            index[row + k] = i
        count[i] = found


@_sum
def forces_loop(frame):
    """(q, index, count, weight, edges) -> Σ_j weight_ij (q_i − q_j), differences to the nearest image."""
    n, room = sizes(frame, ARGUMENTS, 1)
    q, index, count = data(frame, ARGUMENTS, 0), integers(frame, ARGUMENTS, 1), integers(frame, ARGUMENTS, 2)
    weight, edges, out = data(frame, ARGUMENTS, 3), data(frame, ARGUMENTS, 4), data(frame, RESULTS, 0)
    lx, ly, lz = edges[0], edges[1], edges[2]
    ix, iy, iz = (1.0 / lx if lx else 0.0), (1.0 / ly if ly else 0.0), (1.0 / lz if lz else 0.0)
    for i in range(n):
        x, y, z = q[3 * i], q[3 * i + 1], q[3 * i + 2]
        fx, fy, fz = 0.0, 0.0, 0.0
        for k in range(i * room, i * room + min(count[i], room)):
            j, w = 3 * index[k], weight[k]
            dx, dy, dz = x - q[j], y - q[j + 1], z - q[j + 2]
            fx += w * (dx - lx * np.rint(dx * ix))
            fy += w * (dy - ly * np.rint(dy * iy))
            fz += w * (dz - lz * np.rint(dz * iz))
        out[3 * i], out[3 * i + 1], out[3 * i + 2] = fx, fy, fz


def neighbours(frame):
    if not asks_for_version(frame):
        neighbours_loop(frame)
    return 0


def forces(frame):
    if not asks_for_version(frame):
        forces_loop(frame)
    return 0


@functools.cache
def register() -> None:
    xla_ffi.register("geomint_neighbours", neighbours)
    xla_ffi.register("geomint_pair_forces", forces)
