"""project: data near given ones that satisfy a constraint, by steps along M⁻¹Gᵀ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..numerics.linalg.structure import DENSE_LIMIT
from ..numerics.memory import available_memory
from ..system.checks import as_array, number, whole
from ..system.constraints import measured_at
from ..system.mass import check_mass
from ..system.mechanics import Mechanics
from ..system.system import System, checked_system
from .discovery import find_solver
from .scales import residuals, scales, seeds, vanishing
from .solver import ConstraintSolver

AT_ROUNDING = 4.0  # units of rounding of g at which Newton's method ends
FOUND = 100.0  # and up to which its last point counts as one with g = 0


@jit
def _correction(solver: ConstraintSolver, system: System, q: Array, groups: Array) -> tuple[Array, Array, Array]:
    """M⁻¹Gᵀ(G M⁻¹Gᵀ)⁻¹ g(q), max |g|, and max |g_i| in units of the rounding of g_i."""
    mech = Mechanics(system, q.shape)
    g = mech.constraint(q)
    step = mech.velocity(mech.constraint_force(q, solver.gram_solve(mech, q, g)))
    rounding = jnp.finfo(q.dtype).eps * scales(mech, q, groups).rounding
    # Both are 0 in a plane through the origin, g = q_3.
    in_units = jnp.where(g == 0, 0.0, jnp.abs(g) / jnp.where(g == 0, 1.0, rounding))
    return step, jnp.max(jnp.abs(g)), jnp.max(in_units)


@jit
def _tangent(solver: ConstraintSolver, system: System, q: Array, v: Array, t0: Any = 0.0) -> Array:
    mech = Mechanics(system, q.shape, t0)
    normal = solver.gram_solve(mech, q, mech.velocity_constraint(q, v))
    return v - mech.velocity(mech.constraint_force(q, normal))


def _no_gradient(system: System, q: np.ndarray) -> str | None:
    """Names the first constraint that is not met at the start and whose gradient vanishes there, so that no Newton step
    changes it. The gradient of the square of a constraint vanishes where it is met, which `vanishing` finds."""
    m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
    if m > DENSE_LIMIT:
        return None
    g, found = residuals(m, system, jnp.asarray(q, float))
    where = np.flatnonzero((np.asarray(found.gradient) == 0) & (np.asarray(g) != 0))
    if not len(where):
        return None
    i = int(where[0])
    what = f"the gradient of constraint {i} vanishes at q0, where g = {float(g[i]):.3g}"
    return f"{what}; move q0 (do points coincide there?)"


@checked_keywords
def project(system: Any, q0: Any, v0: Any = None, *, t0: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(q, v) near (q0, v0) with g(q) = 0 and G(q) v = 0: Newton steps along M⁻¹Gᵀ, then one projection of the
    velocity. A constraint that moves is that of the time t0, with G(q) v + ∂g/∂t = 0."""
    checked_system(system, System, callee="project")
    if system.constraint is None:
        raise InputError("project(system=...): the system has no constraint.")
    q = as_array(q0, "q0")
    if not q.size:
        raise InputError(f"q0 has shape {q.shape}: there is no coordinate in it.")
    v = 0 * q if v0 is None else as_array(v0, "v0")
    if v.shape != q.shape:
        raise InputError(f"v0 has shape {v.shape}, but q0 has shape {q.shape}; they must be the same.")
    check_mass(system, q.shape)
    t0 = number(t0, "t0", "project")
    stated = measured_at(system.as_now(), q)
    system = stated.at_time(t0)
    solver, start = find_solver("newton", 1.0, [(system, q)]), q
    groups = seeds(solver.plan.n, solver.plan)
    for _ in range(50):
        step, residual, rounded = _correction(solver, system, q, groups)
        if not np.isfinite(residual) or rounded <= AT_ROUNDING:
            break
        q = q - np.asarray(step)
    _, residual, rounded = _correction(solver, system, q, groups)
    if not rounded <= FOUND:
        why = _no_gradient(system, start) or (vanishing(system, q) if np.all(np.isfinite(q)) else None)
        why = f"{why[0].upper()}{why[1:]}" if why else "Start nearer to the constraint"
        raise InputError(
            f"project found no point with g(q) = 0 near q0: |g| = {residual:.3g} after 50 Newton steps. {why}."
        )
    return q, np.asarray(_tangent(solver, stated, q, v, t0))


def perturbed(system: Any, q0: Any, v0: Any, members: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(q0s, v0s) of an ensemble around one state. Member 0 is (q0, v0) itself; the others have q0, and velocities v0
    + spread·s·x with normal numbers x, where s is the largest |v0|, or 1 for a system at rest; tangent to the
    constraint where there is one. The numbers of a member depend on the seed and on its place, not on how many there
    are."""
    q, v = as_array(q0, "q0"), as_array(v0, "v0")
    members, seed = whole(members, "members", least=1), whole(seed, "seed", least=0)
    spread = number(spread, "spread", least=0.0)
    if 4 * members * v.nbytes > available_memory():
        raise InputError(f"members = {members} of {v.size} coordinates each do not fit into memory.")
    scale = spread * (float(np.max(np.abs(v), initial=0.0)) or 1.0)
    v0s = v + scale * np.random.default_rng(seed).normal(size=(members - 1, *v.shape))
    if system.constraint is not None and members > 1:
        solver = find_solver("newton", 1.0, [(system, q)])
        v0s = np.asarray(jit(jax.vmap(lambda w: _tangent(solver, system, q, w)))(v0s))
    return np.stack([q] * members), np.concatenate([v[None], v0s])
