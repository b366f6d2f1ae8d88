"""Runs whose energy error exceeds the scale of the energy: one warning, with a step that works.

What conservation allows. With A = H − W, the energy less the work of forces (W = 0 without them), A(t) = A(0) in the
exact motion, and the kinetic energy at time t is  A(0) + W(t) − V(q(t)).  The scale of the energy is the largest value
of this over the saved points at which |A − A(0)| is at most half of it. A constant added to V changes nothing; a state
that has left the motion does not count, however large its energy is; and a start at rest is measured by the energy it
releases.

Cost. While a run goes on, the smallest and the largest A of every member are kept, from rows that are in the cache
anyway; they give its largest energy error |A − A(0)|. At the end this error is compared with the largest kinetic energy
that conservation allows at a few saved points, which is at most the scale: an error below it needs no warning. Only for
members whose error is larger are all saved points read, a few thousand at a time.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.xla import spread_over
from ..errors import GeomintError, InstabilityWarning
from ..numerics.compilation import jit
from ..system.lagrangian import derive
from ..system.system import Stated, System, mass_is_matrix
from .reducing import Reducing
from .trajectory import Trajectory

SAMPLE = 257  # saved points that are looked at first
ROWS = 4096  # saved points that are read at a time
READ = 16  # members whose saved points are all read
ROUNDING = 1e4  # an energy error below so many units in the last place of the energy is none
FOLLOWED = 100  # steps for which a motion is followed at least, to see the scale of its energy
HALVINGS = 24  # of the step, in the search for one that works
TRIAL_NUMBERS, TRIAL_STEPS = 10**6, (1000, 100_000)  # coordinates × steps of a trial run, and the bounds of its steps

_watched = contextvars.ContextVar("watched", default=True)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """For runs that are expected to be unstable, or are judged by who makes them: no warning."""
    token = _watched.set(False)
    try:
        yield
    finally:
        _watched.reset(token)


class Extremes:
    """The smallest and the largest A = H − W of each member, at the saved points of a run that goes on."""

    def __init__(self, runner: Any):
        self.runner, self.low, self.high = runner, np.inf, -np.inf
        self.reduced = isinstance(runner, Reducing)  # rows of members are not here

    def look(self, rows: np.ndarray) -> None:
        """At the next saved rows, (n, width) or (members, n, width)."""
        if not self.reduced:
            a = _conserved(self.runner.layout.unpack(rows))
            self.low, self.high = np.fmin(self.low, np.fmin.reduce(a, -1)), np.fmax(self.high, np.fmax.reduce(a, -1))

    def largest(self, start: Any) -> np.ndarray:
        """max |A − A(0)| of each member, given A(0); a run without rows has none."""
        return np.maximum(np.maximum(self.high - start, start - self.low), 0.0)


def _conserved(seen: dict[str, Any]) -> Any:
    """A = H − W."""
    return seen["energy"] - seen["work"] if "work" in seen else seen["energy"]


class _Kinetic:
    """½ pᵀM⁻¹p of rows of p, on the host."""

    def __init__(self, system: System):
        self.mass = np.asarray(system.mass)
        self.inverse: Any = None

    def __call__(self, p: np.ndarray) -> np.ndarray:
        p = np.asarray(p)
        if not mass_is_matrix(self.mass.shape, p.shape[1:]):
            return 0.5 * np.sum((p * p / self.mass).reshape(len(p), -1), axis=1)
        self.inverse = np.linalg.inv(self.mass) if self.inverse is None else self.inverse
        flat = p.reshape(len(p), -1)
        return 0.5 * np.sum(flat * (flat @ self.inverse), axis=1)


def _potential(system: Stated, q: Array) -> Array:
    """V = −L(q, 0)."""
    return -derive(system, q.shape).lagrangian(q, jnp.zeros_like(q))


@functools.partial(jit, static_argnums=0)
def _potentials(spread: str, system: Stated, q: Array) -> Array:
    """V of each row of q. spread: whose params they have, as in `spread_over`."""
    return spread_over(_potential, spread, system, q)


@jit
def _sizes(system: Stated, q: Array, p: Array, directions: Array) -> Array:
    """|∂H·x| + |xᵀ∂²H x| in each direction x of q."""

    def along(x: Array) -> Array:
        energy = lambda s: derive(system, q.shape).energy(q + s * x, p)
        slope = lambda s: jax.jvp(energy, (s,), (jnp.ones_like(s),))[1]
        first, second = jax.jvp(slope, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
        return jnp.abs(first) + jnp.abs(second)

    return jax.vmap(along)(directions)


# --- what a finished run shows ---
class Excess(NamedTuple):
    """Members whose energy error exceeds the scale of the energy, by their places in the run."""

    members: np.ndarray
    largest: np.ndarray  # the error of each
    scale: np.ndarray


class _Saved:
    """The saved points of a run, a single one as an ensemble of one."""

    def __init__(self, run: Trajectory):
        self.run, self.count = run, len(run.t)
        self.members = run.q.shape[0] if run.members else 1
        self.kinetic = _Kinetic(run.system) if isinstance(run.system, System) else None

    def column(self, name: str, members: Any, rows: Any) -> np.ndarray:
        column = self.run.columns[name]
        return np.asarray(column[members, rows] if self.run.members else column[rows])

    def conserved(self, members: Any, rows: Any) -> np.ndarray:
        names = [n for n in ("energy", "work") if n in self.run.columns]
        return _conserved({n: self.column(n, members, rows) for n in names})

    def allowed(self, member: int, rows: slice) -> np.ndarray:
        """The kinetic energy that conservation allows at saved points of a member."""
        h, a0 = self.column("energy", member, rows), self.conserved(member, 0)
        work = self.column("work", member, rows) if "work" in self.run.columns else 0.0
        if self.kinetic is not None:
            return a0 + work - (h - self.kinetic(self.column("p", member, rows)))
        q = jnp.asarray(self.column("q", member, rows))
        return a0 + work - np.asarray(_potentials("states", self.system_of(member), q))

    def system_of(self, member: int) -> Any:
        own = self.run.spread == "states and params"
        return self.run.system.member(member) if own and self.run.system is not None else self.run.system

    def at_row(self, row: int, members: np.ndarray) -> np.ndarray:
        """The same for many members at one saved point."""
        if not self.run.members:
            return self.allowed(0, slice(row, row + 1))
        work = self.column("work", members, row) if "work" in self.run.columns else 0.0
        if self.kinetic is not None:
            potential = self.column("energy", members, row) - self.kinetic(self.column("p", members, row))
        else:  # of all members: one shape, one program
            q = jnp.asarray(self.column("q", slice(None), row))
            potential = np.asarray(_potentials(self.run.spread, self.run.system, q))[members]
        return self.conserved(members, 0) + work - potential


def excess(run: Trajectory, largest: Any = None, first: int = 0, share: float = 1.0) -> Excess | None:
    """Whether the energy error of a run exceeds the scale of its energy, or a share of it. `largest` is that error for
    the members from `first` on, where it is known; it is read from the energies otherwise."""
    system = run.system
    unjudged = system is None or run.method.traits.event_driven or "energy" not in run.columns
    if unjudged or len(run.t) < 2 or (getattr(system, "force", None) is not None and "work" not in run.columns):
        return None
    saved = _Saved(run)
    if largest is None:
        largest = _largest(saved)
    start = np.atleast_1d(saved.conserved(slice(None), 0))[first : first + np.size(largest)]
    largest = np.broadcast_to(largest, start.shape) / share
    scale = ROUNDING * np.finfo(start.dtype).eps * np.abs(start)
    suspects = np.flatnonzero(largest > scale)
    # A member that has turned non-finite has failed, which run.failed_at tells.
    suspects = suspects[np.isfinite(saved.conserved(first + suspects, saved.count - 1)) | (not run.members)]
    for row in _spread_out(saved.count):
        if not len(suspects):
            return None
        allowed, error = (
            saved.at_row(row, first + suspects),
            np.abs(saved.conserved(first + suspects, row) - start[suspects]),
        )
        scale[suspects] = np.fmax(scale[suspects], _trusted(allowed, error))
        suspects = suspects[largest[suspects] > scale[suspects]]
    for member in suspects[:READ]:
        scale[member] = max(scale[member], _noise(saved, first + int(member)), _whole_scale(saved, first + int(member)))
    suspects = suspects[largest[suspects] > scale[suspects]]
    return Excess(first + suspects, share * largest[suspects], scale[suspects]) if len(suspects) else None


def _trusted(allowed: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The kinetic energy that conservation allows, where the energy error is at most half of it."""
    return np.where(error <= allowed / 2, allowed, 0.0)


def _whole_scale(saved: _Saved, member: int) -> float:
    """The scale of the energy of a member, by all its saved points."""
    start, scale = saved.conserved(member, 0), 0.0
    for begin in range(0, saved.count, ROWS):
        rows = slice(begin, min(begin + ROWS, saved.count))
        error = np.abs(saved.conserved(member, rows) - start)
        scale = max(scale, float(np.fmax.reduce(_trusted(saved.allowed(member, rows), error))))
    return scale


def _first_beyond(saved: _Saved, member: int, scale: float) -> tuple[int, float]:
    """The first saved point at which the energy error of a member exceeds the scale, and that error."""
    start = saved.conserved(member, 0)
    for begin in range(0, saved.count, ROWS):
        error = np.abs(saved.conserved(member, slice(begin, min(begin + ROWS, saved.count))) - start)
        over = np.flatnonzero(error > scale)
        if len(over):
            return begin + int(over[0]), float(error[over[0]])
    return saved.count - 1, float(error[-1])


def _largest(saved: _Saved) -> np.ndarray:
    found = np.zeros(saved.members)
    start = np.atleast_1d(saved.conserved(slice(None), 0))
    for begin in range(0, saved.count, ROWS):
        rows = np.atleast_2d(saved.conserved(slice(None), slice(begin, begin + ROWS)))
        with np.errstate(invalid="ignore"):
            found = np.fmax(found, np.fmax.reduce(np.abs(rows - start[:, None]), axis=1))
    return found


def _spread_out(count: int) -> Iterator[int]:
    """Saved points to look at, in an order that soon covers the run; most runs need the first two or three of them."""
    yield from (0, count // 2, count - 1)
    even = np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).round().astype(int))
    yield from even[np.argsort([int(f"{k:09b}"[::-1], 2) for k in range(len(even))])]


def _noise(saved: _Saved, member: int) -> float:
    """What the energy may change by rounding alone, judged by the terms that follow from moving q by its own size with
    random signs: a potential that is zero by cancellation of large terms says nothing by its value."""
    q, p = (saved.column(name, member, 0) for name in ("q", "p"))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (4, *q.shape)).astype(q.dtype)
    sizes = np.asarray(_sizes(saved.system_of(member), q, p, signs * q))
    return ROUNDING * float(np.finfo(q.dtype).eps * np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


# --- what the user is told ---
Start = tuple[Any, np.ndarray, np.ndarray]  # a system, q and p


def warn_of_instability(run: Trajectory, extremes: Extremes) -> None:
    """One warning for a run, where its energy error exceeds the scale of its energy."""
    if not _watched.get() or _is_random(run):
        return
    runner = extremes.runner
    if isinstance(runner, Reducing):
        return _warn_of_reduced(run, runner)
    if "energy" not in run.columns:
        return
    everybody = run.members and run.share is None  # the members of all processes are here
    first, stop = (runner.start, runner.stop) if everybody else (0, None)
    saved = _Saved(run)
    start = np.atleast_1d(saved.conserved(slice(None), 0))[first:stop]
    found = excess(run, extremes.largest(start), first)
    if found is None:
        return
    of_member = lambda m: (saved.system_of(m), saved.column("q", m, 0), saved.column("p", m, 0))
    for k, member in enumerate(found.members[:READ]):
        number = int(member) + (0 if everybody else run.member_range[0])
        whose = (
            f" of {len(found.members) - k} of {len(start)} members, first of member {number}," if run.members else ""
        )
        worst = int(found.members[np.argmax(found.largest)])
        others = [] if worst == member else [of_member(worst)]
        scale, largest = float(found.scale[k]), float(found.largest[k])
        if _warned(run, saved, int(member), whose, scale, largest, [of_member(int(member)), *others]):
            return


def _is_random(run: Trajectory) -> bool:
    """Whether the method draws random numbers, which feed energy: it claims nothing about it, and carries a key."""
    if run.method.traits.energy is not None or run.checkpoint is None:
        return False
    return any(getattr(x, "dtype", None) == np.uint32 for x in jax.tree.leaves(run.checkpoint.carry))


def _suspects(runner: Reducing) -> np.ndarray:
    """Members of an ensemble that was reduced whose energy error is too large at the last saved point: their other rows
    are gone. First by the kinetic energy at the start, without their states, which may be on a card."""
    start, energy = runner.first_energies, runner.last_row("energy")
    if energy is None or not isinstance(runner.system, System):
        return np.zeros(0, int)
    kinetic, error = _Kinetic(runner.system), np.abs(energy - start)
    floor = ROUNDING * np.finfo(start.dtype).eps * np.abs(start)
    momenta = np.asarray(runner.states[1])[runner.start : runner.stop]
    suspects = np.flatnonzero(np.isfinite(error) & (error > np.fmax(floor, kinetic(momenta))))
    if not len(suspects):
        return suspects
    allowed = start - (energy - kinetic(runner.last_row("p")))
    return suspects[(error > _trusted(allowed, error))[suspects]]


def _warn_of_reduced(run: Trajectory, runner: Reducing) -> None:
    """Of an ensemble that was reduced a suspect is run again by itself."""
    summary, suspects = run.summary, np.zeros(0, int)
    if summary is not None and not runner.method.traits.event_driven:
        suspects = _suspects(runner)
    for k, member in enumerate(runner.start + suspects[:READ]):
        q, p = (np.asarray(x[member]) for x in summary.start)
        system = runner.system.member(int(member)) if runner.spread == "states and params" else runner.system
        try:
            alone = _trial(run, (system, q, p), 1, run.grid.saves - 1)
        except GeomintError:  # it stops: members that fail are told by run.failed_at
            continue
        found = excess(alone)
        whose = f" of {len(suspects) - k} of {runner.stop - runner.start} members, first of member {member},"
        if found is not None:
            sizes = float(found.scale[0]), float(found.largest[0])
            if _warned(run, _Saved(alone), 0, whose, *sizes, [(system, q, p)]):
                return


def _warned(
    run: Trajectory, saved: _Saved, member: int, whose: str, scale: float, largest: float, starts: list[Start]
) -> bool:
    """Whether a suspect was warned of. The scale is also that of a run with a shorter step, which shows what the start
    releases even where no state of the suspect can be trusted."""
    grid = run.grid
    index, _ = _first_beyond(saved, member, scale)
    try:
        tried = tried_steps(run, starts, index)
    except KeyboardInterrupt:  # the run itself is complete
        tried = Tried("Take a shorter step.", 0.0, None)
    scale = max(scale, tried.scale)
    if largest <= scale:
        return False
    index, error = _first_beyond(saved, member, scale)
    step, seen = index * grid.save_every, max(_whole_scale(saved, member), tried.scale)
    known = f", {seen:.3g}" if seen > 0 else ""  # no save between a start at rest and the end
    warnings.warn(
        f"{run.method.name} with dt = {grid.dt:g}: the energy error{whose} exceeds the scale of the energy{known}: "
        f"it is {error:.3g} at step {step}, t = {grid.t0 + step * grid.dt:g}, and at most {largest:.3g}. These results "
        f"do not follow the motion. {tried.advice}",
        InstabilityWarning,
        stacklevel=_outside(),
    )
    return True


class Tried(NamedTuple):
    """What trial runs with shorter steps showed: the advice, the scale of the energy of the first start, and a step
    that keeps the energy; None where none was found."""

    advice: str
    scale: float
    dt: float | None


def tried_steps(run: Trajectory, starts: list[Start], index: int) -> Tried:
    """Halve the step until the energy of runs from these starts is kept, at least up to twice the time of the saved
    point `index`. A short run says little about the scale of the energy: trials are followed for FOLLOWED of its
    steps."""
    grid = run.grid
    for k in range(1, HALVINGS + 1):
        room = _room(run, starts[0][1].size, 2**k)
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
    """Saved points up to which a trial with so much smaller steps goes: those of the run, as far as it can afford
    them."""
    steps, every = int(np.clip(TRIAL_NUMBERS // max(1, size), *TRIAL_STEPS)), run.grid.save_every
    return min(max(run.grid.saves - 1, -(-FOLLOWED // every)), steps // (every * factor))


def _kept_scale(run: Trajectory, start: Start, factor: int, saves: int) -> float | None:
    """The scale of the energy of a trial run whose energy error stays below half of it; None where it does not."""
    try:
        trial = _trial(run, start, factor, saves)
    except Exception:  # whatever it is: a trial must not cost the user the run
        return None
    return _whole_scale(_Saved(trial), 0) if excess(trial, share=0.5) is None else None


def _trial(run: Trajectory, start: Start, factor: int, saves: int) -> Trajectory:
    """The run again from one start, with steps that are shorter by a factor, up to the time of so many saves."""
    from .simulate import simulate  # which watches its runs by this module

    grid, (system, q, p) = run.grid, start
    t_end = grid.t0 + saves * grid.save_every * grid.dt
    engine = "auto" if run.members else run.engine.split()[0]  # the program of the run serves its trials too
    times: dict[str, Any] = {
        "dt": grid.dt / factor,
        "t0": grid.t0,
        "t_end": t_end,
        "save_every": grid.save_every * factor,
    }
    with unwatched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simulate(system, q, p0=p, method=run.method, compensated=run.compensated, engine=engine, **times)


def _outside() -> int:
    """The stacklevel of the line outside geomint that asked for the run."""
    package, frame, level = str(Path(__file__).parent.parent), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level
