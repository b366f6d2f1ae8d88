"""Trajectory: the result of a run, in memory or on disk, with the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..engines import is_good
from ..engines.device_rows import DeviceColumns, bytes_on_device, hold
from ..engines.grid import Grid
from ..engines.rows import statuses
from ..errors import InputError
from ..methods import Carry, Method, protocols
from ..system.lagrangian import derive
from ..system.system import Stated
from .events import Events
from .summary import Reduced, Summary

Values = np.ndarray  # inside jax.grad, jax.jit and jax.vmap a JAX array, which has the same operations


@dataclasses.dataclass
class Checkpoint:
    """The whole carry at a step: all that a restart needs. The arrays of an ensemble on a GPU may still be there."""

    carry: Carry
    step: int

    def __post_init__(self) -> None:
        if self.device_bytes:
            hold(self)

    @property
    def device_bytes(self) -> int:
        return bytes_on_device(self.carry)

    def to_host(self) -> None:
        self.carry = jax.tree.map(np.asarray, self.carry)


class Trajectory:
    """The saved points of a run, the initial one first.

    t, q, p, v        times and states; `q.shape == (saved, *q0.shape)`, for an ensemble `(members, saved, *q0.shape)`
    energy            H at the saved points; `energy_error` is H − H(0)
    momentum_maps     by the name of the symmetry
    constraint_residual, velocity_residual     g(q) and G M⁻¹p
    events            of event-driven methods
    stopped_at        of simulate(until=...), the time at which the sign has changed, that of the last point; else None
    failed_at         for each member of an ensemble the first saved index that is not good, or −1
    reduced           of an ensemble with reduce=: the results by name, such as `reduced["energy"].mean`. Only the rows
                      of the members in `kept` are here then; `members_left` counts those that had not failed at each
                      save
    Whatever a method adds (multipliers, q_filtered, …) is an attribute too; dir(run) lists all of them. Arrays are
    numpy arrays (memory maps for a run on disk), and JAX arrays inside jax.grad, jax.jit and jax.vmap.
    """

    system: Stated | None
    method: Method
    grid: Grid
    t: Values
    members: bool  # whether it is an ensemble
    spread: str  # "one"; "states" or, where params differ too, "states and params" of the members
    seed: Any
    compensated: bool
    engine: str
    checkpoint: Checkpoint | None
    records: np.ndarray | None  # single events (n, 3): time, level, kind
    path: Path | None
    summary: Summary | None  # of a reduced ensemble
    stopped_at: float | None = None  # of simulate(until=...): the time of the sign change, that of the last point

    def __init__(
        self,
        system: Stated | None,
        method: Method,
        grid: Grid,
        t: Any,
        columns: dict[str, Any] | DeviceColumns,
        *,
        members: bool = False,
        spread: str = "one",
        seed: Any = 0,
        compensated: bool = False,
        engine: str = "xla",
        checkpoint: Checkpoint | None = None,
        records: np.ndarray | None = None,
        path: Path | None = None,
        summary: Summary | None = None,
    ):
        self.system, self.method, self.grid, self.t, self.saved = system, method, grid, t, columns
        self.members, self.spread, self.seed, self.compensated, self.engine = members, spread, seed, compensated, engine
        self.checkpoint, self.records, self.path, self.summary = checkpoint, records, path, summary

    # --- what was saved ---
    @property
    def columns(self) -> dict[str, Any]:
        """Everything saved, by name; groups such as momentum_maps are dictionaries."""
        if isinstance(self.saved, DeviceColumns):
            self.saved = self.saved.to_host()
        return self.saved

    @property
    def q(self) -> Values:
        """Positions."""
        return self._column("q")

    @property
    def p(self) -> Values:
        """Momenta."""
        return self._column("p")

    @property
    def energy(self) -> Values:
        """H(q, p)."""
        return self._column("energy")

    @property
    def work(self) -> Values:
        """The work of forces since the start, of methods that save it."""
        return self._column("work")

    @property
    def heat(self) -> Values:
        """The energy that a thermostat has added since the start: energy − heat changes by errors of the method alone,
        and by the work of forces."""
        return self._column("heat")

    @property
    def velocity_residual(self) -> Values:
        """G(q) M⁻¹p, of constrained systems."""
        return self._column("velocity_residual")

    def _column(self, name: str) -> Any:
        columns = self.__dict__.get("saved", {})
        if name in columns:
            return columns.read(name) if isinstance(columns, DeviceColumns) else columns[name]
        if not isinstance(columns, DeviceColumns) and not columns and self.__dict__.get("summary") is not None:
            raise AttributeError(
                f"this run has no {name!r}: its members were reduced while it ran, to run.reduced; "
                "ensemble(..., keep=[...]) keeps the rows of some."
            )
        raise AttributeError(f"this run has no {name!r}; saved are {', '.join(sorted(columns))}.")

    def __getattr__(self, name: str) -> Any:
        stated = getattr(type(self), name, None)
        if isinstance(stated, property) and stated.fget is not None:
            return stated.fget(self)  # the property raised an AttributeError, which led here: raise that one again
        return self._column(name)

    def __dir__(self) -> list[str]:
        """Without properties whose quantity was not saved."""
        missing = {name for name in ("q", "p", "energy", "work", "heat", "velocity_residual") if name not in self.saved}
        return sorted({*super().__dir__(), *self.saved} - missing)

    # --- of reduced ensembles ---
    def _summary(self) -> Summary:
        if self.summary is None:
            raise InputError("nothing was reduced in this run; see gm.ensemble(..., reduce=...).")
        return self.summary

    @property
    def reduced(self) -> dict[str, Reduced]:
        """The results of ensemble(..., reduce=...), by name."""
        return self._summary().reduced

    @property
    def members_left(self) -> np.ndarray:
        """How many members had not failed, (saved,)."""
        return self._summary().members_left

    @property
    def kept(self) -> np.ndarray:
        """The members whose rows are here: those of ensemble(..., keep=...), else all."""
        return np.arange(len(self.q)) if self.summary is None else self.summary.kept

    @property
    def status(self) -> Any:
        """Of methods that can fail: 0 without a failure, else the key of a message in `run.method.failures`; (saved,),
        (members, saved), or for a reduced ensemble (members,) at the end."""
        if self.summary is None and "status" in self.saved:
            return self._column("status")
        if self.summary is None or self.checkpoint is None:
            why = "its method can't fail, or it was loaded without its system: gm.load(path, system=system) gives it"
            raise AttributeError(f"this run has no status: {why}.")
        found = statuses(self.method, self.checkpoint.carry)
        return np.zeros(len(self.failed_at), int) if found is None else np.asarray(found)

    @property
    def solver(self) -> str | None:
        """The linear solver that was used, where the method needs one."""
        return protocols.linear_solver(self.method)

    @property
    def dt(self) -> float:
        return self.grid.dt

    @property
    def v(self) -> Values:
        """M⁻¹p, or for a Lagrangian system the v of which p is the momentum."""
        system = self.system
        if system is None:
            raise AttributeError("velocities need the mass: load with gm.load(path, system=system).")
        return self._at_every_point(system, lambda mech, q, p: mech.velocity_at(q, p), self.p)

    @property
    def kinetic(self) -> Values:
        """The kinetic energy ½ vᵀMv; of a Lagrangian system H − H at rest."""
        system = self.system
        if system is None:
            raise AttributeError("kinetic energies need the mass: load with gm.load(path, system=system).")
        return self._at_every_point(system, lambda mech, q, p: mech.kinetic_at(q, p), self.p)

    def _at_every_point(self, system: Stated, function: Any, other: Any) -> Any:
        """function(mech, q, x) of the saved q and of another saved array, with each member's own params."""
        in_jax = isinstance(self.q, jax.Array)
        saved, other = (self.q, other) if in_jax else (np.asarray(self.q), np.asarray(other))
        q_shape, t = saved.shape[2:] if self.members else saved.shape[1:], jax.numpy.asarray(self.t)
        at = lambda stated, s: derive(stated, q_shape, s)
        over_time = lambda stated, q, x: jax.vmap(lambda a, b, s: function(at(stated, s), a, b))(q, x, t)
        if self.spread == "states and params":
            params = system.params if self.summary is None else jax.tree.map(lambda x: x[self.kept], system.params)
            y = jax.vmap(lambda k, q, x: over_time(system.with_params(k), q, x))(params, saved, other)
        elif self.members:
            y = jax.vmap(lambda q, x: over_time(system, q, x))(saved, other)
        else:
            y = over_time(system, saved, other)
        return y if in_jax else np.asarray(y)

    @property
    def energy_error(self) -> Values:
        """H(t) − H(t0), where t0 is the first saved point of this run, or of this part of a run."""
        return self.energy - (self.energy[:, :1] if self.members else self.energy[:1])

    @property
    def momentum_maps(self) -> dict[str, Any]:
        return self._column("momentum_maps") if "momentum_maps" in self.saved else {}

    @property
    def balance_error(self) -> Values:
        """The error of what the exact motion conserves: of the energy less the work of forces and the heat of a
        thermostat, where a method saves these, else the energy error."""
        exchanged = [name for name in ("work", "heat") if name in self.saved]
        if not exchanged:
            return self.energy_error
        balance = self.energy - sum(self._column(name) for name in exchanged)
        return balance - balance[..., :1]

    @property
    def watched(self) -> dict[str, Any]:
        """The quantities of System(watch={name: f(q, p)}), by name."""
        return self._column("watched") if "watched" in self.saved else {}

    @property
    def constraint_residual(self) -> Values:
        """g(q), (saved, m); m = 0 for a free system."""
        if "constraint_residual" in self.saved:
            return self._column("constraint_residual")
        return np.zeros((*self.energy.shape, 0))

    @property
    def multipliers(self) -> Values:
        """λ at the saved points, (saved, m); m = 0 for a free system."""
        if "multipliers" in self.saved:
            return self._column("multipliers")
        if "constraint_residual" in self.saved:
            raise InputError(
                f"{self.method.name} saves no multipliers: its output has to return self.state_with_multipliers(...), "
                "or State(..., extras={'multipliers': ...})."
            )
        return np.zeros((*self.energy.shape, 0))

    @property
    def constraint_forces(self) -> Values:
        """−G(q)ᵀλ at the saved points: the force with which the constraint acts, of the shape of q."""
        system = self.system
        if system is None:
            raise AttributeError("constraint forces need the constraint: load with gm.load(path, system=system).")
        if not self.multipliers.shape[-1]:
            return np.zeros_like(self.q)
        return self._at_every_point(system, lambda mech, q, x: -mech.constraint_force(q, x), self.multipliers)

    @property
    def events(self) -> Events:
        """Times, levels and kinds of the events of an event-driven method, and how many there were of each kind."""
        if not isinstance(self.method, protocols.EventDriven):
            raise InputError(
                f"{self.method.name} takes steps of equal length; events are those of event-driven methods, such as "
                "EnergyStepping."
            )
        if self.checkpoint is None:
            raise InputError("the events need the system: load with gm.load(path, system=system).")
        return Events(self.records, self.method.tally(self.checkpoint.carry), self.path)

    @property
    def failed_at(self) -> np.ndarray:
        """For each member of an ensemble the first saved index that is not good, or −1."""
        if self.summary is not None:
            return self.summary.failed_at
        names = [name for name in ("q", "p", "energy", "status") if name in self.saved]
        bad = np.atleast_2d(~is_good({name: self._column(name) for name in names}, np.ndim(self.energy)))
        return np.where(bad.any(axis=1), bad.argmax(axis=1), -1)

    def __getitem__(self, key: Any) -> Any:
        """run[-1] is a saved point, with t, q, p, v, energy and kinetic; run[10:20] and run[::5] are the runs of these
        points. Of an ensemble, ensemble[3] is the run of a member and ensemble[2:5] the ensemble of some."""
        from .indexing import part

        return part(self, key)

    def __call__(self, t: Any) -> Any:
        """The state between saved points: run(3.7) is a point as run[-1] is, with t, q, p, v, energy and kinetic; for
        several times, with arrays of them. The method's own steps are repeated from the saved point before t, and the
        last one is shorter: the state has the order of the method, and lies on the manifold of the constraints."""
        from .between import state_at

        return state_at(self, t)

    def __len__(self) -> int:
        """What run[...] counts: saved points, of an ensemble the members."""
        return self._count() if self.members else len(self.t)

    def __repr__(self) -> str:
        from .described import described

        return described(self)

    def _count(self) -> int:
        """The number of members."""
        if self.summary is not None:
            return len(self.failed_at)
        return self.saved.members if isinstance(self.saved, DeviceColumns) else len(self.q)

    def save(self, path: str | Path) -> Path:
        """Write an archive that gm.load opens and gm.resume continues; or, to a name that ends in .xyz, .pdb, .h5md or
        .vtkhdf, frames for other programs."""
        from .save import save

        return save(self, path)

    def plot(
        self, path: str | Path | None = None, *, space: bool | None = None, labels: Sequence[str] | None = None
    ) -> Any:
        """The motion, energy error, momentum maps and watched quantities as a matplotlib figure, which a notebook
        shows; written to `path` where one is given.

        space:  whether the last axis of q is a position, in the plane or in space; guessed without
        labels: names of the particles where paths are drawn, otherwise of the coordinates
        """
        from ..plots.overview import overview

        return overview(self, path, space=space, labels=labels)

    def view(self, path: str | Path | None = None, **settings: Any) -> Any:
        """An animation as one HTML page, which a notebook shows; written to `path` where one is given. It plays, turns
        and zooms in any browser, with the energy beside it. Bonds and rods come from the constraint; of a long run the
        first part is shown, so that the motion can be followed: run[::10].view() shows another.

        settings: positions=f(q) -> points (n, 2) or (n, 3), where q has none; bonds=[(0, 1), …] between points;
                  labels=[…], names of the points; frames=600 at most; up="y" for the axis that points upwards
        """
        from ..view.of_run import shown

        return shown(self, path, **settings)

    def movie(self, path: str | Path, *, seconds: float = 12.0, fps: int = 25, **settings: Any) -> Path:
        """The animation of `view` as a film, run.movie("x.gif") or run.movie("x.mp4"), which needs ffmpeg.

        seconds:  its length
        fps:      frames a second
        settings: as for `view`
        """
        from ..view.movie import film

        return film(self, path, seconds, fps, **settings)

    def _repr_html_(self) -> str:
        from ..plots.tables import summary_table

        return summary_table(self)

    def to_ase(self) -> list[Any]:
        """An ASE `Atoms` for each saved point: run[-1:].to_ase()[0] is the last one. The system needs atoms."""
        from ..io.ase_atoms import to_ase
        from .save import frames_of, topology_of

        topology = topology_of(self, "to_ase")
        return to_ase(topology, frames_of(self, topology, slice(0, len(self.t))))

    def to_xarray(self) -> Any:
        """An xarray.Dataset over time (and member), with every saved quantity."""
        from ..io.labelled import to_xarray

        return to_xarray(self)
