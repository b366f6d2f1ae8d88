"""A symmetry of one's own: two planar oscillators in 1:2 resonance, V invariant when the second turns twice as fast.

With z = x + iy for each, V = ½|z₁|² + 2|z₂|² + κ Re(z̄₁² z₂) + ¼(|z₁|² + |z₂|²)² does not change under
(z₁, z₂) → (e^{iφ} z₁, e^{2iφ} z₂). Noether: L₁ + 2L₂ is constant, although L₁ and L₂ are not.
"""

import jax.numpy as jnp
import numpy as np

import geomint as gm

TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
RESONANT = np.kron(np.diag([1.0, 2.0]), TURN)  # acts on the flattened q: z₁ at rate 1, z₂ at rate 2
FIRST_ONLY = np.kron(np.diag([1.0, 0.0]), TURN)


def potential(q, k):
    (x, y), (a, b) = q
    cubic = (x**2 - y**2) * a + 2 * x * y * b
    return 0.5 * (x**2 + y**2) + 2 * (a**2 + b**2) + k * cubic + 0.25 * jnp.sum(q**2) ** 2


def main(method):
    """Largest deviations of L₁ + 2L₂ and of L₁ from their initial values."""
    system = gm.System(potential, params=0.8, symmetries=(gm.Generator(RESONANT), gm.Generator(FIRST_ONLY)))
    q0, v0 = np.array([[1.0, 0.0], [0.1, 0.3]]), np.array([[0.2, 0.8], [0.5, -0.1]])
    run = gm.simulate(system, q0, v0, method=method, dt=0.05, t_end=500.0, save_every=10)
    return tuple(float(np.max(np.abs(j - j[0]))) for j in run.momentum_maps.values())


if __name__ == "__main__":
    for method in (gm.Verlet(), gm.RungeKutta4()):
        both, first = main(method)
        print(f"{method.name:14s} L₁ + 2L₂ deviates by {both:.1e}, L₁ alone by {first:.1e}")
