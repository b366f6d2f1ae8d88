"""Which velocity brings a body from A to B in a given time? Lambert's problem, by gradients through gm.simulate."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import geomint as gm


def on_ellipse(t, e):
    """The position at time t after perihelion of a planet with semi-axis 1 and eccentricity e, by Kepler's equation
    u − e sin u = t."""
    u = t
    for _ in range(50):
        u = u - (u - e * np.sin(u) - t) / (1 - e * np.cos(u))
    return np.array([np.cos(u) - e, np.sqrt(1 - e**2) * np.sin(u)])


def main(e=0.6, t_end=2.0):
    """The velocity found; the exact one is (0, √((1 + e)/(1 − e)))."""
    model = gm.models.kepler(eccentricity=e)
    target = on_ellipse(t_end, e)

    def miss(v0):
        run = gm.simulate(
            model.system,
            model.q0,
            v0,
            method=gm.Composition(gm.Verlet(), order=6),
            dt=0.01,
            t_end=t_end,
            save_every=200,
        )
        return jnp.sum((run.q[-1] - target) ** 2)

    found = minimize(
        jax.jit(jax.value_and_grad(miss)), np.array([0.2, 1.8]), jac=True, method="BFGS", options={"gtol": 1e-11}
    )
    return found.x


if __name__ == "__main__":
    print(f"velocity found: {main()}, exact: {gm.models.kepler(eccentricity=0.6).v0}")
