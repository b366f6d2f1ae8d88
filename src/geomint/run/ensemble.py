"""ensemble: many trajectories of one system as one program; the leading axis is the member."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..engines import Clock, choose
from ..errors import GeomintError, InputError
from ..lagrange import derive
from ..methods import Method
from ..system import Stated, System
from . import archive
from .grid import grid
from .inputs import as_array, check_energy, check_on_manifold, check_overrides, initial_state, is_traced, phase, warn_of_lost_digits
from .simulate import _checked, archive_meta, drive, prepared
from .sinks import Disk, Memory
from .trajectory import Trajectory


def ensemble(
    system: Stated, q0s: Any, v0s: Any = None, *, p0s: Any = None, params: PyTree = None, method: Method, dt: float, t_end: float,
    t0: float = 0.0, save_every: int = 1, output: str | Path | None = None, progress: bool = False, engine: str = "auto",
    compensated: bool = False, seed: int = 0,
) -> Trajectory:  # fmt: skip
    """As `simulate`, for q0s of shape (members, *q shape); the result's arrays are (members, saved, …).

    params:  replaces the system's params by ones whose leaves have a leading member axis. A system whose own params all
             have that axis is taken so too, with a warning where they could also be shared.
    A member that fails keeps its good points and is named by `run.failed_at`; the run stops only when all have failed.
    """
    method, times = _checked(system, method), grid(dt, t_end, t0, save_every)
    if is_traced(system, q0s, v0s, p0s, params):
        raise GeomintError("ensemble can't run inside jax.grad, jax.jit or jax.vmap; there, use jax.vmap over gm.simulate.")
    if np.ndim(q0s) == 0 or len(q0s) == 0:
        raise InputError("q0s needs a leading axis that counts the members, and at least one of them.")
    members = len(as_array("q0s", q0s))
    system, spread = _spread(system, params, as_array("q0s", q0s), members)
    q, p = phase(system, q0s, v0s, p0s, members=True, own_params=spread == "states and params")
    check_on_manifold(system, q, p, spread)
    method = prepared(method, system, q, spread)
    warn_of_lost_digits(system if spread == "states" else system.member(0), q.shape[1:])
    method.warn(system if spread == "states" else system.member(0), q[0], times.dt)
    method.check_start(system if spread == "states" else system.member(0), q, p, members=True)
    if isinstance(system, System) and system.overrides and spread == "states":
        check_overrides(system, q[0])
    clock = Clock.of(times.t0, times.dt)
    runner = choose(engine)(method, system, clock, spread)
    state = initial_state(q, p, times.t0, seed, compensated, members)
    carry, seen = runner.begin(state)
    check_energy(system, seen)
    about = {"seed": seed, "compensated": compensated, "members": True}
    if output is None:
        return drive(runner, carry, times, Memory(runner.layout, seen, times.saves, members=True), progress, about)
    meta = archive_meta(system, runner, times, about, q.shape[1:])
    writer = archive.create(output, meta, seen, carry, times.saves)
    disk = Disk(writer, runner.layout, times, members=True)
    disk.first(seen, carry)
    return drive(runner, carry, times, disk, progress, about)


def _spread(system: Stated, params: PyTree, q0s: Any, members: int) -> tuple[Any, str]:
    """Whether params differ from member to member."""
    if params is not None:
        if any(np.shape(x)[:1] != (members,) for x in jax.tree.leaves(params)):
            raise InputError(f"params: every leaf needs a leading axis of {members} members.")
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
