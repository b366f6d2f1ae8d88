"""A Poincaré section of the Hénon–Heiles system: (y, p_y) where x = 0 with p_x > 0, for many starts of one energy."""

import numpy as np

import geomint as gm


def starts(energy, n):
    """n states on the section x = 0 with p_y = 0: p_x follows from the energy."""
    y = np.linspace(-0.35, 0.55, n)
    px = np.sqrt(2 * (energy - 0.5 * y**2 + y**3 / 3))
    zero = np.zeros(n)
    return np.stack([zero, y], axis=1), np.stack([px, zero], axis=1)


def crossings(t, q, v):
    """(time, y, v_y) where x passes 0 upwards, with the time by cubic interpolation of x and v_x in the interval."""
    dt = t[1] - t[0]
    k = np.flatnonzero((q[:-1, 0] < 0) & (q[1:, 0] >= 0))
    hermite = lambda s, a, va, b, vb: (
        (1 + 2 * s) * (1 - s) ** 2 * a + s * (1 - s) ** 2 * dt * va + s**2 * (3 - 2 * s) * b + s**2 * (s - 1) * dt * vb
    )
    force = -np.stack([q[:, 0] + 2 * q[:, 0] * q[:, 1], q[:, 1] + q[:, 0] ** 2 - q[:, 1] ** 2], axis=1)
    low, high = np.zeros(len(k)), np.ones(len(k))
    for _ in range(50):
        middle = (low + high) / 2
        below = hermite(middle, q[k, 0], v[k, 0], q[k + 1, 0], v[k + 1, 0]) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    y = hermite(low, q[k, 1], v[k, 1], q[k + 1, 1], v[k + 1, 1])
    vy = hermite(low, v[k, 1], force[k, 1], v[k + 1, 1], force[k + 1, 1])
    return np.stack([t[k] + low * dt, y, vy], axis=1)


def main(energy=0.12, members=24, t_end=1500.0):
    """One array of section points (time, y, p_y) for each start."""
    q0s, v0s = starts(energy, members)
    run = gm.ensemble(
        gm.models.henon_heiles().system, q0s, v0s, method=gm.Composition(gm.Verlet(), order=6), dt=0.05, t_end=t_end
    )
    return [crossings(run.t, q, v) for q, v in zip(run.q, run.v, strict=True)]


if __name__ == "__main__":
    from matplotlib.figure import Figure

    sections = main()
    axes = (figure := Figure(figsize=(6, 6), layout="constrained")).subplots()
    for points in sections:
        axes.plot(points[:, 1], points[:, 2], ".", ms=1.5)
    axes.set(xlabel="y", ylabel="p_y", title="Hénon–Heiles, H = 0.12: islands in a chaotic sea", aspect="equal")
    figure.savefig("henon_heiles_section.png", dpi=130)
    print(f"{sum(map(len, sections))} section points drawn in henon_heiles_section.png")
