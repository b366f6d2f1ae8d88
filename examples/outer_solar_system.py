"""Pluto and Neptune for 40,000 years: their orbits cross, and the 3:2 resonance keeps the planets apart.

The resonant argument 3λ(Pluto) − 2λ(Neptune) − ϖ(Pluto) swings about 180° instead of turning round (Cohen, Hubbard,
Science 145 (1964) 1302); λ is the mean longitude of a planet, ϖ the longitude of its perihelion.
"""

import numpy as np

import geomint as gm

G = 2.95912208286e-4
OBLIQUITY = np.radians(23.43929)  # the data are equatorial; longitudes are counted in the ecliptic
YEAR = 365.25


def longitudes(x, v, mass):
    """(λ, ϖ) of the ellipse through a state relative to the sun, from its node and the eccentricity vector, which
    points to the perihelion."""
    turn = np.array([[1, 0, 0], [0, np.cos(OBLIQUITY), np.sin(OBLIQUITY)], [0, -np.sin(OBLIQUITY), np.cos(OBLIQUITY)]])
    x, v = x @ turn.T, v @ turn.T
    spin = np.cross(x, v)
    r = np.linalg.norm(x, axis=1)
    towards = np.cross(v, spin) / (G * mass) - x / r[:, None]
    e = np.linalg.norm(towards, axis=1)
    node = np.stack([-spin[:, 1], spin[:, 0], 0 * r], axis=1)
    across = np.cross(spin, node) / np.linalg.norm(spin, axis=1)[:, None]
    argument = np.arctan2(np.sum(towards * across, axis=1), np.sum(towards * node, axis=1))
    perihelion = np.arctan2(node[:, 1], node[:, 0]) + argument
    a = 1 / (2 / r - np.sum(v**2, axis=1) / (G * mass))
    eccentric = np.arctan2(np.sum(x * v, axis=1) / np.sqrt(G * mass * a), 1 - r / a)
    return perihelion + eccentric - e * np.sin(eccentric), perihelion


def main(years=40_000, dt=200.0):
    """Smallest and largest resonant argument in degrees, smallest distance Pluto–Neptune, largest relative energy
    error."""
    model = gm.models.outer_solar_system()
    steps = round(years * YEAR / dt / 20) * 20
    run = gm.simulate(
        model.system,
        model.q0,
        model.v0,
        method=gm.Composition(gm.Verlet(), order=8),
        dt=dt,
        t_end=steps * dt,
        save_every=20,
    )
    x, v = run.q - run.q[:, :1], run.v - run.v[:, :1]
    mass = np.asarray(model.system.mass)[:, 0]
    neptune, _ = longitudes(x[:, 4], v[:, 4], mass[0] + mass[4])
    pluto, perihelion = longitudes(x[:, 5], v[:, 5], mass[0] + mass[5])
    resonant = np.degrees(3 * pluto - 2 * neptune - perihelion) % 360
    apart = np.linalg.norm(x[:, 5] - x[:, 4], axis=1)
    return resonant.min(), resonant.max(), apart.min(), np.max(np.abs(run.energy_error / run.energy[0]))


if __name__ == "__main__":
    low, high, apart, error = main()
    print(
        f"the resonant argument stays between {low:.1f}° and {high:.1f}°; Pluto and Neptune stay {apart:.1f} au apart; "
        f"largest relative energy error {error:.1e}"
    )
