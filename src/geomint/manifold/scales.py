"""What counts as small: for g_i of constraints stated in any units, and for corrections of positions.

Each constraint is measured by its own gradient, so that neither the unit of length nor a factor on a constraint
matters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compilation import concrete_evaluation, jit
from ..numerics.linalg.cpu_kernels import inner
from ..numerics.linalg.structure import DENSE_LIMIT, Plan
from ..system.mechanics import Mechanics

# |G_i|²/|g_i''| relative to Σ|G_ij||q_j| below which a constraint that is not met may be a square. For g = c·δ², where
# δ is the distance to the manifold, this ratio is about δ/|q|, and starts are accepted only much nearer than 1e-5 |q|.
DEGENERATE = 1e-5


class Scales(NamedTuple):
    """Of each constraint."""

    rounding: Array  # Σ_j |G_ij||q_j|: relative changes eps of q change g_i by eps times this
    # |G_i|²/|g_i''|, the g_i at about one radius of curvature from the manifold; infinite for linear constraints
    at_radius: Array
    gradient: Array  # Σ_j |G_ij|


def seeds(m: int, plan: Plan | None) -> np.ndarray:
    """(group, m): groups of constraints that are not coupled in G M⁻¹Gᵀ, by the plan for that matrix; each constraint
    by itself where no pattern is known."""
    if plan is not None and plan.colours is not None:
        return plan.colours[None, :] == np.arange(plan.colours.max() + 1)[:, None]
    return np.eye(m, dtype=bool)


def over_groups(function: Callable[[Array], Any], groups: np.ndarray | Array, dtype: Any) -> Any:
    """Σ function(group) over the groups: all together, or one after another where that would take much memory."""
    groups = jnp.asarray(groups, dtype)
    if len(groups) <= DENSE_LIMIT:
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(function)(groups))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, groups[0]))
    return jax.lax.scan(lambda total, x: (jax.tree.map(jnp.add, total, function(x)), None), nothing, groups)[0]


def rounding_scale(mech: Any, q: Array) -> Array:
    """About Σ_j |G_ij||q_j|, from two products of G with q times random signs: cheap, for use inside a step."""
    random = np.random.default_rng(11)

    def along(factors: np.ndarray) -> Array:
        return jnp.abs(jax.jvp(mech.constraint, (q,), (jnp.asarray(factors, q.dtype) * q,))[1])

    signs = [random.uniform(0.8, 1.2, q.shape) * random.choice([-1.0, 1.0], q.shape) for _ in range(2)]
    return along(signs[0]) + along(signs[1])


def scales(mech: Any, q: Array, groups: np.ndarray | Array) -> Scales:
    """The scales of all constraints, from three products with G and Gᵀ for each group of constraints."""
    pull = jax.vjp(mech.constraint, q)[1]
    rate = lambda x, along: jax.jvp(mech.constraint, (x,), (along,))[1]

    def of(group: Array) -> Scales:
        gradient = pull(group)[0]
        signs = jnp.where(gradient < 0, -1.0, 1.0)
        squared = rate(q, gradient)
        bend = jnp.abs(jax.jvp(lambda x: rate(x, gradient), (q,), (gradient,))[1])  # g''(G_i, G_i)
        # |G_i|⁴/|g''(G_i, G_i)| = |G_i|²/|g''| along the gradient
        radius = jnp.where(bend > 0, squared / jnp.where(bend > 0, bend, 1.0) * squared, jnp.inf)
        return Scales(group * rate(q, signs * jnp.abs(q)), jnp.where(group > 0, radius, 0.0), group * rate(q, signs))

    return over_groups(of, groups, q.dtype)


@functools.partial(jit, static_argnums=0)
def residuals(m: int, system: Any, q: Array) -> tuple[Array, Scales]:
    """g(q) and the scales there, of at most DENSE_LIMIT constraints."""
    mech = Mechanics(system, q.shape)
    return mech.constraint(q), scales(mech, q, seeds(m, None))


def vanishing(system: Any, q: np.ndarray, found: tuple[Any, Scales] | None = None) -> str | None:
    """What is wrong with a constraint whose gradient vanishes where it is met, as that of the square of a constraint
    does.

    Then g = c·δ², |G| = 2c·δ and g'' = 2c at a distance δ from the manifold: g is as large as |G|²/|g''|, however near.
    Three steps of Newton's method do not change that; any other constraint is met after them.

    found: g and the scales at q, where they are known.
    """
    m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
    if m > DENSE_LIMIT:
        return None
    seen = _seen(system, m, q) if found is None else found
    suspects = [i for i in _vanishing(*seen) if _stays_vanishing(system, m, q, i)]
    if not suspects:
        return None
    return (
        f"the gradient of constraint {suspects[0]} vanishes where the constraint is met, as that of the square "
        "of a constraint does; "
        "no force can hold it. State it without the square: r² − 1 for (r² − 1)²"
    )


def _stays_vanishing(system: Any, m: int, q: Any, i: int) -> bool:
    """Whether constraint i looks like a square after each of three steps of Newton's method."""
    for _ in range(3):
        q = _corrected(i, system, jnp.asarray(q, float))
        if i not in _vanishing(*_seen(system, m, q)):
            return False
    return True


def _seen(system: Any, m: int, q: Any) -> tuple[Any, Scales]:
    return residuals(m, system, jnp.asarray(q, float))


def _vanishing(g: Any, found: Scales) -> list[int]:
    """The constraints that look like squares where g and the scales are these."""
    g, found = jax.tree.map(np.asarray, (g, found))
    squared = (np.abs(g) >= 0.05 * found.at_radius) & (found.at_radius <= DEGENERATE * found.rounding)
    return np.flatnonzero((found.gradient == 0) | squared).tolist()


@functools.partial(jit, static_argnums=0)
def _corrected(i: int, system: Any, q: Array) -> Array:
    """q − g_i G_i/|G_i|²; q itself where G_i vanishes."""
    g, slope = jax.value_and_grad(lambda x: Mechanics(system, x.shape).constraint(x)[i])(q)
    squared = jnp.sum(slope**2)
    return q - jnp.where(squared > 0, g / jnp.where(squared > 0, squared, 1.0), 0.0) * slope


class Sizes(NamedTuple):
    """How corrections of positions are measured: by their squared length times `unit`."""

    unit: Any
    rounding: Any  # that of the rounding of positions
    whole: Any  # that of the positions themselves


def sizes(constrained: tuple[int, ...] | None, *positions: Array) -> Sizes:
    """The sizes of corrections of positions like these, of which only the coordinates in constraints count (None:
    all)."""
    number = jnp.finfo(positions[0].dtype)
    if constrained is not None:
        positions = tuple(x.ravel()[np.asarray(constrained)] for x in positions)
    # Twice the mean of |Q|²; the last term keeps the square of the rounding above underflow.
    whole = sum(inner(x, x) for x in positions) * (2 / len(positions)) + number.tiny / number.eps**2
    if number.bits == 64:
        return Sizes(1.0, number.eps**2 * whole, whole)
    # In single precision fourth powers of lengths would leave the range of numbers: lengths are divided by eps|Q|
    # first.
    return Sizes(1 / (number.eps**2 * whole), 1.0, jnp.asarray(number.eps**-2, number.dtype))


def constrained_coordinates(system: Any, q: Any) -> tuple[int, ...] | None:
    """The coordinates that enter constraints, as places in q.ravel(); None where all do.

    Looked for by one random combination of the gradients, at a position a little off q, where no entry of G vanishes by
    symmetry.
    """
    random, q = np.random.default_rng(7), np.asarray(q, float)
    near = q + 1e-3 * (np.max(np.abs(q), initial=0.0) or 1.0) * random.normal(size=q.shape)
    g = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), near)
    with concrete_evaluation():
        force = np.asarray(_force(system, near, random.normal(size=g.shape))).ravel()
    entering = np.flatnonzero(force != 0)  # NaN counts as entering
    return None if len(entering) in (0, q.size) else tuple(entering.tolist())


@jit
def _force(system: Any, q: Array, multipliers: Array) -> Array:
    """G(q)ᵀλ."""
    return Mechanics(system, q.shape).constraint_force(q, multipliers)
