"""certify: the structure of a method on a system, measured, each number beside the method's claim."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import GeomintError, InputError, MeasurementError, RunStopped
from ..methods import Method, Traits, as_method
from ..models import Model
from ..numerics.keywords import checked_keywords
from ..run import Trajectory
from ..run.defaults import of_model
from ..run.inputs import phase
from ..run.instability import Start, tried_steps
from ..system.checks import positive, whole
from ..system.constraints import measured_at
from ..system.system import Stated, System, checked_system
from . import measure
from .measure import Point

# Round-off of one step, its derivative and a few steps; a broken property at a large step lies far above.
ROUND_OFF = 1e-11
# Multiples of the step at which an order is measured: longer ones where errors are at round-off, then shorter ones
# where the longer ones do not resolve the motion, or the reference can't be computed for so long.
FACTORS = (1, 2, 4, 1 / 4, 1 / 16, 1 / 64)
ENGINE = "auto"  # of the long run and of those that measure the order
# A motion is correct where its error against the reference is below this. References are accurate to 1e-9 or better.
ACCURATE = 1e-9


@dataclasses.dataclass(frozen=True)
class Row:
    """One property: the number measured, what it says, what the method claims, and whether the two agree."""

    name: str
    measured: float
    holds: bool | None
    claim: str
    agrees: bool | None
    note: str = ""

    @property
    def verdict(self) -> str:
        said = "" if self.agrees is None else ("as claimed" if self.agrees else "NOT AS CLAIMED")
        return f"{said} ({self.note})" if self.note else said


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Order, symplecticity, symmetry, reversibility, momentum maps, energy and constraints, as measured, of a method
    on a system."""

    method: str
    system: str
    dt: float
    large_dt: float
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing measured contradicts a claim."""
        return all(row.agrees is not False for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_dict(self) -> dict[str, Any]:
        rows = {
            r.name: {"measured": r.measured, "holds": r.holds, "claim": r.claim, "agrees": r.agrees} for r in self.rows
        }
        return {
            "method": self.method,
            "system": self.system,
            "dt": self.dt,
            "large_dt": self.large_dt,
            "ok": self.ok,
            "properties": rows,
        }

    def __str__(self) -> str:
        head = f"{self.method} on {self.system}, dt = {self.dt:g} (one-step properties at {self.large_dt:g})"
        holds = {True: "yes", False: "no", None: ""}
        table = [("property", "measured", "holds", "claimed", "")]
        table += [
            (r.name, "–" if np.isnan(r.measured) else f"{r.measured:.3g}", holds[r.holds], r.claim, r.verdict)
            for r in self.rows
        ]
        widths = [max(len(line[i]) for line in table) for i in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([head, lines[0], "-" * len(lines[0]), *lines[1:]])

    __repr__ = __str__


def _exact(name: str, measured: float, claimed: bool) -> Row:
    holds = bool(measured < ROUND_OFF)
    return Row(name, measured, holds, "yes" if claimed else "no", holds or not claimed)


def _base_of(method: Method) -> str:
    base = getattr(method, "base", None)
    return f", {base.name}" if isinstance(base, Method) else ""


@checked_keywords
def certify(
    system: Stated | Model,
    method: Method | None = None,
    q0: Any = None,
    v0: Any = None,
    *,
    p0: Any = None,
    dt: float | None = None,
    steps: int = 20_000,
) -> Certificate:
    """Measure the structure of a method on a system near (q0, v0), with steps around dt.

    A model in place of the system has defaults for all other arguments: gm.certify(gm.models.kepler()).

    order               exponent of the error against an independent reference, from dt down, extrapolated to h → 0; a
                        method that converges to another motion, or to none, is not as claimed
    symplecticity       defect of the derivative of one large step (on the constraint manifold's tangent bundle); with a
                        damping D = γM instead "conformal symplecticity", the defect of JᵀΩJ = exp(−γh)Ω
    volume              |det J − 1|, with a magnetic field
    symmetry            Φ(−h) after Φ(h);  reversibility: the same by flipping the momenta
    energy drift        per unit time over `steps` steps; "holds" means that it is smaller than the oscillation
    energy balance      of driven systems, instead: the order in dt of the error of energy − work
    momentum maps       of the stated symmetries, over the same run; constraint residuals likewise

    A property that a method does not claim may still hold on a system, for example with a quadratic potential. A dt for
    which the method is unstable on the system raises a MeasurementError that names a stable one. A start at rest in an
    equilibrium, where nothing moves, raises a MeasurementError too.
    """
    if jnp.result_type(float) != jnp.float64:
        raise GeomintError("certify needs float64: round-off in float32 hides what it measures. Unset JAX_ENABLE_X64.")
    call = of_model("certify", system, q0, v0, p0, method, dt, not_needed=("t_end",))
    checked_system(call.system, callee="certify")
    method = as_method(call.method)
    dt, steps = float(positive(call.dt, "dt", "certify")), whole(steps, "steps", "certify", least=1, most=10**9)
    if method.traits.stochastic:
        raise InputError(
            f"certify measures the structure of a deterministic motion, and {method.name} draws random numbers; "
            f"certify its base instead{_base_of(method)}."
        )
    method.check(call.system)
    start = Point(*phase(call.system, call.q0, call.v0, p0))
    stated = measured_at(call.system, start.q)
    if not call.system.driven and measure.is_equilibrium(stated, start):
        what = "q0 is an equilibrium and the start is at rest: nothing moves, so nothing can be measured"
        raise MeasurementError(f"{what}. Start elsewhere, or with a velocity.")
    rows, large = _measured(method, stated, start, dt, steps)
    return Certificate(method.name, stated.origin or "a system", dt, large, tuple(rows))


def _measured(method: Method, stated: Stated, start: Point, dt: float, steps: int) -> tuple[list[Row], float]:
    """The rows of the certificate, and the length of the large step of which single steps are measured."""
    traits, forced = method.traits_for(stated), stated.driven
    long = _long_run(method, stated, start, dt, steps)
    # A few steps away from the start: initial data are often too symmetric to show anything.
    at = start
    if not stated.takes("constraint", "t"):  # otherwise the point would be on the constraint of another time
        at = Point(*(np.asarray(x) for x in measure.flow(method, stated, start, dt, 3)))
    large = measure.large_step(method, stated, at, dt)
    rows = []
    if not traits.event_driven:  # event-driven methods have no step
        first = large / 4 if traits.steps > 2 else large  # a multistep method is measured over four times as many steps
        rows += _order(method, stated, start, first, traits)
    rows.append(_symplecticity(method, stated, at, large))
    if getattr(stated, "magnetic_field", None) is not None:
        rows.append(_exact("volume", measure.volume(method, stated, at, large), traits.volume))
    rows.append(_exact("symmetry", measure.symmetry(method, stated, at, large), traits.symmetric))
    rows.append(_exact("reversibility", measure.reversibility(method, stated, at, large), traits.reversible))
    rows += _balance(method, stated, start, dt) if forced else _energy(long, traits)
    for name, symmetry in stated.named_symmetries.items():
        claimed = traits.momentum_maps == "all" or (traits.momentum_maps == "linear" and symmetry.degree == 0)
        rows.append(_exact(f"momentum map {name}", long.momentum[name], claimed))
    if stated.constraint is not None:
        rows.append(_exact("constraint g(q)", long.constraint, traits.constrained))
        rows.append(_exact("constraint G v", long.tangency, traits.tangent))
    return rows, large


def _symplecticity(method: Method, system: Stated, at: Point, large: float) -> Row:
    """Conformal symplecticity where the damping is D = γM and no other force acts."""
    traits = method.traits_for(system)
    if isinstance(system, System) and system.uniform_damping and system.force is None:
        defect = measure.symplecticity(method, system, at, large, float(system.damping_rate))
        return _exact("conformal symplecticity", defect, traits.conformal)
    return _exact("symplecticity", measure.symplecticity(method, system, at, large), traits.symplectic)


def _long_run(method: Method, system: Stated, start: Point, dt: float, steps: int) -> measure.LongRun:
    """A run of many steps. Where dt is too long for the system, nothing can be measured: the error names a dt that is
    not. Where the energy is not kept at any dt, that is a property of the method, and the certificate reports it."""
    try:
        long = measure.long_run(method, system, start, dt, steps, engine=ENGINE)
    except RunStopped as stopped:
        run = stopped.run
        starts = [Start(system, start.q, start.p)]
        tried = tried_steps(run, starts, max(1, len(run) - 1)) if isinstance(run, Trajectory) else None
        stable = tried is not None and tried.dt is not None
        what = f"{method.name} stops there at step {stopped.step}, t = {stopped.time:g}." if stable else stopped.reason
        raise MeasurementError(f"dt = {dt:g} can't be certified: {what} {_advised(tried)}") from stopped
    if long.beyond is not None:
        tried = tried_steps(long.run, [Start(system, start.q, start.p)], 1)
        if tried.dt is not None:
            error, scale = float(long.beyond.largest[0]), max(float(long.beyond.scale[0]), tried.scale)
            what = f"{method.name} has an energy error of {error:.3g} there, and the motion a scale of {scale:.3g}."
            if error > scale:
                raise MeasurementError(f"dt = {dt:g} can't be certified: {what} {_advised(tried)}")
    return long


def _advised(tried: Any) -> str:
    if tried is None or tried.dt is None:
        return "Take a smaller dt, or an implicit method."
    return f"Take dt = {tried.dt:.12g} or less."


def _order(method: Method, system: Stated, start: Point, first: float, traits: Traits) -> list[Row]:
    """The order, and the smallest error against the reference. Without a slope the errors must be at round-off."""
    closest, unknown = np.inf, None
    for factor in FACTORS:
        if unknown is not None and factor > 1:
            continue
        try:
            found = measure.order(method, system, start, factor * first, engine=ENGINE)
        except MeasurementError as error:
            unknown = error
            continue
        closest = min(closest, found.closest)
        if not np.isnan(found.order):
            agrees = bool(found.order > traits.order - 0.25)
            order = Row("order", found.order, None, str(traits.order), agrees)
            return [order, Row("smallest error", closest, None, "", None)]
    if unknown is not None and not np.isfinite(closest):
        raise unknown
    exact = closest < ACCURATE
    note = "exact to rounding here" if exact else "no step size reproduces the motion"
    order = Row("order", np.nan, None, str(traits.order), bool(exact), note)
    return [order, Row("smallest error", closest, None, "", None)]


def _energy(long: measure.LongRun, traits: Traits) -> list[Row]:
    bounded = bool(long.excess < 1)
    drift = Row("energy drift", long.drift, bounded, traits.energy or "none", bounded or traits.energy is None)
    return [drift, Row("energy band", long.band, None, "", None)]


def _balance(method: Method, system: Stated, start: Point, dt: float) -> list[Row]:
    """Energy − work: its error falls with the order of the method, as far as the quadrature of the work shows it."""
    found, claim = measure.balance(method, system, start, dt), min(method.traits.order, 8)
    exact = bool(np.isnan(found.order))
    agrees, note = exact or bool(found.order > claim - 0.5), "exact to rounding here" * exact
    row = Row("energy balance", found.order, None, f"order {claim}", agrees, note)
    return [row, Row("balance error", found.error, None, "", None)]
