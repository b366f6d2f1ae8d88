"""project: the nearest data that satisfy a constraint, in the metric of the mass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .errors import InputError
from .mechanics import Mechanics
from .run.inputs import as_array
from .system import System, check_mass


@jax.jit
def _corrections(system: System, q: Array, v: Array) -> tuple[Array, Array, Array]:
    """M⁻¹Gᵀ(G M⁻¹Gᵀ)⁻¹ applied to g(q) and to G v, by least squares where constraints depend on each other; and max |g|."""
    mech = Mechanics(system, q.shape)
    jacobian = mech.constraint_jacobian(q)
    weighted = jax.vmap(lambda row: mech.velocity(row.reshape(q.shape)).ravel(), out_axes=1)(jacobian)
    solve = lambda r: (weighted @ jnp.linalg.lstsq(jacobian @ weighted, r)[0]).reshape(q.shape)
    g = mech.constraint(q)
    return solve(g), solve(mech.constraint_rate(q, v)), jnp.max(jnp.abs(g))


def project(system: System, q0: Any, v0: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """(q, v) near (q0, v0) with g(q) = 0 and G(q) v = 0: Newton steps along M⁻¹Gᵀ, then one projection of the velocity."""
    if not isinstance(system, System) or system.constraint is None:
        raise InputError("project needs a gm.System with a constraint; this one has none.")
    q = as_array("q0", q0)
    v = 0 * q if v0 is None else as_array("v0", v0)
    if v.shape != q.shape:
        raise InputError(f"v0 has shape {v.shape}, but q0 has shape {q.shape}; they must be the same.")
    check_mass(system, q.shape)
    size = max(1.0, float(np.max(np.abs(q)))) ** 2
    for _ in range(50):
        step, _, residual = _corrections(system, q, v)
        if not np.isfinite(residual):
            break
        q = q - np.asarray(step)
        if residual < 1e-15 * size or np.max(np.abs(step)) < 1e-15 * size:
            break
    residual = float(_corrections(system, q, v)[2])
    if not residual < 1e-10 * size:
        raise InputError(f"project found no point with g(q) = 0 near q0: |g| = {residual:.3g} after 50 Newton steps. Start nearer to the constraint.")
    return q, v - np.asarray(_corrections(system, q, v)[1])
