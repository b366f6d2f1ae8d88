"""A Poincaré section of the Hénon–Heiles system: (y, p_y) where x = 0 with p_x > 0, for many starts of one energy."""

import numpy as np

import geomint as gm


def starts(energy, n):
    """n states on the section x = 0 with p_y = 0: p_x follows from the energy."""
    y = np.linspace(-0.35, 0.55, n)
    px = np.sqrt(2 * (energy - 0.5 * y**2 + y**3 / 3))
    zero = np.zeros(n)
    return np.stack([zero, y], axis=1), np.stack([px, zero], axis=1)


def main(energy=0.12, members=24, crossings=240):
    """One array of section points (time, y, p_y) for each start."""
    q0s, v0s = starts(energy, members)
    method = gm.Composition(gm.Verlet(), order=6)
    model = gm.models.henon_heiles()
    found = gm.section(model, q0s, v0s, lambda q: q[0], method=method, dt=0.05, crossings=crossings, members=True)
    return list(np.stack([found.t, found.coordinate("q[1]"), found.coordinate("p[1]")], axis=2))


if __name__ == "__main__":
    from matplotlib.figure import Figure

    sections = main()
    axes = (figure := Figure(figsize=(6, 6), layout="constrained")).subplots()
    for points in sections:
        axes.plot(points[:, 1], points[:, 2], ".", ms=1.5)
    axes.set(xlabel="y", ylabel="p_y", title="Hénon–Heiles, H = 0.12: islands in a chaotic sea", aspect="equal")
    figure.savefig("henon_heiles_section.png", dpi=130)
    print(f"{sum(map(len, sections))} section points drawn in henon_heiles_section.png")
