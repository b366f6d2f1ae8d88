"""The loop over blocks and steps, written once for all methods: a block is the k steps between two saves.

What a save keeps is packed into one row of numbers, written in place into a buffer. XLA makes one operation of that; a
dozen separate arrays would cost more than the hundred steps between two saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..methods import Carry, Method, State, protocols
from ..methods.protocols import EventDriven
from ..numerics.compensated import value
from ..numerics.linalg.sparse_matrix import SparseMatrix
from ..numerics.module import Module
from ..system.lagrangian import derive
from ..system.system import Stated, System

Observed = dict[str, Any]
# Columns that a method may not replace by State.extras. The energy it may: EnergyStepping's is that of its terraces.
OWN_COLUMNS = ("q", "p", "t", "momentum_maps", "watched", "constraint_residual", "velocity_residual", "status")
Count = Array | int  # traced, or known at compile time


class Clock(Module):
    """Time is t0 + n·dt from an integer n, never accumulated."""

    t0: Any
    dt: Any

    @classmethod
    def of(cls, t0: float, dt: float) -> Clock:
        return cls(np.asarray(t0), np.asarray(dt))

    def time(self, n: Count) -> Array:
        return self.t0 + n * self.dt


class Accompanied(Module):
    """The carry of a method, and the auxiliary state of its system."""

    carry: Carry
    auxiliary: Any

    def position(self, method: Method, mech: Any) -> Array:
        return value(method.output(mech.with_auxiliary(self.auxiliary), self.carry).q)


def started(method: Method, mech: Any, state: State, dt: Any, auxiliary: Any = None) -> Carry:
    """The carry at the start, with the auxiliary state where there is one."""
    if auxiliary is None:
        return method.init(mech, state, dt)
    return Accompanied(method.init(mech.with_auxiliary(auxiliary), state, dt), auxiliary)


def stepped(method: Method, mech: Any, carry: Carry, dt: Any) -> Carry:
    """One step. The auxiliary state is refreshed before it."""
    if not isinstance(carry, Accompanied):
        return method.step(mech, carry, dt)
    # A symmetric method of k steps shows the middle of its history, and takes forces k/2 steps ahead of it.
    ahead = max(1, method.traits.steps // 2)
    auxiliary = mech.system.auxiliary.refreshed(carry.auxiliary, carry.position(method, mech), ahead)
    return Accompanied(method.step(mech.with_auxiliary(auxiliary), carry.carry, dt), auxiliary)


def observe(method: Method, mech: Any, carry: Carry, t: Array) -> Observed:
    """All that is kept of the state at time t: (q, p), the method's extras, and the watched quantities."""
    mech = mech.at(t)
    if isinstance(carry, Accompanied):
        mech, carry = mech.with_auxiliary(carry.auxiliary), carry.carry
    state = method.between(mech, carry, t) if isinstance(method, EventDriven) else method.output(mech, carry)
    for name in state.extras:
        if name in OWN_COLUMNS or not name.isidentifier():
            reserved = ", ".join(OWN_COLUMNS)
            raise InputError(
                f"{method.name}: State(extras={{{name!r}: ...}}) can't be a column (reserved: {reserved})."
            )
    q, p = value(state.q), value(state.p)
    guess = () if state.velocity_guess is None else (state.velocity_guess,)
    seen: Observed = {"q": q, "p": p, "energy": mech.energy(q, p, *guess), **state.extras}
    if mech.system.symmetries:
        seen["momentum_maps"] = mech.momentum_maps(q, p)
    if mech.system.watch:
        seen["watched"] = mech.watched(q, p, t)
    if mech.system.constraint is not None:
        seen["constraint_residual"] = mech.constraint(q)
        seen["velocity_residual"] = mech.velocity_constraint(q, mech.velocity_at(q, p, *guess))
    status = protocols.status(method, carry)
    if status is not None:
        seen["status"] = status
    return seen


def is_good(seen: Observed, axes: int, energy: bool = True) -> Any:
    """Which states are good, for arrays with that many leading axes (members, saves): q, p and the energy are finite
    and the status is 0.

    Nothing else counts: a watched quantity may be NaN, and is saved as it is. With energy=False only failures count
    from which a run can't recover: a non-finite q or p, or a status, which is sticky."""
    xp = jnp if isinstance(seen["q"], jax.Array) else np
    good = xp.asarray(seen.get("status", 0)) == 0
    for name in ("q", "p", "energy") if energy else ("q", "p"):
        x = seen[name]
        good = good & xp.all(xp.isfinite(x), axis=tuple(range(axes, x.ndim)))
    return good


class Log(Module):
    """The events of one call; those beyond the length of `records` are counted but not stored."""

    records: Any  # (room, 3): time, level, kind
    count: Any

    @classmethod
    def empty(cls, room: int) -> Log:
        return cls(jnp.zeros((room, 3)), jnp.zeros((), int))


# XLA fuses operations only inside a round of a loop, and on a GPU a round costs some 5 µs besides its kernels. With
# four steps in a round instead of one, a step takes 75 µs instead of 91 on an H200 (1.5 million tetrahedra, Verlet),
# and 38 instead of 46 (1000 rigid waters, RATTLE).
STEPS_OF_A_ROUND = {"gpu": 4}


def repeated(one: Callable[[Any, Carry], Carry], steps: Count, carry: Carry) -> Carry:
    """one(i, carry) for i = 0, …, steps − 1."""
    several, done = STEPS_OF_A_ROUND.get(jax.default_backend(), 1), 0
    if several > 1:
        one = jax.jit(one)  # traced once for all copies

        def a_round(k: Any, c: Carry) -> Carry:
            for j in range(several):
                c = one(several * k + j, c)
            return c

        carry = jax.lax.fori_loop(0, steps // several, a_round, carry)
        done = several * (steps // several)
    return jax.lax.fori_loop(done, steps, one, carry)


def march(
    method: Method, mech: Any, carry: Carry, clock: Clock, first: Count, steps: Count, log: Log | None = None
) -> tuple[Carry, Log | None]:
    """`steps` steps from step `first` on; an event-driven method steps until it has passed the time of step
    first + steps."""
    if not isinstance(method, EventDriven):
        # Only systems that depend on the time need it: otherwise it would add operations to a step.
        now = (lambda i: mech) if mech.time is None else (lambda i: mech.at(clock.time(first + i)))
        return repeated(lambda i, c: stepped(method, now(i), c, clock.dt), steps, carry), log
    until = clock.time(first + steps)
    if log is None:
        return jax.lax.while_loop(
            lambda c: method.time(c) < until, lambda c: method.step(mech, c, clock.dt), carry
        ), log

    def step(moving: tuple[Carry, Log]) -> tuple[Carry, Log]:
        carry, log = moving
        moved = method.step(mech, carry, clock.dt)
        # The next free row is always written, and the count advances only if there was an event: no branch.
        records = jax.lax.dynamic_update_index_in_dim(
            log.records, method.event(moved).astype(log.records.dtype), log.count, 0
        )
        return moved, Log(records, log.count + (method.events(moved) - method.events(carry)))

    return jax.lax.while_loop(lambda s: method.time(s[0]) < until, step, (carry, log))


def _pack(seen: Observed, dtype: Any) -> Array:
    return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(seen)])


def begin(method: Method, system: Stated, state: State, clock: Clock) -> tuple[Carry, Observed]:
    """The carry at the start, and what is saved there."""
    mech = derive(system, value(state.q).shape, clock.t0)
    carry = method.init(mech, state, clock.dt)
    return carry, observe(method, mech, carry, clock.t0)


class Buffer(Module):
    """The buffer of one call: a row for each save, and a log where there are events."""

    rows: Any
    log: Log | None = None


def advance(
    method: Method,
    system: Stated,
    carry: Carry,
    clock: Clock,
    first: Count,
    steps: Count,
    blocks: Count,
    buffer: Buffer,
) -> tuple[Carry, Buffer]:
    """`blocks` blocks of `steps` steps from step `first` on; row i of `buffer` receives what is observed after block i.

    With integers known at compile time the loops can be differentiated backwards; with traced ones a single program
    serves every length of run.
    """
    mech = derive(system, _shape(method, system, carry))

    def block(i, moving):
        carry, buffer = moving
        carry, log = march(method, mech, carry, clock, first + i * steps, steps, buffer.log)
        seen = observe(method, mech, carry, clock.time(first + (i + 1) * steps))
        return carry, Buffer(
            jax.lax.dynamic_update_index_in_dim(buffer.rows, _pack(seen, buffer.rows.dtype), i, 0), log
        )

    log = None if buffer.log is None else Log(buffer.log.records, jnp.zeros_like(buffer.log.count))
    return jax.lax.fori_loop(0, blocks, block, (carry, Buffer(buffer.rows, log)))


def _shape(method: Method, system: Stated, carry: Carry) -> tuple[int, ...]:
    """The shape of q. How a mass of two or more axes is read depends on it; a number in its place changes no shape."""
    carry = carry.carry if isinstance(carry, Accompanied) else carry
    if isinstance(system, System) and not isinstance(system.mass, SparseMatrix):
        system = eqx.tree_at(lambda s: s.mass, system, jnp.ones(()))
    return value(jax.eval_shape(lambda c: method.output(derive(system), c).q, carry)).shape


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which part of a row holds which quantity."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]  # of the quantities; rows are of one type

    @classmethod
    def of(cls, seen: Observed, members: bool = False) -> Layout:
        leaves, treedef = jax.tree.flatten(seen)
        shapes = tuple(tuple(x.shape[1:] if members else x.shape) for x in leaves)
        return cls(treedef, shapes, tuple(np.dtype(x.dtype) for x in leaves))

    @property
    def width(self) -> int:
        return sum(int(np.prod(s)) for s in self.shapes)

    def place(self, name: str) -> tuple[int, int, tuple[int, ...]]:
        """The index in a row at which a quantity begins, its size, and its shape."""
        which = jax.tree.unflatten(self.treedef, range(len(self.shapes)))[name]
        sizes = [int(np.prod(s)) for s in self.shapes]
        return sum(sizes[:which]), sizes[which], self.shapes[which]

    def unpack(self, rows: Any) -> Observed:
        """Rows (..., width) as a tree of arrays (..., *shape), views where the array type allows."""
        ends = np.cumsum([int(np.prod(s)) for s in self.shapes])
        parts = [
            rows[..., e - int(np.prod(s)) : e].reshape((*rows.shape[:-1], *s))
            for e, s in zip(ends, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, parts)

    def unpack_typed(self, rows: np.ndarray) -> Observed:
        """As `unpack`, copied, and each quantity in the type that it had before it was packed."""
        types = jax.tree.unflatten(self.treedef, self.dtypes)
        return jax.tree.map(lambda x, dtype: np.array(x, dtype), self.unpack(rows), types)
