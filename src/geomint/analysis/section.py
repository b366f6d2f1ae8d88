"""section: the points at which trajectories cross a surface f(q, p, t) = 0 of phase space."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, InstabilityWarning, RunStopped, outside
from ..methods import Method
from ..methods.crossings import NO_CROSSING, PoincareMap
from ..models import Model
from ..numerics.keywords import checked_keywords
from ..run import Trajectory, ensemble, simulate
from ..run.defaults import of_model
from ..run.energy_scale import excess
from ..run.instability import unwatched
from ..run.prepare import checked_method
from ..system.checks import choice, flag, function, number, shown, whole
from ..system.system import Stated

NAMED = re.compile(r"\s*([qp])\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*")


@dataclasses.dataclass(frozen=True)
class Section:
    """Points of a Poincaré section, of gm.section: the crossings of one trajectory, or of each member of an ensemble.

    q, p:       the states there, (points, *q shape), with members (members, points, *q shape)
    t:          their times
    residual:   f there, zero up to rounding
    energy:     H there
    run:        what gm.simulate or gm.ensemble returned; its points are the crossings, the first one the start

    A trajectory that does not cross again has NaN from there on.
    """

    q: np.ndarray
    p: np.ndarray
    t: np.ndarray
    residual: np.ndarray
    energy: np.ndarray
    run: Trajectory

    @property
    def members(self) -> bool:
        """Whether there are several trajectories."""
        return self.run.members

    @property
    def counts(self) -> Any:
        """How many points there are, of each member."""
        found = np.sum(np.isfinite(self.t), axis=-1)
        return found if self.members else int(found)

    def __len__(self) -> int:
        return int(np.sum(self.counts))

    def __repr__(self) -> str:
        of = f" of {len(self.t)} trajectories" if self.members else ""
        worst = np.max(np.abs(self.residual), where=np.isfinite(self.residual), initial=0.0)
        return (
            f"<geomint section: {len(self)} points{of}, |f| at most {worst:.1e}, {self.run.engine.split()[0]} engine>"
        )

    def coordinate(self, name: str) -> np.ndarray:
        """A coordinate or momentum by its name, such as "q[1]" or "p[0, 2]", at all points."""
        match = NAMED.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise InputError(f'a coordinate is named as in "q[1]" or "p[0, 2]", not {shown(name)}.')
        x = self.q if match[1] == "q" else self.p
        index = () if match[2] is None else tuple(int(k) for k in match[2].split(","))
        lead = 2 if self.members else 1
        if len(index) != x.ndim - lead or any(k >= n for k, n in zip(index, x.shape[lead:], strict=True)):
            raise InputError(f"{name}: {match[1]} has the shape {x.shape[lead:]}.")
        return x[(..., *index)]

    def plot(self, path: str | Path | None = None, *, x: str | None = None, y: str | None = None) -> Any:
        """The points in the plane of two coordinates, by their names as in `coordinate`: by default the position that
        varies most over them, and its momentum. Written to `path` where one is given."""
        from ..plots.sections import drawn

        return drawn(self, path, x, y)


@checked_keywords
def section(
    system: Stated | Model,
    q0: Any = None,
    v0: Any = None,
    f: Callable[..., Any] | None = None,
    *,
    p0: Any = None,
    method: Method | None = None,
    dt: float | None = None,
    crossings: int = 100,
    direction: int = 1,
    t0: float = 0.0,
    members: bool = False,
    most_steps: int = 100_000,
    engine: str = "auto",
    progress: bool = False,
) -> Section:
    """The points at which the motion crosses f(q, p, t) = 0: a Poincaré section.

    system:    a system with q0 and v0, or a model; gm.section(model, f=lambda q: q[0]).
    f:         a function of q and, by name, of any of p, v, t and params -> a number. Its sign is looked at after every
               step; two changes within one step are not seen.
    method:    every crossing is located by a shorter step of the method, so that a point has its order.
    dt:        the step
    crossings: so many of each trajectory
    direction: 1 counts changes from negative to positive, -1 those back, 0 both
    members:   the leading axis of q0 and v0 counts trajectories, as in gm.ensemble: an array without it is shared
    most_steps: a trajectory ends where it takes more steps than this to its next crossing
    engine:    as for gm.simulate and gm.ensemble; "kernel" finds the points of all members in one kernel of a GPU
    """
    if f is None:
        raise InputError("section needs f, as in gm.section(model, f=lambda q: q[0]).")
    given = function(f, "f", "section", of="(q, p)")
    count = whole(crossings, "crossings", "section", least=1, most=10**9)
    most = whole(most_steps, "most_steps", "section", least=1)
    which = choice(direction, "direction", "section", (1, -1, 0))
    call = of_model("section", system, q0, v0, p0, method, dt, not_needed=("t_end",))
    base = checked_method(call.system, call.method)
    if base.traits.event_driven:
        raise InputError(f"section needs a method with steps, and {base.name} chooses its own times.")
    mapped = PoincareMap(base, given, which, float(most))
    start = number(t0, "t0", "section")
    settings = {"method": mapped, "dt": call.dt, "t_end": start + count * call.dt, "t0": start, "progress": progress}
    if flag(members, "members", "section"):
        q, v, p = (None if x is None else np.asarray(x) for x in (call.q0, call.v0, call.p0))
        go = lambda: ensemble(call.system, q, v, p0s=p, engine=engine, **settings)
    else:
        fast = "native" if engine == "auto" and np.size(call.q0) <= SMALL else engine
        go = lambda: simulate(call.system, call.q0, call.v0, p0=call.p0, engine=fast, **settings)
    run = _run(go)
    _warn_of_energy(run, base)
    return _points(run)


SMALL = 64  # coordinates up to which machine code is compiled for one trajectory: a crossing takes hundreds of steps


@unwatched()
def _run(go: Callable[[], Trajectory]) -> Trajectory:
    """The run; where no trajectory crosses again, what there is of it."""
    try:
        return go()
    except RunStopped as stopped:
        run: Any = stopped.run
        if run is None or not (run.members or _ended(run, stopped)):
            raise
        return run


def _warn_of_energy(run: Trajectory, base: Method) -> None:
    """A warning where the energy at crossings exceeds its scale, as for other runs. Their saved points are no steps, so
    that no shorter step can be tried."""
    found = None if base.traits.stochastic else excess(run)
    if found is not None:
        of = f" of {len(found.members)} of {len(run.q)} trajectories" if run.members else ""
        warnings.warn(
            f"section by {base.name} with dt = {run.grid.dt:g}: the energy error{of} exceeds the scale of the energy. "
            "These points do not follow the motion; take a shorter step.",
            InstabilityWarning,
            stacklevel=outside(),
        )


def _ended(run: Any, stopped: RunStopped) -> bool:
    return run.method.failures[NO_CROSSING] in stopped.reason


def _points(run: Trajectory) -> Section:
    first = (slice(None), slice(1, None)) if run.members else slice(1, None)
    names = ("q", "p", "crossing_time", "crossing_value", "energy")
    q, p, t, residual, energy = (np.array(run.columns[name][first], float) for name in names)
    if run.members:
        status = np.asarray(run.columns["status"][first])
        gone = (status != 0) | ~np.isfinite(t)
        for x in (q, p, t, residual, energy):
            x[gone] = np.nan
    return Section(q, p, t, residual, energy, run)
