"""The initial state, checked: shapes, finiteness, v0 or p0, the constraint, derivatives by hand."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError, outside
from ..manifold import gram_product, loses_rank, not_kept_by, scales, seeds, vanishing
from ..methods import State
from ..numerics.compensated import Compensated
from ..numerics.compilation import jit
from ..numerics.linalg.discovery import over_members, plan_for
from ..numerics.linalg.structure import DENSE_LIMIT
from ..system.checks import all_finite, as_array, plain_scalar, shown
from ..system.damping import check_damping
from ..system.index_check import check_filled
from ..system.lagrangian import LagrangianSystem, derive
from ..system.magnetic import check_magnetic
from ..system.mass import check_mass, mass_is_matrix
from ..system.mechanics import Mechanics, real_array
from ..system.spaces import velocity_shape
from ..system.system import Stated, System

ANOTHER_TIME = 0.7310585786  # after t0, where overrides are compared a second time: no likely period of a drive


def is_traced(*trees: Any) -> bool:
    """Whether this call happens inside a JAX transformation."""
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(trees))


def phase(
    system: Stated,
    q0: Any,
    v0: Any,
    p0: Any,
    members: bool = False,
    own_params: bool = False,
    to_array: Callable[[Any, str], Any] = as_array,
) -> tuple[Array, Array]:
    """(q, p) at the start, from v0 or p0; at rest with neither. to_array: checks an argument and makes an array of it,
    on the host or on a device."""
    s = "s" if members else ""  # as the arguments of ensemble are called
    q = to_array(q0, "q0" + s)
    shape = q.shape[1:] if members else q.shape
    if members and q.ndim == 0:
        raise InputError("q0s needs a leading axis that counts the members.")
    if not q.size:
        raise InputError(f"q0{s} has shape {q.shape}: there is no coordinate in it.")
    moving = velocity_shape(system, shape)
    if isinstance(system, System):
        check_mass(system, moving)
        check_damping(system, shape)
        check_magnetic(system, shape)
        if system.atoms is not None:
            system.atoms.check(shape)
        if not system.space.flat and not is_traced(q):
            system.space.check(q, "q0" + s)
    if v0 is not None and p0 is not None:
        raise InputError(f"give v0{s} or p0{s}, not both.")
    name = ("v0" if p0 is None else "p0") + s
    wanted = (*q.shape[: len(q.shape) - len(shape)], *moving)
    given = p0 if v0 is None else v0
    x = _at_rest(q, wanted) if given is None else to_array(given, name)
    if x.shape != wanted:
        must = "they must be the same" if moving == shape else f"{name} must have shape {wanted}, that of velocities"
        raise InputError(f"{name} has shape {x.shape}, but q0{s} has shape {q.shape}; {must}.")
    if p0 is not None:
        return q, x
    if isinstance(system, System) and not mass_is_matrix(system.mass, moving) and not is_traced(system.mass, q, x):
        # A program of XLA for this product takes 45 MB in a process that needs no other one (executor=).
        mass = np.asarray(system.mass)
        with np.errstate(over="ignore"):
            return q, x if mass.ndim == 0 and mass == 1 else x * mass  # of unit masses no second array of all members
    return q, _momenta(members, own_params, system, q, x)


def _at_rest(q: Any, shape: tuple[int, ...]) -> Any:
    return 0 * q if q.shape == shape else (jnp if isinstance(q, jax.Array) else np).zeros(shape, q.dtype)


@functools.partial(jit, static_argnums=(0, 1))
def _momenta(members: bool, own_params: bool, system: Stated, q: Array, v: Array) -> Array:
    """p = ∂L/∂v, of one state or of each member. Compiled: uncompiled, it takes longer than a short run."""
    if own_params:
        return jax.vmap(lambda k, a, b: derive(system.with_params(k), a.shape).momentum_at(a, b))(system.params, q, v)
    momentum = derive(system, q.shape[1:] if members else q.shape).momentum_at
    return jax.vmap(momentum)(q, v) if members else momentum(q, v)


def check_seed(seed: Any) -> int:
    """Check that the seed is an integer of 64 bits: any other number would be truncated to one without an error."""
    if not isinstance(plain_scalar(seed), int):
        raise InputError(f"seed must be an integer, not {shown(seed)}.")
    if not -(2**63) <= int(seed) < 2**64:
        raise InputError(f"seed must be an integer of 64 bits, not {shown(seed)}.")
    return int(seed)


def initial_state(
    q: Any,
    p: Any,
    t0: float,
    seed: Any,
    compensated: bool,
    members: int | None = None,
    velocity_guess: Any = None,
    first: int = 0,
) -> State:
    """The state that a method's init receives, with a velocity near that of p where one is known. The key of a run is
    that of its seed. Members of an ensemble with one seed fold their number into it; those with a seed each have the
    key of a run with that seed. first: the number of the first member."""
    zeros = lambda x: (jnp if isinstance(x, jax.Array) else np).zeros(x.shape, x.dtype)
    wrap = (lambda x: Compensated(x, zeros(x))) if compensated else (lambda x: x)
    if members is None:
        return State(wrap(q), wrap(p), np.asarray(t0), _key(int(seed)), velocity_guess=velocity_guess)
    if np.ndim(seed):
        keys = np.stack([_key(int(s)) for s in seed])
    else:
        keys = _folded(_key(int(seed)), np.arange(first, first + members))
    return State(wrap(q), wrap(p), np.full(members, t0), keys, velocity_guess=velocity_guess)


@jit
def _folded(key: Array, members: Array) -> Array:
    """The keys of members, which fold their numbers into one key."""
    fold = lambda i: jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), i))
    return jax.vmap(fold)(members)


def stated_velocity(system: Stated, name: str, v0: Any, to_array: Callable[[Any, str], Any] = as_array) -> Any:
    """v0 where p is not a constant mass times v0: the velocity is solved for from p, with v0 as the initial guess."""
    return to_array(v0, name) if isinstance(system, LagrangianSystem) and v0 is not None else None


def _key(seed: int) -> np.ndarray:
    """The bits of jax.random.key(seed), as numbers that every engine can carry."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


_precise: set[Any] = set()  # systems that were checked already


def warn_of_lost_digits(system: Stated, shape: tuple[int, ...]) -> None:
    """Warn once of float32 constants inside potential, fast or constraint, which have only seven digits."""
    key = (jax.tree.structure(system), shape)
    if not isinstance(system, System) or key in _precise or jnp.result_type(float) != jnp.float64:
        return
    _precise.add(key)
    for name, of in (("potential", "slow_potential"), ("fast", "fast_potential"), ("constraint", "constraint")):
        function = lambda q, of=of: getattr(Mechanics(system, shape), of)(q)  # traced, so that nothing is compiled
        traced = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(shape, jnp.float64))
        if _has_float32(traced.jaxpr) or any(getattr(c, "dtype", None) == jnp.float32 for c in traced.consts):
            warnings.warn(
                f"{name}(q) uses numbers in float32, which carry seven digits; make them float64 (numpy's default).",
                stacklevel=outside(),
            )


def _has_float32(jaxpr: Any) -> bool:
    for equation in jaxpr.eqns:
        if any(getattr(x.aval, "dtype", None) == jnp.float32 for x in (*equation.invars, *equation.outvars)):
            return True
        inner = [getattr(x, "jaxpr", x) for x in equation.params.values()]
        if any(hasattr(x, "eqns") and _has_float32(x) for x in inner):
            return True
    return False


def check_overrides(system: Stated, q: Array, t0: float = 0.0) -> None:
    """Check that derivatives written by hand, where there are any, agree with automatic differentiation at q0. Where
    functions depend on the time, at a second one too: at t0 alone a t that is missing in the override may not show."""
    if not isinstance(system, System) or not system.overrides:
        return
    for t in (t0, t0 + ANOTHER_TIME) if system.depends_on_time else (t0,):
        _check_overrides_at(system, q, t)


def _check_overrides_at(system: System, q: Array, t: float) -> None:
    when = f" and t = {t:g}" if system.depends_on_time else ""
    for name, sizes in _errors_of_overrides(system, q, t).items():
        error, size = map(float, sizes)
        if not error <= 1e-8 * max(1.0, size):
            raise InputError(
                f"overrides[{name!r}] differs from the automatic derivative at q0{when} by {error:.3g}; correct it or "
                "leave it out."
            )


@jit
def _errors_of_overrides(system: System, q: Array, t: Any) -> dict[str, tuple[Array, Array]]:
    """max |by hand − exact| and max |exact| of the gradients by hand. One program: outside of one, XLA compiles each
    operation of the derivatives by itself, a hundred of them."""
    mech, found = Mechanics(system, q.shape, t), {}
    for name, energy in (("gradient", mech.slow_potential), ("fast_gradient", mech.fast_potential)):
        if name not in system.overrides:
            continue
        by_hand = real_array(f"overrides[{name!r}]", system.call(system.overrides[name], q, t=mech.time))
        if by_hand.shape != q.shape:
            raise InputError(f"overrides[{name!r}] returns shape {by_hand.shape} for q of shape {q.shape}.")
        exact = jax.grad(energy)(q)
        found[name] = jnp.max(jnp.abs(by_hand - exact)), jnp.max(jnp.abs(exact))
    return found


def check_energy(system: Stated, seen: dict[str, Any], start: int = 0, own_params: bool = False) -> None:
    """Check that the energy at the start is finite.

    start: the number of the first member of `system` and `seen`; own_params: members have their own params.
    """
    energy = seen["energy"]
    if isinstance(energy, jax.Array) and all_finite(energy):
        return  # members on a device, which were not copied
    finite = np.isfinite(energy)
    if not np.all(finite):
        first = int(np.argmin(finite))  # of the members
        q, p = (np.asarray(seen[name])[first] if np.ndim(finite) else np.asarray(seen[name]) for name in ("q", "p"))
        check_filled(system.member(first) if own_params else system, q, p)
        whose = f" of member {start + first}" if np.ndim(finite) else ""
        parts = [name for name in ("potential", "fast") if getattr(system, name, None) is not None]
        what = "lagrangian(q0, v0) is not finite, or ∂²L/∂v² is singular there. Check the Lagrangian"
        if isinstance(system, System):
            what = f"{' or '.join(f'{name}(q0)' for name in parts)} is not finite. Check the potential there"
        if isinstance(system, System) and np.max(np.abs(seen["p"])) > 1e140:
            raise InputError(f"the energy at q0{whose} overflows: v0 (or p0) or mass is too large.")
        found = explained(system, q)
        if found:
            raise InputError(f"the energy at q0{whose} is {float(np.ravel(seen['energy'])[first])}: {found}.")
        raise InputError(
            f"the energy at q0{whose} is {float(np.ravel(seen['energy'])[first])}: {what} (a singularity, log or sqrt "
            "of a negative number) or q0."
        )


def explained(system: Any, q: Any, t: float = 0.0) -> str:
    """What is wrong with a position, such as particles that are too close, from potentials that can tell; else ""."""
    if not isinstance(system, System):
        return ""
    for name in ("potential", "fast"):
        explain = getattr(getattr(system, name), "explain", None)
        found = "" if explain is None else explain(q, t) if system.takes(name, "t") else explain(q)
        if found:
            return found
    return ""


ON_MANIFOLD = 1e-8  # relative size of g(q0) and of G(q0) v0 up to which initial data count as satisfying the constraint


def check_on_manifold(system: Stated, q: Any, p: Any, spread: str, t0: float = 0.0) -> None:
    """Check that the initial data satisfy the constraint.

    Each g_i is compared with its size at one radius of curvature from the manifold, or with Σ_j |G_ij||q_j| where that
    is smaller, and (G v + ∂g/∂t)_i with Σ_j |G_ij| max |v|: neither the unit of length nor a factor on a constraint
    matters.
    """
    if system.constraint is None:
        return
    one, at = (system, q) if spread == "one" else (system.member(0) if spread == "states and params" else system, q[0])
    one, moving = one.at_time(t0), system.takes("constraint", "t")
    m = jax.eval_shape(lambda x: derive(one, at.shape).constraint(x), at).size
    plan = plan_for(gram_product, [(one, at)], m, "auto") if m > DENSE_LIMIT and isinstance(one, System) else None
    *seen, sizes = _residuals(spread, system, q, p, seeds(m, plan), t0)
    if isinstance(one, System) and (wrong := vanishing(one, np.asarray(at), sizes)):
        raise InputError(f"constraint(q0): {wrong}.")
    g, rate, met = map(np.asarray, seen)
    if not np.all(met):
        worst = [float(np.max(x[~met] if spread != "one" else x)) for x in (g, rate)]
        whose = f" of member {int(np.argmin(met))}" if spread != "one" else ""
        rate_of = "|G(q0) v0 + ∂g/∂t|" if moving else "|G(q0) v0|"
        off = f"|g(q0)| = {worst[0]:.3g}, {rate_of} = {worst[1]:.3g}"
        at_t0 = ", t0=t0" if moving else ""
        remedy = f"gm.project(system, q0, v0{at_t0}) returns data near them that do"
        raise InputError(f"the initial data{whose} do not satisfy the constraint: {off}. {remedy}.")
    if isinstance(one, System) and m <= DENSE_LIMIT and not moving:
        _check_kept(system, q, p, spread)


def _check_kept(system: Any, q: Any, p: Any, spread: str) -> None:
    """Check that the velocity keeps constraints that depend on each other at q0."""
    own_params = spread == "states and params"
    singular: Any = [None] if spread == "one" else np.flatnonzero(over_members(loses_rank, own_params, system, q))[:100]
    for i in singular:
        one = system.member(i) if own_params else system
        at, momentum = (q, p) if i is None else (q[i], p[i])
        velocity = lambda one=one, at=at, momentum=momentum: derive(one, at.shape).velocity_at(at, momentum)
        found = not_kept_by(one, np.asarray(at), velocity)
        if found is not None:
            whose = "" if i is None else f" of member {i}"
            raise InputError(
                f"v0{whose} can't go on from q0: {found.named} depend on each other there ({found.described}), a "
                "singular position, and no acceleration keeps them with this velocity. Take v0 along one of the "
                "motions that meet there, or start beside it."
            )


@functools.partial(jit, static_argnums=0)
def _residuals(spread: str, system: Stated, q: Array, p: Array, groups: Any, t0: Any) -> tuple[Any, ...]:
    """max |g(q)|, max |G(q) v + ∂g/∂t|, and whether both are small, of one state or of each member; and of one state
    |g| and the scales."""

    def look(stated: Stated, q: Array, p: Array) -> tuple[Any, ...]:
        mech = derive(stated, q.shape, t0)
        v = mech.velocity_at(q, p)
        g, rate, size = jnp.abs(mech.constraint(q)), jnp.abs(mech.velocity_constraint(q, v)), scales(mech, q, groups)
        # The last term is for planes through the origin, g = q_3, of which size.rounding is |q_3| itself.
        rounding = jnp.finfo(q.dtype).eps * (100 * size.rounding + 4 * size.gradient * jnp.max(jnp.abs(q)))
        met = jnp.all(g <= ON_MANIFOLD * jnp.minimum(size.rounding, size.at_radius) + rounding)
        allowed = size.gradient * jnp.max(jnp.abs(v))
        allowed = allowed + jnp.abs(mech.constraint_time_rate(q)) if mech.moving else allowed
        tangent = jnp.all(rate <= ON_MANIFOLD * allowed)
        return jnp.max(g), jnp.max(rate), met & tangent, (g, size) if spread == "one" else None

    if spread == "states and params":
        each = lambda x: look(system.with_params(x[0]), *x[1:])
        return jax.lax.map(each, (system.params, q, p), batch_size=256)
    return look(system, q, p) if spread == "one" else jax.lax.map(lambda x: look(system, *x), (q, p), batch_size=256)
