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
def neighbours_loop(frame):
    """(q, settings) -> index (n, room), count (n,); scratch: the cell of each particle, the particles by cell, and
    where each cell begins among them."""
    n, room = sizes(frame, RESULTS, 0)
    q, s = data(frame, ARGUMENTS, 0), data(frame, ARGUMENTS, 1)
    index, count = integers(frame, RESULTS, 0), integers(frame, RESULTS, 1)
    cell, order, start = integers(frame, RESULTS, 2), integers(frame, RESULTS, 3), integers(frame, RESULTS, 4)
    lx, ly, lz, reach = s[0], s[1], s[2], s[3] * s[3]
    ix, iy, iz = (1.0 / lx if lx else 0.0), (1.0 / ly if ly else 0.0), (1.0 / lz if lz else 0.0)
    cx, cy, cz = int(s[4]), int(s[5]), int(s[6])
    for c in range(cx * cy * cz + 1):
        start[c] = 0
    for i in range(n):
        at = (_cell(q[3 * i], lx, cx) * cy + _cell(q[3 * i + 1], ly, cy)) * cz + _cell(q[3 * i + 2], lz, cz)
        cell[i] = at
        start[at + 1] += 1
    for c in range(cx * cy * cz):
        start[c + 1] += start[c]
    for i in range(n - 1, -1, -1):  # downwards, so that particles of a cell are in ascending order
        start[cell[i] + 1] -= 1
        order[start[cell[i] + 1]] = i
    # start[c + 1] is now where cell c begins; cell c ends where cell c + 1 begins, the last one at n.
    wide = 1 if cx * cy * cz > 1 else 0
    for i in range(n):
        x, y, z, found = q[3 * i], q[3 * i + 1], q[3 * i + 2], 0
        at = cell[i]
        a, b, c = at // (cy * cz), at // cz % cy, at % cz
        for da in range(-wide, wide + 1):
            for db in range(-wide, wide + 1):
                for dc in range(-wide, wide + 1):
                    other = ((a + da + cx) % cx * cy + (b + db + cy) % cy) * cz + (c + dc + cz) % cz
                    end = start[other + 2] if other + 1 < cx * cy * cz else n
                    for k in range(start[other + 1], end):
                        j = order[k]
                        dx, dy, dz = x - q[3 * j], y - q[3 * j + 1], z - q[3 * j + 2]
                        dx -= lx * np.rint(dx * ix)
                        dy -= ly * np.rint(dy * iy)
                        dz -= lz * np.rint(dz * iz)
                        if dx * dx + dy * dy + dz * dz < reach and j != i:
                            if found < room:
                                index[i * room + found] = j
                            found += 1
        for k in range(found, room):
            index[i * room + k] = 0
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
