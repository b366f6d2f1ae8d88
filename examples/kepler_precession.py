"""A planet whose ellipse turns: V = −1/r − β/r², where the angle from one perihelion to the next is 2π/√(1 − 2β/L²).

The extra term only changes L² to L² − 2β in the radial equation, so the formula is exact.
"""

import jax.numpy as jnp
import numpy as np

import geomint as gm


def perihelia(run):
    """The angle of the planet at each closest approach, by linear interpolation of the zeros of q·v."""
    radial = np.sum(run.q * run.v, axis=1)
    angle = np.unwrap(np.arctan2(run.q[:, 1], run.q[:, 0]))
    before = np.flatnonzero((radial[:-1] < 0) & (radial[1:] >= 0))
    part = radial[before] / (radial[before] - radial[before + 1])
    return angle[before] + part * (angle[before + 1] - angle[before])


def main(beta=0.02, eccentricity=0.4):
    """The angle between perihelia, measured and by the formula."""
    system = gm.System(
        lambda q, beta: -1 / jnp.linalg.norm(q) - beta / jnp.sum(q**2),
        symmetries=gm.Rotation((0, 1)),
        params=beta,
    )
    q0 = np.array([1 - eccentricity, 0.0])
    v0 = np.array([0.0, np.sqrt((1 + eccentricity) / (1 - eccentricity))])
    run = gm.simulate(system, q0, v0, method=gm.Composition(gm.Verlet(), order=8), dt=0.01, t_end=200.0)
    angles = perihelia(run)
    measured = (angles[-1] - angles[0]) / (len(angles) - 1)
    spin = run.momentum_maps["rotation[0, 1]"][0, 0]
    return measured, 2 * np.pi / np.sqrt(1 - 2 * beta / spin**2)


if __name__ == "__main__":
    measured, exact = main()
    print(
        f"angle between perihelia: {measured:.9f} measured, {exact:.9f} exact; "
        f"the ellipse turns by {np.degrees(exact - 2 * np.pi):.3f}° a revolution"
    )
