"""One warning for a run whose energy error exceeds the scale of its energy, with a step that works.

energy_scale.py judges the run. This module looks for a shorter step by trial runs, and writes the warning.
"""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import GeomintError, InstabilityWarning, outside
from ..system.system import System
from .energy_scale import (
    READ,
    ROUNDING,
    Excess,
    Extremes,
    Kinetic,
    SavedPoints,
    calm_on_device,
    excess,
    first_beyond,
    trusted,
    whole_scale,
)
from .inputs import explained
from .reducing_engine import Reducing
from .trajectory import Trajectory

FOLLOWED = 100  # least number of steps of a trial run: a shorter one says little about the scale of the energy
HALVINGS = 24  # of the step, in the search for one that works
TRIAL_NUMBERS, TRIAL_STEPS = 10**6, (1000, 100_000)  # coordinates × steps of a trial run, and the bounds of its steps

_watched = contextvars.ContextVar("watched", default=True)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """No warnings of instability: for runs that are expected to be unstable, or that the caller judges itself."""
    token = _watched.set(False)
    try:
        yield
    finally:
        _watched.reset(token)


class Start(NamedTuple):
    """The start of a trial run."""

    system: Any
    q: np.ndarray
    p: np.ndarray


class Suspect(NamedTuple):
    """A member whose energy error seems to exceed the scale of its energy."""

    saved: SavedPoints
    member: int  # its place in `saved`
    whose: str  # words for the message; empty for one trajectory
    scale: float
    largest: float  # energy error


def warn_of_instability(run: Trajectory, extremes: Extremes) -> None:
    """Warn once where the energy error of a run exceeds the scale of its energy."""
    if not _watched.get() or _is_random(run):
        return
    if isinstance(extremes.engine, Reducing):
        _warn_of_reduced(run, extremes.engine)
    elif "energy" in run.saved and not calm_on_device(run, extremes):
        _warn_of_members(run, extremes)


def _warn_of_members(run: Trajectory, extremes: Extremes) -> None:
    saved, number = SavedPoints(run), getattr(extremes.engine, "first", 0)  # number: that of the first member
    start = np.atleast_1d(saved.conserved(slice(None), 0))
    found = excess(run, extremes.largest(start))
    if found is None:
        return
    for k, member in enumerate(found.members[:READ]):
        count = len(found.members) - k
        whose = f" of {count} of {len(start)} members, first of member {number + member}," if run.members else ""
        suspect = Suspect(saved, int(member), whose, float(found.scale[k]), float(found.largest[k]))
        if _warned(run, suspect, _starts(saved, found, int(member))):
            return


def _starts(saved: SavedPoints, found: Excess, member: int) -> list[Start]:
    """The starts of trial runs: that of the member, and that of the member with the largest error."""
    worst = int(found.members[np.argmax(found.largest)])
    chosen = [member] if worst == member else [member, worst]
    return [Start(saved.system_of(m), saved.column("q", m, 0), saved.column("p", m, 0)) for m in chosen]


def _is_random(run: Trajectory) -> bool:
    """Whether the method draws random numbers, which change the energy: it claims nothing about the energy, and its
    carry has a key."""
    if run.method.traits.stochastic:
        return True
    if run.method.traits.energy is not None or run.checkpoint is None:
        return False
    return any(getattr(x, "dtype", None) == np.uint32 for x in jax.tree.leaves(run.checkpoint.carry))


def _suspects(engine: Reducing) -> np.ndarray:
    """Members of a reduced ensemble whose energy error is too large at the last saved point; other rows are not kept.

    They are compared first with the kinetic energy at the start, which needs no states from the device.
    """
    start, energy = engine.first_energies, engine.last_row("energy")
    if energy is None or not isinstance(engine.system, System):
        return np.zeros(0, int)
    kinetic, error = Kinetic(engine.system), np.abs(energy - start)
    floor = ROUNDING * np.finfo(start.dtype).eps * np.abs(start)
    kinetic_start = kinetic(np.asarray(engine.states[1]))
    suspects = np.flatnonzero(np.isfinite(error) & (error > np.fmax(floor, kinetic_start)))
    if not len(suspects) or (momenta := engine.last_row("p")) is None:
        return suspects
    allowed = start - (energy - kinetic(momenta))
    return suspects[(error > trusted(allowed, error))[suspects]]


def _warn_of_reduced(run: Trajectory, engine: Reducing) -> None:
    """A suspect of a reduced ensemble is run again by itself, to see its energy at all saved points."""
    if engine.method.traits.event_driven:
        return
    suspects = _suspects(engine)
    for k, member in enumerate(suspects[:READ]):
        q, p = (np.asarray(x[member]) for x in engine.states)
        system = engine.system.member(int(member)) if engine.spread == "states and params" else engine.system
        start = Start(system, q, p)
        try:
            alone = _trial(run, start, 1, run.grid.saves - 1)
        except GeomintError:  # it stops: run.failed_at has members that fail
            continue
        found = excess(alone)
        whose = f" of {len(suspects) - k} of {engine.members} members, first of member {engine.first + member},"
        if found is not None:
            suspect = Suspect(SavedPoints(alone), 0, whose, float(found.scale[0]), float(found.largest[0]))
            if _warned(run, suspect, [start]):
                return


def _warned(run: Trajectory, suspect: Suspect, starts: list[Start]) -> bool:
    """Warn of a suspect, unless trial runs show a larger scale of the energy: a run with a shorter step shows what
    energy the start releases, even where no state of the suspect can be trusted."""
    grid, (saved, member, whose, scale, largest) = run.grid, suspect
    index, _ = first_beyond(saved, member, scale)
    try:
        tried = tried_steps(run, starts, index)
    except KeyboardInterrupt:  # the run itself is complete
        tried = Tried("Take a shorter step.", 0.0, None)
    scale = max(scale, tried.scale)
    if largest <= scale:
        return False
    index, error = first_beyond(saved, member, scale)
    step, seen = index * grid.save_every, max(whole_scale(saved, member), tried.scale)
    found = explained(starts[0].system, starts[0].q, grid.t0)
    close = f" At the start, {found}." if found else ""
    known = f", {seen:.3g}" if seen > 0 else ""  # 0 where a start at rest has no save before the end
    warnings.warn(
        f"{run.method.name} with dt = {grid.dt:g}: the energy error{whose} exceeds the scale of the energy{known}: "
        f"it is {error:.3g} at step {step}, t = {grid.t0 + step * grid.dt:g}, and at most {largest:.3g}. These results "
        f"do not follow the motion. {tried.advice}{close}",
        InstabilityWarning,
        stacklevel=outside(),
    )
    return True


class Tried(NamedTuple):
    """What trial runs with shorter steps showed: the advice, the scale of the energy of the first start, and a step
    that keeps the energy; None where none was found."""

    advice: str
    scale: float
    dt: float | None


def tried_steps(run: Trajectory, starts: list[Start], index: int) -> Tried:
    """Halve the step until runs from these starts keep the energy, at least up to twice the time of the saved point
    `index`, and for at least FOLLOWED steps of the run."""
    grid = run.grid
    for k in range(1, HALVINGS + 1):
        room = _room(run, starts[0].q.size, 2**k)
        if room < min(grid.saves - 1, 2 * index):
            down = f"Steps down to dt = {grid.dt / 2 ** (k - 1):.3g} do not keep it (shorter ones were not tried)"
            return Tried(f"{down}: take an implicit method, or see whether the force is singular.", 0.0, None)
        scales = [_kept_scale(run, start, 2**k, room) for start in starts]
        if None not in scales:
            upto = f" (tried up to t = {grid.t0 + room * grid.save_every * grid.dt:g})" if room < grid.saves - 1 else ""
            return Tried(f"dt = {grid.dt / 2**k:.12g} keeps the energy{upto}.", scales[0] or 0.0, grid.dt / 2**k)
    down = f"No step down to dt = {grid.dt / 2**HALVINGS:.2g} keeps it"
    return Tried(f"{down}: the force may be singular, or not the gradient of the potential.", 0.0, None)


def _room(run: Trajectory, size: int, factor: int) -> int:
    """Number of saves of a trial whose steps are shorter by a factor: that of the run, within the bounds of a trial."""
    steps, every = int(np.clip(TRIAL_NUMBERS // max(1, size), *TRIAL_STEPS)), run.grid.save_every
    return min(max(run.grid.saves - 1, -(-FOLLOWED // every)), steps // (every * factor))


def _kept_scale(run: Trajectory, start: Start, factor: int, saves: int) -> float | None:
    """The scale of the energy of a trial run whose energy error stays below half of it; None where it does not."""
    try:
        trial = _trial(run, start, factor, saves)
    except Exception:  # of any kind: an error in a trial must not lose the user's run
        return None
    return whole_scale(SavedPoints(trial), 0) if excess(trial, share=0.5) is None else None


def _trial(run: Trajectory, start: Start, factor: int, saves: int) -> Trajectory:
    """The run again from one start, with steps that are shorter by a factor, up to the time of so many saves."""
    from .simulate import simulate  # which imports this module

    grid, (system, q, p) = run.grid, start
    t_end = grid.t0 + saves * grid.save_every * grid.dt
    engine = "auto" if run.members else run.engine.split()[0]  # that of the run, whose program is compiled already
    times: dict[str, Any] = {
        "dt": grid.dt / factor,
        "t0": grid.t0,
        "t_end": t_end,
        "save_every": grid.save_every * factor,
    }
    with unwatched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simulate(system, q, p0=p, method=run.method, compensated=run.compensated, engine=engine, **times)
