"""Energy-stepping: exact motion in a piecewise constant approximation of the potential (Gonzalez, Schmidt, Ortiz 2010).

V is replaced by V_h = V₀ + h ⌊(V − V₀)/h⌋, constant on terraces of height h. A body flies straight until its V
reaches the next terrace up or down; there, with n = ∇V, a = q̇·n and k = nᵀM⁻¹n, it climbs or descends by ΔV = ±h,

    p⁺ = p⁻ + λ n,   λ = −2ΔV / (a ± √(a² − 2ΔV k)),

or, where its kinetic energy normal to the edge does not suffice, a² ≤ 2ΔV k, it is reflected: λ = −2a/k.

Each flight and each event is the exact motion under V_h. So T + V_h, all momentum maps of symmetries of V, the
symplectic form and time reversal are conserved to rounding. The level of the terrace is an integer, so that errors of
event times do not enter the energy. The trajectory converges as h → 0, at a rate of about ½ over a fixed time.

Walls and hard spheres are given by functions c(q) that are nonnegative where the motion may go, contact of bodies by
the set of positions without collisions (gm.fem.ExactContact). They are steps of infinite height: the motion is
reflected where c(q) = 0.

Hypotheses: V is smooth along the motion, with two derivatives for the searches "interval" and "bounds", four for
"hermite". Discontinuities larger than a terrace stop the run.

Reference: Gonzalez, Schmidt, Ortiz, Int. J. Numer. Meth. Engng 82 (2010) 205, sections 2 to 5; its (18) sends the
particle back, its (27) lacks a sign.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.intervals import Interval, curvature
from ..numerics.taylor import derivatives
from ..system.checks import bounded, number, one_of, positive
from ..system.mechanics import Mechanics
from .base import State, Traits, register, setting
from .first_exit import (
    Found,
    HigherDerivatives,
    Jet,
    exit_time,
    longest_trial,
    one_proof,
    one_trial,
    predicted_exit,
    proved_advance,
    touch_tolerance,
)
from .flight import CONTACT, DOWN, EXPLAINED, IDLE, NO_EXIT_FOUND, REFLECTED, TIME_STOPPED, TRIALS, UP, WALL, Flight
from .protocols import CanFail, ChecksStart, EventDriven
from .walls import Impact, Inside, checked_inside

SEARCHES = ("hermite", "interval", "bounds")
ON_AN_EDGE = 1e-9  # fraction of a terrace: a start closer to an edge than this counts as on the edge
TURNING = 1e-6  # a start is a turning point if |cos| of the angle between v and M⁻¹∇V, in the metric M, is below this
FARTHEST = 1e8  # largest displacement in a trial in units of 1 + max |q|, where `reach` is not given


@register({"height": 0.05})
class EnergyStepping(EventDriven, CanFail, ChecksStart):
    """Energy-stepping with terraces of the given height. `dt` is the interval between saved points; the method finds
    its own times.

    height:  of the terraces, in units of the energy
    offset:  V at one of the edges between terraces. By default the start lies in the middle of a terrace, but at a
             turning point (v·∇V = 0) on an edge: from the middle, such a motion would reach the next edge after half a
             height, too slow to climb a whole one (a planet at its perihelion would be reflected for ever). Avoid an
             edge at the value of V at infinity, and at that of bodies without stress
    inside:  functions c(q), numbers or arrays, positive where the motion may go: it is reflected where one vanishes;
             or a set without collisions, such as gm.fem.ExactContact
    reach:   the largest displacement of a coordinate in one trial of the search. Needed only for potentials that are
             flat and then change abruptly; gradual changes are detected from the derivatives
    search:  how the first exit is found. "hermite": from derivatives of V at chosen times, with a safety margin.
             "interval": proved, from bounds of V'' along the ray, which geomint derives from the potential (several
             times slower). "bounds": proved, from bounds that the potential provides: a method `curvature(q, v, start,
             stop)`, with `params` as last argument if the system has them, of the function System(potential=...),
             which returns bounds (low, high) of d²/dt² V(q + t v) for t from start to stop

    `run.energy` is T + V_h, `run.level` counts the terraces, `run.events` lists the events.
    """

    failures: ClassVar[Mapping[int, str]] = {
        NO_EXIT_FOUND: "the first exit from the terrace was not found",
        TIME_STOPPED: "time no longer advances",
    }
    height: float = setting(positive, static=False)
    offset: float | None = setting(bounded(number, none=True), None, static=False)
    inside: tuple[Callable[[Array], Array], ...] = eqx.field(static=True, default=(), metadata={"found": True})
    reach: float | None = setting(bounded(positive, none=True), None, static=False)
    search: str = setting(one_of(*SEARCHES), "hermite")

    def __init__(
        self,
        height: float,
        offset: float | None = None,
        inside: Sequence[Callable] | Callable = (),
        reach: float | None = None,
        search: str = "hermite",
    ):
        self.search = search
        self.height, self.offset, self.reach = height, offset, reach
        self.inside = checked_inside(inside)

    @property
    def traits(self) -> Traits:
        return Traits(
            0, symplectic=True, symmetric=True, reversible=True, energy="exact", momentum_maps="all", event_driven=True
        )

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.inside

    @property
    def _inside(self) -> Inside:
        return Inside.of(self.inside)

    # --- the region of a flight -------------------------------------------------------------------------------------
    def _gauges(self, mech: Mechanics, flight: Flight, q: Array) -> Array:
        """V above the lower edge of the terrace and below the upper one, in units of h; and the walls."""
        above = (mech.potential(q) - flight.base) / self.height - flight.level
        return jnp.concatenate([jnp.stack([above, 1 - above]), self._inside.values(q)])

    def _jet(self, mech: Mechanics, flight: Flight, t: Array) -> Jet:
        """The jet of the gauges along the flight, at t. The search is not differentiated; `exit_time` supplies the
        derivative of an event's time."""
        return Jet(*self._derivatives(mech, flight, t, 2))

    def _derivatives(self, mech: Mechanics, flight: Flight, t: Array, order: int) -> list[Array]:
        """The gauges along the flight and their derivatives, at t."""
        q, v = value(flight.q), mech.velocity(value(flight.p))
        if flight.line is None:
            return jax.lax.stop_gradient(derivatives(lambda s: self._gauges(mech, flight, q + s * v), t, order))
        ends = flight.ends(t, order, self.height)
        walls = derivatives(lambda s: self._inside.values(q + s * v), t, order)
        return jax.lax.stop_gradient([jnp.concatenate(x) for x in zip(ends, walls, strict=True)])

    def _longest_by_speed(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """The longest trial that `reach`, that of the potential, or the size of q allow at this speed."""
        whose = self, mech.system.potential, self._inside.collisions
        farthest = FARTHEST * (1 + jnp.max(jnp.abs(q)))
        for reach in (getattr(x, "reach", None) for x in whose):
            farthest = farthest if reach is None else jnp.minimum(farthest, reach)
        return jnp.minimum(farthest / jnp.max(jnp.abs(mech.velocity(p))), 1e300)

    def init(self, mech: Mechanics, state: State, dt: Array) -> Flight:
        q, p = value(state.q), value(state.p)
        zero, start = jnp.zeros((), q.dtype), jax.lax.stop_gradient(mech.potential(q))
        base = self._base(mech, q, p, start)
        above = (start - base) / self.height
        level = jnp.floor(above + ON_AN_EDGE).astype(int)
        gauges = 2 + jax.eval_shape(self._inside.values, q).size
        what = self._impact(q, jnp.zeros_like(q), zero, zero).what
        longest = self._longest_by_speed(mech, q, p)
        flight = Flight.at_start(state.t, state.q, state.p, level, base, gauges, longest, what)
        flight = flight.with_line(mech)
        here, higher = self._jet_and_higher(mech, flight, zero)
        on_edge = jnp.abs(above - level) <= ON_AN_EDGE  # then the terrace is the one that the motion turns to
        rate = jnp.max(jnp.abs(mech.velocity(p))) / (1 + jnp.max(jnp.abs(q)))  # a smaller V'' is rounding
        falls = on_edge & ((here.first[0] < 0) | ((here.first[0] == 0) & (here.second[0] < -ON_AN_EDGE * rate**2)))
        lower = jnp.where(falls, 1.0, jnp.where(on_edge, 0.0, here.value[0]))
        return self._begin_flight(dataclasses.replace(flight, level=level - falls), here, higher, lower)

    def _base(self, mech: Mechanics, q: Array, p: Array, start: Array) -> Array:
        """V at level 0."""
        if self.offset is not None:
            return jnp.asarray(self.offset, q.dtype)
        n, v = jax.lax.stop_gradient((mech.gradient(q), mech.velocity(p)))
        turning = jnp.vdot(n, v) ** 2 <= TURNING**2 * jnp.vdot(n, mech.velocity(n)) * jnp.vdot(p, v)
        steepest = jnp.max(jnp.abs(n))  # where it is rounding, as in a body at rest, its direction has no meaning
        exactly = (steepest == 0) & (self._inside.collisions is None)  # an impact of a body at rest stays off edges
        turning &= exactly | (steepest * (1 + jnp.max(jnp.abs(q))) > ON_AN_EDGE * self.height)
        return jax.lax.stop_gradient(jnp.where(turning, start, start - 0.5 * self.height))

    def _jet_and_higher(self, mech: Mechanics, flight: Flight, t: Array) -> tuple[Jet, HigherDerivatives]:
        """The jet at t, and the higher derivatives there, which proved searches do not need (zeros)."""
        if self.search != "hermite":
            here = self._jet(mech, flight, t)
            return here, HigherDerivatives(jnp.zeros_like(here.value), jnp.zeros_like(here.value))
        w, first, second, third, fourth = self._derivatives(mech, flight, t, 4)
        return Jet(w, first, second), HigherDerivatives(third, fourth)

    def _begin_flight(self, flight: Flight, here: Jet, higher: HigherDerivatives, above: Array) -> Flight:
        """The beginning of a flight; `above` is V over the lower edge of the terrace, in units of h."""
        here = here._replace(value=jnp.concatenate([jnp.stack([above, 1 - above]), here.value[2:]]))
        limit, predicted = longest_trial(here, higher), predicted_exit(here, higher, touch_tolerance(here))
        trial = jnp.minimum(predicted, jnp.minimum(limit, flight.longest_by_speed))
        return dataclasses.replace(
            flight,
            a=jnp.zeros_like(flight.a),
            exit_gauge=jnp.full_like(flight.exit_gauge, -1),
            at_a=here,
            higher=higher,
            trial=trial,
            limit=limit,
            failed=jnp.zeros_like(flight.failed),
        )

    # --- an exit, and one trial of the search -----------------------------------------------------------------------
    def step(self, mech: Mechanics, carry: Flight, dt: Array) -> Flight:
        """The event where one is due, and one trial of the search for the next."""
        event = lambda f: self._event(mech, f)
        return self._search(mech, jax.lax.cond(carry.exit_gauge >= 0, event, lambda f: f, carry))

    def _search(self, mech: Mechanics, flight: Flight) -> Flight:
        b, at_b, found = self._trial(mech, flight)
        further = found.trial, flight.limit, flight.higher
        if self.search == "hermite":
            further = jax.lax.cond(found.moved, lambda t: self._next_trial(mech, flight, t), lambda t: further, b)
        trial, limit, higher = further
        # A trial too short for time to advance counts as failed.
        failed = jnp.where((found.moved & (b > flight.a)) | found.exit, 0, flight.failed + 1)
        searched = dataclasses.replace(
            flight,
            a=jnp.where(found.exit, b + found.at, jnp.where(found.moved, b, flight.a)),
            exit_gauge=jnp.where(found.exit, found.gauge, -1),
            at_a=jax.tree.map(lambda x, y: jnp.where(found.moved, x, y), at_b, flight.at_a),
            trial=jnp.minimum(trial, jnp.minimum(limit, flight.longest_by_speed)),
            higher=higher,
            limit=limit,
            failed=failed,
            counts=flight.counts._replace(jets=flight.counts.jets + 1),
            status=jnp.where(failed > TRIALS, NO_EXIT_FOUND, flight.status),
        )
        return self._up_to_contact(mech, flight.a, searched)

    def _up_to_contact(self, mech: Mechanics, start: Array, flight: Flight) -> Flight:
        """The flight, which is free of exits from `start` to its a, up to its first impact there, if there is one."""
        if self._inside.collisions is None:
            return flight
        along = value(flight.q), mech.velocity(value(flight.p)), start, flight.a
        impact = self._impact(*jax.lax.stop_gradient(along))
        hit = impact.time <= flight.a
        return dataclasses.replace(
            flight,
            a=jnp.where(hit, impact.time, flight.a),
            exit_gauge=jnp.where(hit, flight.at_a.value.size, flight.exit_gauge),
            what=jax.tree.map(lambda x, y: jnp.where(hit, x, y), impact.what, flight.what),
            failed=jnp.where(hit, 0, flight.failed),
        )

    def _impact(self, q: Array, v: Array, start: Array, stop: Array) -> Impact:
        """The first impact; without a set of positions to stay in, there is none."""
        sets = self._inside.collisions
        return Impact(jnp.asarray(jnp.inf), None) if sets is None else sets.first_impact(q, v, start, stop)

    def _next_trial(self, mech: Mechanics, flight: Flight, t: Array) -> tuple[Array, Array, HigherDerivatives]:
        """From t on: the length of the next trial, its upper limit, and the higher derivatives that determine both."""
        here, higher = self._jet_and_higher(mech, flight, t)
        return predicted_exit(here, higher, touch_tolerance(here)), longest_trial(here, higher), higher

    def _trial(self, mech: Mechanics, flight: Flight) -> tuple[Array, Jet, Found]:
        """Where it ended, the jet there, and what was found."""
        a, length, starts = flight.a, flight.trial, flight.a == 0
        tolerance = touch_tolerance(flight.at_a)
        if self.search == "hermite":
            at_b = self._jet(mech, flight, a + length)
            return a + length, at_b, one_trial(flight.at_a, flight.higher, at_b, length, tolerance, starts)
        low, high = self._curvature_bounds(mech, flight, a, a + length)
        advance = proved_advance(flight.at_a, low, length, tolerance)
        at_b = self._jet(mech, flight, a + advance)
        return a + advance, at_b, one_proof(flight.at_a, at_b, low, high, length, advance, tolerance, starts)

    def _curvature_bounds(self, mech: Mechanics, flight: Flight, start: Array, stop: Array) -> Interval:
        """Bounds of the second derivatives of the gauges."""
        q, v = jax.lax.stop_gradient((value(flight.q), mech.velocity(value(flight.p))))
        if self.search == "interval":
            return jax.lax.stop_gradient(curvature(lambda x: self._gauges(mech, flight, x), q, v, start, stop))
        params = () if mech.system.params is None else (mech.system.params,)
        low, high = (x / self.height for x in mech.system.potential.curvature(q, v, start, stop, *params))
        walls, none = self._inside, jnp.zeros(0)
        walls = curvature(walls.values, q, v, start, stop) if walls.conditions else Interval(none, none)
        lowest = jnp.concatenate([jnp.stack([low, -high]), walls.low])
        highest = jnp.concatenate([jnp.stack([high, -low]), walls.high])
        return jax.lax.stop_gradient(Interval(lowest, highest))

    def _event(self, mech: Mechanics, flight: Flight) -> Flight:
        """The event at the end of a flight, where a gauge vanishes: a step up, a step down or a reflection."""
        after, gauge = flight.a, flight.exit_gauge
        q, p = value(flight.q), value(flight.p)
        v, wall, contact = mech.velocity(p), gauge > 1, gauge == flight.at_a.value.size
        rising = gauge == 1
        exited = lambda t: self._exited(mech, flight, q + t * v)
        after = exit_time(after, *jax.jvp(exited, (after,), (jnp.ones_like(after),)))
        there = flight.q + after * v
        n = self._normal(mech, flight, value(there))
        a, k = jnp.vdot(n, v), jnp.vdot(n, mech.velocity(n))
        step = jnp.where(rising, self.height, -self.height)
        reflected = wall | (a * a <= 2 * step * k)
        under = jnp.where(reflected, 1.0, a * a - 2 * step * k)
        impulse = jnp.where(reflected, -2 * a / k, -2 * step / (a + jnp.sign(step) * jnp.sqrt(under)))
        moved = flight.p + impulse * n
        kind = jnp.where(contact, CONTACT, WALL)
        kind = jnp.where(wall, kind, jnp.where(reflected, REFLECTED, jnp.where(rising, UP, DOWN)))
        when = flight.t + after
        level = flight.level + jnp.where(kind == UP, 1, jnp.where(kind == DOWN, -1, 0))
        flight = dataclasses.replace(
            flight,
            t=when,
            q=there,
            p=moved,
            level=level,
            longest_by_speed=self._longest_by_speed(mech, value(there), value(moved)),
            counts=flight.counts.after(kind, when.value == flight.t.value),
            kind=kind,
            status=jnp.where(flight.counts.idle > IDLE + self._inside.at_once, TIME_STOPPED, flight.status),
        )
        flight = flight.with_line(mech)
        here, higher = self._jet_and_higher(mech, flight, jnp.zeros_like(after))
        # A climb ends on the lower edge of its terrace, a descent on the upper one, a reflection where it was.
        low = jnp.where(wall, here.value[0], jnp.where((kind == UP) | (reflected & ~rising), 0.0, 1.0))
        touched = jnp.where(jnp.arange(here.value.size) == jnp.where(wall, gauge, -1), 0.0, here.value)
        return self._begin_flight(flight, here._replace(value=touched), higher, low)

    def _exited(self, mech: Mechanics, flight: Flight, q: Array) -> Array:
        """The gauge that vanishes at the end of the flight, or the gap of what meets there, at q."""
        gauge = self._gauges(mech, flight, q)[flight.exit_gauge]
        sets, contact = self._inside.collisions, flight.at_a.value.size
        return gauge if sets is None else jnp.where(flight.exit_gauge == contact, sets.gap(q, flight.what), gauge)

    def _normal(self, mech: Mechanics, flight: Flight, q: Array) -> Array:
        """∇V, or the gradient of the wall or of the gap that was met."""
        if not self.inside:
            return mech.gradient(q)
        inside, gauge = self._inside, flight.exit_gauge
        walls, pull = jax.vjp(inside.values, q)
        n = pull((jnp.arange(walls.size) == gauge - 2).astype(q.dtype))[0]
        if inside.collisions is not None:
            n = n + jnp.where(gauge == 2 + walls.size, 1.0, 0.0) * jax.grad(inside.collisions.gap)(q, flight.what)
        return jnp.where(gauge > 1, n, mech.gradient(q))

    # --- what is shown ----------------------------------------------------------------------------------------------
    def time(self, carry: Flight) -> Array:
        return jnp.where(carry.status == 0, carry.t.value + (carry.t.lost + carry.a), jnp.inf)

    def between(self, mech: Mechanics, carry: Flight, t: Array) -> State:
        q = value(carry.q) + ((t - carry.t.value) - carry.t.lost) * mech.velocity(value(carry.p))
        p = value(carry.p)
        terrace = carry.base + self.height * carry.level
        energies = {"energy": mech.kinetic(p) + terrace, "smooth_energy": mech.energy(q, p)}
        return State(q, p, t, extras=energies | {"level": carry.level})

    def output(self, mech: Mechanics, carry: Flight) -> State:
        return State(carry.q, carry.p)

    def status(self, carry: Flight) -> Array:
        return carry.status

    def event(self, carry: Flight) -> Array:
        return jnp.stack([carry.t.value, carry.level.astype(carry.a.dtype), carry.kind.astype(carry.a.dtype)])

    def events(self, carry: Flight) -> Array:
        return carry.counts.events

    def tally(self, carry: Flight) -> dict[str, Array]:
        return carry.counts._asdict()

    # --- before and after -------------------------------------------------------------------------------------------
    def with_same_choices(self, carry: Flight) -> EnergyStepping:
        return dataclasses.replace(self, offset=carry.base)

    def check(self, system: Any) -> None:
        super().check(system)
        stated = system.fast is None and callable(getattr(system.potential, "curvature", None))
        if self.search == "bounds" and not stated:
            raise InputError(
                "EnergyStepping(search='bounds') needs a potential with a method `curvature(q, v, start, stop)`, and a "
                "system without a fast part. search='interval' derives the bounds itself."
            )

    def check_start(self, system: Any, q: Any, p: Any, members: bool = False) -> None:
        """That the start moves, and inside the walls; and that ranges can be derived where they are needed."""
        q, p = (np.asarray(x) if members else np.asarray(x)[None] for x in (q, p))
        whose = lambda bad: f" of member {int(np.argmax(bad))}" if members else ""
        still = ~np.any(p.reshape(len(p), -1), axis=1)
        if np.any(still):
            raise InputError(
                f"EnergyStepping: v0 = 0{whose(still)}. On a terrace no force acts: a body at rest stays at rest "
                "for ever. Give it a velocity, however small."
            )
        self._inside.check_start(q, whose)
        if self.search != "hermite":
            mech = Mechanics(system, q.shape[1:])
            if lack := self._inside.without_ranges(mech, q[0], p[0], self.search == "interval"):
                raise InputError(f"EnergyStepping(search={self.search!r}): {lack} Use search='hermite'.")

    def warn_after_run(self, carry: Flight) -> None:
        if trapped := carry.counts.trapped(float(np.ravel(self.height)[0])):
            warnings.warn(trapped, stacklevel=5)

    def explain(self, status: int, mech: Mechanics, q: Any, dt: float) -> str:
        return EXPLAINED[status]
