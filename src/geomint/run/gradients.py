"""Gradients of long runs. A symmetric method is run backwards instead of storing its states: memory stays constant.

A run is c₀ → c₁ → … → c_N, c_{n+1} = Φ_h(c_n; θ), with the rows r_i = s(c_n; θ) at n = save_every, 2 save_every, …, N.
The gradient of a function of the end and of the rows, with λ_n its derivative by c_n, is computed from the end to the
start (the adjoint recursion):

    λ_N = ∂/∂c_N,    λ_n ← λ_n + (∂s/∂c)ᵀ r̄_i  at a save,    λ_n = (∂Φ/∂c)ᵀ λ_{n+1},    θ̄ ← θ̄ + (∂Φ/∂θ)ᵀ λ_{n+1},

with derivatives at c_n. It needs the c_n in reverse order, and there are two modes:

backwards   c_n = Φ_{−h}(c_{n+1}), since Φ_{−h} Φ_h = identity for a symmetric method. Only the end is stored. By
            rounding the reversed run differs from the run, as much as the motion amplifies small perturbations: the
            gradient is that of a nearby motion. The distance by which the reversed run misses the start is measured,
            with a warning where it is too large.
stored      c_n is stored at every save, and the steps between two saves are repeated in about √save_every pieces of as
            many steps. Memory grows with the number of saves, as the result does, and with the square root of the steps
            between them.

Both modes work with jax.jvp and jax.jacfwd too. In the mode backwards a forward derivative costs one run more.

Two carries may represent the same motion: on a manifold, the momentum may have a part normal to it. Derivatives depend
on that part. There the carry at which derivatives are taken is computed by a step from the one before, as in the run.

References: Hairer, Lubich, Wanner, chapter V, for symmetric methods; Griewank, Walther, Evaluating Derivatives,
chapter 12, for checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jaxtyping import Array

from ..engines.block import Clock, march, observe
from ..engines.grid import Grid
from ..errors import GeomintError, InputError
from ..methods import Carry, Method, protocols
from ..numerics.compensated import value
from ..numerics.compilation import jit
from ..system.checks import choice
from ..system.lagrangian import derive
from ..system.system import Stated
from .linear_maps import LinearMap

MODES = ("auto", "backwards", "stored")
# Distance from the start, in √eps of the size of q (64 √eps = 1e-6 in double precision), above which a warning follows.
MISSED = 64
SHORT = 64  # up to so many steps between two saves are not divided into pieces


def checked_gradient(gradient: Any) -> str:
    """The argument gradient=, checked."""
    choice(gradient, "gradient", "", MODES)
    return gradient


def integrate_traced(
    gradient: str, method: Method, system: Stated, carry: Carry, clock: Clock, times: Grid
) -> tuple[Carry, Array]:
    """The carry at the end of a run and the rows at its saves, differentiable in the mode `gradient`."""
    carry = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), carry)
    shape = value(jax.eval_shape(lambda c: method.output(derive(system), c).q, carry)).shape
    mech = derive(system, shape)
    dtype = jnp.result_type(float)

    def look(carry: Carry, t: Any) -> Array:
        return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(observe(method, mech, carry, t))])

    if method.traits.event_driven:
        return _events(method, mech, carry, clock, times, look)
    if mech.time is not None:
        return _with_time(gradient, method, mech, carry, clock, times, look)
    step = lambda carry, dt: method.step(mech, carry, dt)
    fixed = lambda carry: look(carry, clock.t0)  # with fixed steps, what is saved does not depend on t
    if not _runs_backwards(gradient, method, system):
        return _stored(lambda c: step(c, clock.dt), fixed, carry, times)
    turn = lambda carry, dt: protocols.rescale(method, mech, protocols.reverse(method, carry), dt)
    position = lambda carry: value(method.output(mech, carry).q)
    dt = np.asarray(clock.dt, dtype)
    found = [Pure.of(step, carry, dt), Pure.of(fixed, carry), Pure.of(turn, carry, dt), Pure.of(position, carry)]
    # On a manifold the momentum in the carry of a one-step method may have a part normal to it.
    remade = system.constraint is not None and method.traits.steps == 1
    reversible = Backwards(*(pure for pure, _ in found), dt=dt, times=times, remade=remade, name=type(method).__name__)
    return _backwards(reversible, Inputs(carry, Outer(*(outer for _, outer in found))))


def _with_time(
    gradient: str, method: Method, mech: Any, carry: Carry, clock: Clock, times: Grid, look: Callable
) -> tuple[Carry, Array]:
    """A system that depends on the time: the number of the step is carried along, and states are stored."""
    if gradient == "backwards":
        raise InputError("gradient='backwards' is for systems that do not depend on t: take gradient='stored'.")
    step = lambda at: (method.step(mech.at(clock.time(at[1])), at[0], clock.dt), at[1] + 1)
    row = lambda at: look(at[0], clock.time(at[1]))
    (carry, _), rows = _stored(step, row, (carry, jnp.zeros((), int)), times)
    return carry, rows


def _runs_backwards(gradient: str, method: Method, system: Stated) -> bool:
    if gradient == "backwards" and not method.traits.symmetric:
        raise InputError(
            f"gradient='backwards' undoes each step by one of −dt, and {type(method).__name__} is not symmetric: take "
            "gradient='stored'."
        )
    # In a reversed run damping becomes driving, and rounding errors grow without bound.
    return gradient == "backwards" or (gradient == "auto" and method.traits.symmetric and not system.driven)


# --- stored ---
def _stored(
    step: Callable[[Carry], Carry], look: Callable[[Carry], Array], carry: Carry, times: Grid
) -> tuple[Carry, Array]:
    again = lambda function: jax.checkpoint(function, prevent_cse=False)  # inside a loop XLA does not undo it

    @again
    def block(carry: Carry, _: None) -> tuple[Carry, Array]:
        carry = _in_pieces(step, carry, times.save_every, again)
        return carry, look(carry)

    return jax.lax.scan(block, carry, None, length=times.saves - 1)


def _in_pieces(step: Callable[[Carry], Carry], carry: Carry, steps: int, again: Callable) -> Carry:
    """All steps, in about √steps pieces of √steps steps each, of which only the starts are stored."""
    several = lambda carry, many: jax.lax.fori_loop(0, many, lambda _, c: step(c), carry)
    if steps <= SHORT:
        return several(carry, steps)
    length = math.isqrt(steps)
    piece = again(lambda carry, _: (several(carry, length), None))
    carry, _ = jax.lax.scan(piece, carry, None, length=steps // length)
    return several(carry, steps % length)


# --- backwards ---
@dataclasses.dataclass(frozen=True, eq=False)
class Pure:
    """A function without closed-over tracers: those of the original (a mass, params, arrays that a potential refers to)
    are its first argument. custom_jvp does not see closed-over tracers."""

    jaxpr: Any
    constants: list[Any]  # None where a tracer was
    tree: Any  # of its result

    @classmethod
    def of(cls, function: Callable, *arguments: Any) -> tuple[Pure, tuple[Any, ...]]:
        """The function, and the tracers that the original closed over."""
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        constants = [None if isinstance(x, Tracer) else x for x in closed.consts]
        return cls(closed.jaxpr, constants, jax.tree.structure(shape)), tuple(
            x for x in closed.consts if isinstance(x, Tracer)
        )

    def __call__(self, outer: tuple[Any, ...], *arguments: Any) -> Any:
        given = iter(outer)
        constants = [next(given) if x is None else x for x in self.constants]
        return jax.tree.unflatten(self.tree, eval_jaxpr(self.jaxpr, constants, *jax.tree.leaves(arguments)))

    def keeping(self, kept: Any, result: Any) -> Any:
        """The result, with arrays of `kept` in place of those that the function returns unchanged."""
        same = [a is b for a, b in zip(self.jaxpr.invars, self.jaxpr.outvars, strict=False)]
        leaves = [
            a if untouched else b
            for a, b, untouched in zip(jax.tree.leaves(kept), jax.tree.leaves(result), same, strict=True)
        ]
        return jax.tree.unflatten(self.tree, leaves)


def _floats(tree: Any) -> tuple[Any, Any]:
    """Floating-point leaves, which have derivatives, and the rest: counters, a status."""
    return eqx.partition(tree, lambda x: jnp.issubdtype(jnp.result_type(x), jnp.inexact))


def _either(first: Any, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)


def _sum(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


class Outer(NamedTuple):
    """The traced part of θ: the tracers that each function of a run closed over."""

    step: Any
    look: Any
    turn: Any
    position: Any


class Inputs(NamedTuple):
    """All that a run depends on."""

    carry: Any
    outer: Outer


class Adjoint(NamedTuple):
    """The state of the adjoint recursion at step n."""

    n: Any
    back: Any  # the carry of the reversed run
    carry: Any  # c_n
    by_carry: Any  # λ_n
    by_step: Any  # θ̄, of what the step closed over
    by_look: Any  # θ̄, of what the saved rows closed over


@dataclasses.dataclass(frozen=True, eq=False)
class Backwards:
    """A run and its derivatives, with functions of (outer, carry) and, for step and turn, of dt."""

    step: Pure
    look: Pure
    turn: Pure  # the carry prepared for steps of the opposite sign and of this length
    position: Pure
    dt: np.ndarray
    times: Grid
    remade: bool  # derivatives are taken at carries computed by a step of the run
    name: str

    def run(self, inputs: Inputs) -> tuple[Carry, Array]:
        outer = inputs.outer

        def block(carry: Carry, _: None) -> tuple[Carry, Array]:
            carry = jax.lax.fori_loop(0, self.times.save_every, lambda _, c: self.step(outer.step, c, self.dt), carry)
            return carry, self.look(outer.look, carry)

        return jax.lax.scan(block, inputs.carry, None, length=self.times.saves - 1)

    def _earlier(self, inputs: Inputs, back: Carry, n: Array) -> tuple[Carry, Carry]:
        """One step of the reversed run: its next carry, and c_n as the run had it; c₀ is known exactly."""
        start, outer = inputs
        less = self.step(outer.step, back, -self.dt)
        if not self.remade:
            return less, _either(n == 0, start, self._there(inputs, less))
        # Here the reversed run is one step ahead, at n − 1, and Φ_h gives c_n.
        less = _either(n == 0, back, less)
        carry = self.step(outer.step, _either(n <= 1, start, self._there(inputs, less)), self.dt)
        return less, _either(n == 0, start, carry)

    def _there(self, inputs: Inputs, back: Carry) -> Carry:
        """A carry of the reversed run as one of the run. What no step changes (factors of a matrix that depends on dt)
        is taken from the start."""
        return self.step.keeping(inputs.carry, self.turn(inputs.outer.turn, back, self.dt))

    def pull(self, inputs: Inputs, end: Carry, by_end: Any, by_rows: Array) -> Any:
        """The derivatives by all inputs, from those by the end and by the rows: the adjoint recursion."""
        outer = inputs.outer

        def through(function: Callable, outer: Any, carry: Carry, cotangent: Any) -> tuple[Any, Any]:
            """(∂f/∂outer)ᵀ and (∂f/∂carry)ᵀ of a cotangent."""
            (floats, rest), (thetas, others) = _floats(carry), _floats(outer)
            of = lambda t, c: _floats(function(eqx.combine(t, others), eqx.combine(c, rest)))[0]
            return jax.vjp(of, thetas, floats)[1](cotangent)

        def step(_: int, at: Adjoint) -> Adjoint:
            back, carry = self._earlier(inputs, at.back, at.n - 1)
            more, by_carry = through(lambda o, c: self.step(o, c, self.dt), outer.step, carry, at.by_carry)
            return Adjoint(at.n - 1, back, carry, by_carry, _sum(at.by_step, more), at.by_look)

        def block(at: Adjoint, by_row: Array) -> tuple[Adjoint, None]:
            more, seen = through(self.look, outer.look, at.carry, by_row)
            at = at._replace(by_carry=_sum(at.by_carry, seen), by_look=_sum(at.by_look, more))
            return jax.lax.fori_loop(0, self.times.save_every, step, at), None

        none = jax.tree.map(jnp.zeros_like, _floats(outer)[0])
        back = self.turn(outer.turn, end, -self.dt)
        if self.remade:
            back = self.step(outer.step, back, -self.dt)
        begin = Adjoint(jnp.asarray(self.times.steps), back, end, by_end, none.step, none.look)
        start, _ = jax.lax.scan(block, begin, by_rows, reverse=True)
        self._check_miss(inputs, end, start.back)
        return Inputs(start.by_carry, none._replace(step=start.by_step, look=start.by_look))

    def _check_miss(self, inputs: Inputs, end: Carry, back: Carry) -> None:
        """Warn where the reversed run missed the start."""
        there, here, last = (
            self.position(inputs.outer.position, c) for c in (inputs.carry, self._there(inputs, back), end)
        )
        size = jnp.maximum(jnp.max(jnp.abs(there)), jnp.max(jnp.abs(last)))
        jax.debug.callback(functools.partial(_warn_of_a_miss, self.name), jnp.max(jnp.abs(there - here)) / size)


def _warn_of_a_miss(name: str, missed: Any) -> None:
    if not np.all(missed <= MISSED * np.sqrt(np.finfo(missed.dtype).eps)):  # NaN is a miss too
        what = "met numbers that are not finite, so that the gradient is of no use"
        if np.all(np.isfinite(missed)):
            what = (
                f"missed the start by {np.max(missed):.1e} of the size of q: rounding grows that much on the way, and "
                "the gradient is that of a motion so near"
            )
        warnings.warn(
            f"{name} ran backwards for a gradient and {what}. gradient='stored' does without.",
            stacklevel=2,
        )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _backwards(reversible: Backwards, inputs: Inputs) -> tuple[Carry, Array]:
    return reversible.run(inputs)


@_backwards.defjvp
def _derivative(reversible: Backwards, primals: tuple[Inputs], tangents: tuple[Inputs]) -> tuple[Any, Any]:
    """Forward derivatives by the run itself, reverse ones by the reversed run."""
    inputs, moves = jax.tree.map(jnp.asarray, primals[0]), tangents[0]
    result = _backwards(reversible, inputs)
    at, place = jax.tree.flatten((inputs, result[0]))
    thetas, results = jax.tree.structure(_floats(inputs)[0]), jax.tree.structure(_floats(result)[0])

    def push(at: Any, tangents: Any) -> Any:
        floats, rest = _floats(jax.tree.unflatten(place, at)[0])
        run = lambda x: _floats(reversible.run(eqx.combine(x, rest)))[0]
        return jax.tree.leaves(jax.jvp(run, (floats,), (jax.tree.unflatten(thetas, tangents),))[1])

    @jit
    def pull(at: Any, cotangents: Any) -> Any:
        return jax.tree.leaves(
            reversible.pull(*jax.tree.unflatten(place, at), *jax.tree.unflatten(results, cotangents))
        )

    has_tangent = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)
    moving = [t for x, t in zip(jax.tree.leaves(inputs), jax.tree.leaves(moves), strict=True) if has_tangent(x)]
    found = iter(LinearMap(push, pull)(at, moving))
    return result, jax.tree.map(
        lambda x: next(found) if has_tangent(x) else np.zeros(x.shape, jax.dtypes.float0), result
    )


# --- events ---
def _events(method: Method, mech: Any, carry: Carry, clock: Clock, times: Grid, look: Callable) -> tuple[Carry, Array]:
    """Event-driven methods take an unknown number of steps: such a loop has forward derivatives only."""

    def block(carry: Carry, i: Array) -> tuple[Carry, Array]:
        carry, _ = march(method, mech, carry, clock, i * times.save_every, times.save_every)
        return carry, look(carry, clock.time((i + 1) * times.save_every))

    return _forwards_only(type(method).__name__, jax.lax.scan(block, carry, jnp.arange(times.saves - 1)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _forwards_only(name: str, result: Any) -> Any:
    return result


@_forwards_only.defjvp
def _passed_on(name: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    def refuse(at: Any, cotangents: Any) -> Any:
        raise GeomintError(
            f"{name} takes as many steps as there are events, which JAX does not differentiate backwards: use jax.jvp "
            "or jax.jacfwd in place of jax.grad."
        )

    passed = LinearMap(lambda at, x: x, refuse)
    return primals[0], jax.tree.map(lambda x: passed([], [x])[0] if x.dtype != jax.dtypes.float0 else x, tangents[0])
