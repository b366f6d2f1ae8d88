"""ensemble: many trajectories of one system as one program; the leading axis is the member."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..engines import Clock, choose
from ..engines.grid import Grid, grid
from ..engines.tiles import Tiled
from ..errors import GeomintError, InputError
from ..io import archive
from ..io.sinks import Disk, Memory
from ..methods import Method, protocols
from ..system.checks import shown
from ..system.index_check import check_indices
from ..system.lagrangian import derive
from ..system.system import Stated, System, checked_params
from .inputs import (
    as_array,
    check_energy,
    check_on_manifold,
    check_overrides,
    initial_state,
    is_traced,
    phase,
    stated_velocity,
    warn_of_lost_digits,
)
from .processes import chosen
from .reducing import Reducing
from .reductions import Reduction, checked
from .shared import opened
from .simulate import _checked, archive_meta, checked_settings, drive, prepared, sampled
from .trajectory import Trajectory


def ensemble(
    system: Stated, q0s: Any, v0s: Any = None, *, p0s: Any = None, params: PyTree = None, method: Method, dt: float, t_end: float,
    t0: float = 0.0, save_every: int = 1, output: str | Path | None = None, progress: bool = False, engine: str = "auto",
    compensated: bool = False, seed: Any = 0, mesh: Any = None, reduce: Mapping[str, Reduction] | None = None, keep: Iterable[int] | None = None,
) -> Trajectory:  # fmt: skip
    """As `simulate`, for q0s of shape (members, *q shape); the result's arrays are (members, saved, …).

    params:  replaces the system's params by ones whose leaves have a leading member axis. A system whose own params all
             have that axis is taken so too, with a warning where they could also be shared.
    seed:    an integer, into which members fold their number: member 3 of seed 5 has the same random numbers in every ensemble. Or one
             integer for each member, which then has those of gm.simulate with that seed.
    reduce:  {name: gm.Mean(...), gm.Quantiles(...) or gm.Histogram(...)}: at every save the members are reduced to these, which are
             run.reduced[name], and their own rows are not kept, neither in memory nor in `output`. A reduction is of a saved quantity by
             its name ("energy", "q", a momentum map, a watched quantity, …), or of a function f(q, p) of one member, f(q, p, params) where
             the system has params. Members that have failed do not count. The last states are in run.checkpoint.
    keep:    members whose rows are kept all the same, such as range(10): run.q is (kept, saved, …), in this order.
    engine:  as for `simulate`; "kernel" moves all members in one kernel of a GPU, and "auto" takes it where JAX's default device is one.
    progress, output: as for `simulate`; steps are counted once for all members, and one file has them all.
    mesh:    the devices that share the members: a jax.sharding.Mesh, or "all" for all devices of all processes. None: the default device
             of this process alone. Where a mesh spans processes of jax.distributed, each of them makes the same call; they write one
             `output` together, and each returns the whole run from there. Without output each returns its own members, whose numbers
             are run.member_range. No number of the result depends on the mesh.
    A member that fails keeps its good points and is named by `run.failed_at`; the run stops only when all have failed.
    """
    if is_traced(system, q0s, v0s, p0s, params):
        raise GeomintError(
            "ensemble can't run inside jax.grad, jax.jit or jax.vmap; there, use jax.vmap over gm.simulate."
        )
    output, progress, compensated = checked_settings(output, progress, compensated)
    devices, team = chosen(mesh)
    with team:
        times = grid(dt, t_end, t0, save_every)
        method, system, spread, q, p = _stated(system, q0s, v0s, p0s, params, method, times)
        seed = _seeds(seed, len(q))
        stated = choose(engine, members=True), method, system, Clock.of(times.t0, times.dt), spread, len(q), devices
        plain = reduce is None and keep is None
        runner = (
            Tiled(*stated)
            if plain
            else Reducing(
                checked({} if reduce is None else reduce), _kept(keep, len(q)), times.save_every, team, *stated
            )
        )
        near = stated_velocity(system, "v0s", v0s)
        carry, seen = runner.begin(initial_state(q, p, times.t0, seed, compensated, len(q), near))
        check_energy(system, seen, runner.start, own_params=spread == "states and params")
        seen = runner.first_row(seen) if isinstance(runner, Reducing) else seen
        about = {"seed": seed, "compensated": compensated, "members": True}
        if output is None:
            return drive(
                runner,
                carry,
                times,
                Memory(runner.layout, seen, times.saves, members=plain),
                progress,
                about,
                team=team,
            )
        fixed = {
            **({} if np.ndim(seed) == 0 else {"seeds": seed}),
            **(runner.fixed if isinstance(runner, Reducing) else {}),
        }
        make = lambda: archive.create(
            output,
            archive_meta(system, runner, times, about, q.shape[1:]),
            *_of_all(runner, seen, carry),
            times.saves,
            fixed=fixed,
        )
        disk = Disk(
            opened(team, make, runner.start, runner.stop, len(q), alike=not plain),
            runner.layout,
            times,
            members=plain,
            whole=runner.whole,
        )
        disk.first(seen, carry)
        return drive(runner, carry, times, disk, progress, about, team=team)


def _seeds(seed: Any, members: int) -> Any:
    """An integer, or one for each member."""
    refusal = InputError(
        f"seed must be an integer of 64 bits, or one integer for each of the {members} members, not {shown(seed)}."
    )
    try:
        seeds = np.asarray(seed)
    except (TypeError, ValueError):
        raise refusal from None
    if seeds.dtype.kind not in "iu" or seeds.shape not in ((), (members,)):
        raise refusal
    return int(seed) if seeds.ndim == 0 else seeds


def _kept(keep: Iterable[int] | None, members: int) -> np.ndarray:
    """The members whose rows are kept although the others are reduced."""
    try:
        kept = np.asarray([] if keep is None else list(keep) if isinstance(keep, Iterable) else keep)
    except (TypeError, ValueError):
        kept = np.zeros((0, 0))
    if kept.ndim != 1 or (
        kept.size and (kept.dtype.kind not in "iu" or kept.min() < -members or kept.max() >= members)
    ):
        raise InputError(f"keep must list members by their numbers, 0 to {members - 1}, not {shown(keep)}.")
    return kept.astype(np.int64) % members


def _stated(
    system: Stated, q0s: Any, v0s: Any, p0s: Any, params: PyTree, method: Method, times: Grid
) -> tuple[Method, Stated, str, Any, Any]:
    """What the user stated, checked: the method after its look at the system, the system, whose params differ, and (q, p) of all members."""
    method = _checked(system, method)
    q0s = as_array(q0s, "q0s")
    if q0s.ndim == 0 or len(q0s) == 0:
        raise InputError("q0s needs a leading axis that counts the members, and at least one of them.")
    members = len(q0s)
    system, spread = _spread(system, params, q0s, members)
    q, p = phase(system, q0s, v0s, p0s, members=True, own_params=spread == "states and params")
    check_on_manifold(system, q, p, spread)
    for i in sampled(members):
        check_indices(system.member(i) if spread == "states and params" else system, q[i], p[i])
    method = prepared(method, system, q, spread)
    warn_of_lost_digits(system if spread == "states" else system.member(0), q.shape[1:])
    protocols.warn(method, system if spread == "states" else system.member(0), q[0], times.dt)
    protocols.check_start(method, system if spread == "states" else system.member(0), q, p, members=True)
    if isinstance(system, System) and system.overrides:
        check_overrides(system if spread == "states" else system.member(0), q[0])
    return method, system, spread, q, p


def _of_all(runner: Tiled, seen: dict[str, Any], carry: Any) -> tuple[Any, Any]:
    """What is seen and the carry in the shapes they have for the members of all processes; without their numbers."""
    shaped = lambda x: np.broadcast_to(np.zeros((), np.asarray(x).dtype), (runner.members, *np.shape(x)[1:]))
    return seen if isinstance(runner, Reducing) else jax.tree.map(shaped, seen), jax.tree.map(
        shaped, runner.whole(carry)
    )


def _spread(system: Stated, params: PyTree, q0s: Any, members: int) -> tuple[Any, str]:
    """Whether params differ from member to member."""
    if params is not None:
        params = checked_params(params)
        if any(np.shape(x)[:1] != (members,) for x in jax.tree.leaves(params)):
            raise InputError(f"params: every leaf needs a leading axis of {members} members, as many as q0s has.")
        return system.with_params(params), "states and params"
    if system.params is None or any(np.shape(x)[:1] != (members,) for x in jax.tree.leaves(system.params)):
        return system, "states"
    shared, own = _traces(system, q0s[0]), _traces(system.member(0), q0s[0])
    if shared and own:
        warnings.warn(
            f"every leaf of system.params leads with an axis of {members}, the number of members: taken as one share for each member, although the energy could "
            "also be read with all of them. To share them, close over them; ensemble(..., params=...) says explicitly that they differ.", stacklevel=3,
        )  # fmt: skip
    return system, "states and params" if own else "states"


def _traces(system: Stated, q: Any) -> bool:
    """Whether the energy is a single number for params as they are."""
    try:
        jax.eval_shape(lambda x: derive(system, x.shape).lagrangian(x, x), q)
    except Exception:
        return False
    return True
