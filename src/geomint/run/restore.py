"""Setting up an archived run again: its system, its engine and its carry.

An archive has the arrays of the carry, but neither functions nor the structure of the carry. The system is made again
from the expression of its model, or stated again by the user; a fingerprint of the traced functions shows whether it is
the same. The engine is then started on the first saved state: the carry of that start has the structure that the
archived arrays are put into.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .. import methods
from ..engines import Clock, choose
from ..engines.grid import Grid
from ..engines.scalar.scalar_engine import ScalarEngine
from ..engines.tiles import Engine, Tiled
from ..errors import ArchiveError, GeomintError
from ..io import archive
from ..io.fingerprint import fingerprint
from ..io.index import Index
from ..methods import Carry, protocols
from ..models import named
from ..system.constraints import measured_at, needs_start
from ..system.system import Stated
from .inputs import initial_state
from .members import with_own_params
from .prepare import prepared
from .reducing_engine import Marked, Reducing
from .reductions import Reductions


class Restored(NamedTuple):
    """An engine and the archived carry."""

    engine: Engine
    carry: Carry


def method_of(contents: archive.Contents | Index) -> methods.Method:
    """The method, made again from its expression in the archive."""
    try:
        return methods.named(contents.meta["method"])
    except Exception as error:  # an expression from a file may raise anything
        what = f"its method {contents.meta['method']!r:.100} is not one of this geomint ({str(error)[:200]})"
        raise ArchiveError(f"{contents.path}: {what}.", contents.path) from None


def system_of(contents: archive.Contents | Index) -> Stated | None:
    """The system of a run of gm.models, made again from its expression; None where that gives another system."""
    if contents.meta["origin"] is None:
        return None
    shape = tuple(contents.meta["q_shape"])
    try:
        system = named(contents.meta["origin"], coordinates=math.prod(shape)).system
        return system if fingerprint(system, shape) == contents.meta["fingerprint"] else None
    except Exception:  # an expression from a file may raise anything
        return None


def matching(contents: archive.Contents | Index, system: Stated) -> Stated:
    """The system given, after a check by its fingerprint that it is the one that was run. Leaves of params that the
    members share are repeated, as in the run."""
    meta, system = contents.meta, system.as_now()
    if needs_start(system):
        system = measured_at(system, _first_positions(contents))
    if meta["spread"] == "states and params" and "shard" not in meta:
        system = with_own_params(system, _members(contents))
    if _fingerprint_here(system, meta) == meta["fingerprint"]:
        return system
    here = archive.versions()
    differing = [
        f"{name} {meta['versions'][name]} → {here[name]}"
        for name in ("jax", "numpy")
        if meta["versions"].get(name) != here[name]
    ]
    hint = ""
    if differing:
        hint = f" The versions differ too ({', '.join(differing)}), which may change the traced program."
    raise ArchiveError(
        f"{contents.path}: the system given is not the one that was run (its energy, constraint, mass, params, "
        f"symmetries or derivatives by hand differ).{hint}"
    )


def _first_positions(contents: archive.Contents | Index) -> np.ndarray:
    """q0 of a run, or of the first member."""
    q = contents.start("q") if isinstance(contents, Index) else _first(contents, "q")
    return np.asarray(q[0] if contents.meta["members"] else q)


def _first(contents: archive.Contents, name: str) -> np.ndarray:
    """q or p at the start, of one trajectory or of all members."""
    if "reduce" in contents.meta:
        return contents.fixed[f"start/{name}"]
    return np.asarray(contents.array(name)[0])


def _members(contents: archive.Contents | Index) -> int:
    """The number of members of an archived ensemble."""
    if isinstance(contents, Index):
        return contents.members
    return len(contents.fixed["start/q"]) if "reduce" in contents.meta else contents.columns["q"].shape[0]


def _fingerprint_here(system: Stated, meta: dict[str, Any]) -> str | None:
    """None where the system can't be traced with positions and params of these shapes."""
    try:
        return fingerprint(system, tuple(meta["q_shape"]), meta["spread"])
    except Exception:  # of the user's functions
        return None


def restore_engine(
    contents: archive.Contents,
    system: Stated,
    times: Grid | None = None,
    method: methods.Method | None = None,
    devices: Any = (None,),
    reductions: Reductions | None = None,
) -> Restored:
    """The engine of an archived run, and its carry.

    reductions: those of a reduced run; None to restore the states of its members without them, for gm.load.
    """
    try:
        return _restore_engine(contents, system, times or Grid(*contents.meta["grid"]), method, devices, reductions)
    except (GeomintError, MemoryError):
        raise
    except Exception as error:  # the description in a damaged file fits no run
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise ArchiveError(f"{contents.path}: its run can't be set up again ({why}).", contents.path) from error


def _restore_engine(
    contents: archive.Contents,
    system: Stated,
    times: Grid,
    method: methods.Method | None,
    devices: Any,
    reductions: Reductions | None,
) -> Restored:
    meta, held = contents.meta, contents.fixed
    clock = Clock.of(times.t0, times.dt)
    q, p = jnp.asarray(_first(contents, "q")), jnp.asarray(_first(contents, "p"))
    method = prepared(method or method_of(contents), system.at_time(times.t0), np.asarray(q), meta["spread"])
    make = choose(meta["engine"])  # the engine by its name, never "auto"
    # The archived carry is that of the method's scalar form. ScalarEngine would choose that form itself, but not where
    # it leaves the run to XLA on this machine.
    if issubclass(make, ScalarEngine):
        method = protocols.for_scalar_code(method, bool(meta["members"]))
    if not meta["members"]:
        engine = make(method, system, clock, meta["spread"])
        begun, _ = engine.begin(initial_state(q, p, times.t0, meta["seed"], meta["compensated"]))
        return Restored(engine, engine.restored_carry(contents.carry_like(engine.archived_carry(begun))))
    members = len(q)
    tile = meta.get("tile", members)  # archives of the first versions have no tiles
    arguments = make, method, system, clock, meta["spread"], members, devices, tile
    if reductions is None:
        engine = Tiled(*arguments)
    else:
        engine = Reducing(reductions, held["kept"], times.save_every, *arguments)
    begun, _ = engine.begin(initial_state(q, p, times.t0, contents.seed, meta["compensated"], members))
    template = engine.archived_carry(begun)
    if "reduce" in meta and reductions is None:
        marked = Marked(template, np.zeros(members, np.int32))
        return Restored(engine, contents.carry_like(marked).carry)
    return Restored(engine, contents.carry_like(template))


def reopened(contents: archive.Contents, times: Grid, meta: Callable[[], dict[str, Any]]) -> archive.Writer:
    """The archive open for writing: as it is, or as a larger copy, described by meta(), for a later end."""
    if times.saves <= contents.room:
        return contents.writer()
    # The engine named in the file says what form its carry has, even where another engine continues the run.
    return archive.enlarged(contents, {**meta(), "engine": contents.meta["engine"]}, times.saves, contents.leaves)
