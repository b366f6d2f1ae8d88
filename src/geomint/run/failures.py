"""The errors that end a run early: what happened, at which step and time, why, and what to try."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..engines.grid import Grid
from ..engines.tiles import Engine
from ..errors import Interrupted, RunStopped
from ..methods import protocols
from ..system.lagrangian import LagrangianMechanics, derive
from ..system.mechanics import Mechanics
from ..system.system import System
from .inputs import explained
from .loop import Failure
from .trajectory import Trajectory

LARGE = 1e50  # states below this are not on their way to infinity
THROWN_APART = 1e3  # growth of the extent in one step beyond which positions explain nothing


def interrupted(times: Grid, run: Trajectory, step: int) -> Interrupted:
    """The error after Ctrl-C."""
    resumable = f", and gm.resume({str(run.path)!r}, ...) continues it." if run.path else "."
    return Interrupted(
        f"interrupted at step {step}, t = {times.t0 + step * times.dt:g}.",
        "What was saved is in the exception's .run" + resumable,
        run=run,
    )


def run_stopped(engine: Engine, times: Grid, run: Trajectory, failure: Failure) -> RunStopped:
    """The error of a run that failed."""
    when = f"at step {failure.step}, t = {times.t0 + failure.step * times.dt:.12g}"
    good, bad = engine.layout.unpack(failure.good), engine.layout.unpack(failure.bad)
    name, said = engine.method.name, Said("", "")
    if engine.spread == "one":
        said = _explained(engine.system, good, bad, times.t0 + failure.step * times.dt, times.dt)
    if failure.status:
        what = protocols.failures(engine.method).get(failure.status, f"status {failure.status}")
        more = ""
        if engine.spread == "one":
            at = times.t0 + failure.step * times.dt
            q = bad["q"] if np.all(np.isfinite(bad["q"])) else good["q"]
            more = protocols.explain(engine.method, failure.status, derive(engine.system, q.shape, at), q, times.dt)
        message = f"{name} stopped {when}: {what}{more} (dt = {times.dt:g})."
        message += said.before + said.there
    else:
        why = said.there.strip() or _why_not_finite(engine, times, failure.step, good, bad)
        message = f"{name} turned non-finite {when}. {why}{said.before}"
    return RunStopped(
        message,
        kept_in(run),
        run=run,
        step=failure.step,
        time=times.t0 + failure.step * times.dt,
        q=good.get("q"),
        p=good.get("p"),
    )


class Said(NamedTuple):
    """Sentences of potentials that can tell why a run failed, "" where they can't."""

    before: str  # of the last good state, such as particles that are too close
    there: str  # of the first bad one, such as inverted elements; where it is not finite, of the straight way to it


def _explained(system: Any, good: dict[str, Any], bad: dict[str, Any], t: float, dt: float) -> Said:
    if not isinstance(system, System):
        return Said("", "")
    if found := explained(system, good["q"], t - dt):
        return Said(f" Before it, {found}.", "")
    ways = [bad["q"]]
    if not np.all(np.isfinite(bad["q"])):
        v = np.asarray(Mechanics(system, good["q"].shape).velocity(jnp.asarray(good["p"])))
        ways = [good["q"] + part * dt * v for part in (0.5, 1.0)]
    # Where all has been thrown apart, any two particles that were left behind seem to be close.
    ways = [q for q in ways if np.ptp(q) < THROWN_APART * np.ptp(good["q"])]
    found = next(filter(None, (explained(system, q, t) for q in ways)), "")
    return Said("", f" There, {found}. Try a smaller dt than {dt:g}." if found else "")


def kept_in(run: Trajectory) -> str:
    """Where the saved points of a run that stopped are."""
    kept = f"The run up to t = {float(run.t[-1]):g} ({len(run.t)} saved points) is kept in the exception's .run"
    return kept + (f" and in {run.path}." if run.path else ".")


def _why_not_finite(engine: Engine, times: Grid, step: int, good: dict[str, Any], bad: dict[str, Any]) -> str:
    """The cause, from the last good state and the first bad one: a singular force, an energy without a value, or a step
    beyond the stability limit."""
    if engine.spread == "one" and all(np.all(np.abs(bad[name]) < LARGE) for name in ("q", "p")):
        mech = derive(engine.system, bad["q"].shape, times.t0 + step * times.dt)
        if isinstance(mech, LagrangianMechanics) and not np.all(np.isfinite(mech.velocity_at(bad["q"], bad["p"]))):
            return (
                "No velocity v with ∂L/∂v(q, v) = p was found there, although q and p are finite: "
                "p has left the range of ∂L/∂v, or ∂²L/∂v² is singular. Try a smaller dt."
            )
        return (
            "The energy there is not finite, although q and p are: the motion has left the region where potential has "
            "a value (log of a negative number)."
        )
    before = times.t0 + (step - 1) * times.dt
    mech = derive(engine.system, good["q"].shape, before) if engine.spread == "one" else None
    if isinstance(mech, Mechanics) and mech.system.auxiliary is not None:
        reason = mech.system.auxiliary.explain(good["q"], times.dt * mech.velocity(jnp.asarray(good["p"])))
        if reason:
            return reason
    if isinstance(mech, Mechanics) and not np.all(np.isfinite(mech.force(jnp.asarray(good["q"])))):
        return (
            "The force at the last good state is not finite: the gradient of potential has a singularity there (sqrt "
            "or a norm at zero, a collision)."
        )
    name = None if mech is None else _without_value(mech, jnp.asarray(good["q"]), jnp.asarray(good["p"]), times.dt)
    if name is not None:
        return f"{name} is not finite at the last good state, at the time of that state or within this step from it."
    return (
        f"The state grew beyond all bounds: the step dt = {times.dt:g} is probably too large for the fastest motion "
        f"(try dt = {times.dt / 4:g}, or an implicit method), or the potential has no lower bound."
    )


def _without_value(mech: Any, q: Any, p: Any, dt: float) -> str | None:
    """The force or field that is not finite at a state, at the time of the state or in the step from it."""
    stated = {"force": lambda m: m.outer_force(q, m.velocity_at(q, p)), "magnetic_field": lambda m: m.magnetic_field(q)}
    for name, function in stated.items():
        if getattr(mech.system, name, None) is not None:
            for share in (0.0, 0.5, 1.0):
                if not np.all(np.isfinite(function(mech.after(share * dt)))):
                    return name
    return None
