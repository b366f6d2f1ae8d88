"""The member axis of the arguments of gm.ensemble: which of them have one, and which all members share.

q0s, v0s and p0s. One of two arrays that has an axis less than the other is shared. Two arrays of the same shape both
have the member axis, and so has q0s alone; unless params= counts other members and the energy is defined for q0s as
one state only. The start of a model is one state.

params. A leaf whose leading length is the number of members has one value for each of them, all other leaves are
shared. A shared leaf that has this length by chance must be given with the member axis.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import InputError, outside
from ..system.lagrangian import derive
from ..system.spaces import space_of
from ..system.system import Stated, checked_params
from .defaults import Call

ToArray = Callable[[Any, str], Any]  # system/checks.py: as_array, or the same for arrays on a device


class Members(NamedTuple):
    """The arguments of an ensemble, with the member axis wherever spread says so."""

    system: Stated
    spread: str  # "states", or "states and params" where params differ between members
    q: Any  # (members, *shape of q)
    v: Any  # of the shape of q, or None
    p: Any


def with_member_axis(call: Call, params: PyTree, to_array: ToArray) -> Members:
    """Copies of shared arrays for all members: every array of the result has the member axis."""
    system, name, given = call.system, "v0s" if call.p0 is None else "p0s", call.v0 if call.p0 is None else call.p0
    if call.v0 is not None and call.p0 is not None:
        raise InputError("give v0s or p0s, not both.")
    q = to_array(call.q0, "q0s")
    x = None if given is None else to_array(given, name)
    x_shape = None if x is None else x.shape
    params = None if params is None else checked_params(params)
    shared_q = call.one_start or (x is not None and x.ndim == len(_of_velocities(system, q.shape)) + 1)
    if not shared_q and (q.ndim == 0 or len(q) == 0):
        raise InputError("q0s needs a leading axis that counts the members, and at least one of them.")
    fits = x is None or x.shape == _of_velocities(system, q.shape)
    shared_q = shared_q or (params is not None and fits and _one_state(system, q, params))
    shape = q.shape if shared_q else q.shape[1:]
    moving = _of_velocities(system, shape)
    of_one = ((q, shape), *(() if x is None else ((x, moving),)))
    counts = [len(y) for y, one in of_one if y.ndim == len(one) + 1]
    if len(set(counts)) > 1 or (x is not None and moving not in (x.shape, x.shape[1:])):
        raise InputError(
            f"{name} has shape {x_shape}, but q0s has shape {q.shape}; "
            + ("they must be the same" if moving == shape else f"those of a member are {shape} and {moving}")
            + ", or one of them without the leading axis of members, which all members share then."
        )
    members = counts[0] if counts else _counted_by_params(params)
    if not members:
        raise InputError(f"{name} has shape {x_shape}: there is no member in it.")
    q = _repeated(q, members, q.ndim == len(shape))
    x = None if x is None else _repeated(x, members, x.ndim == len(moving))
    system, spread = _spread(system, params, q, members)
    return Members(system, spread, q, x if call.p0 is None else None, x if call.p0 is not None else None)


def _of_velocities(system: Stated, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of velocities, for q of that shape with or without a member axis."""
    space = space_of(system)
    if space.flat or not shape:
        return shape
    try:
        return space.velocity_shape(shape)
    except InputError:
        return (shape[0], *space.velocity_shape(shape[1:]))


def _repeated(x: Any, members: int, shared: bool) -> Any:
    """A shared array with the member axis."""
    xp = jnp if isinstance(x, jax.Array) else np
    return xp.broadcast_to(xp.asarray(x), (members, *np.shape(x))) if shared else x


# --- params ---
def _lengths(params: PyTree) -> set[int]:
    """The leading lengths of the leaves that are arrays."""
    return {np.shape(x)[0] for x in jax.tree.leaves(params) if np.ndim(x)}


def _member_of(params: PyTree, members: int, i: int = 0) -> PyTree:
    """The params of one member."""
    return jax.tree.map(lambda x: x[i] if np.shape(x)[:1] == (members,) else x, params)


def _one_state(system: Stated, q: Any, params: PyTree) -> bool:
    """Whether q is one state that the members counted by params share: the leading length of q0s is none of params, and
    the energy is defined for q0s, and not for its first entry."""
    lengths = _lengths(params)
    if len(q) in lengths or len(lengths) != 1 or not (members := next(iter(lengths))):
        return False
    of_one = system.with_params(_member_of(params, members))
    if not _traces(of_one, q):
        return False
    if _traces(of_one, q[0]) or _traces(system.with_params(params), q[0]):
        raise InputError(
            f"q0s has shape {q.shape}, and params has a leading axis of {members}: this could be {len(q)} members, "
            f"whose params are shared or of a wrong length, or {members} members that share q0s. To share q0s, give "
            f"np.broadcast_to(q0, {(members, *q.shape)}); to share params, give them with the system: "
            "system.with_params(params)."
        )
    return True


def _counted_by_params(params: PyTree) -> int:
    """The number of members where neither positions nor velocities have a member axis."""
    lengths = _lengths(params) - {0}
    if len(lengths) != 1:
        found = f"leading lengths {sorted(lengths)}" if lengths else "no leaf with a leading axis"
        raise InputError(
            f"q0s, v0s and params do not say how many members there are: q0s is one state, and params has {found}. "
            "Give params (or q0s, or v0s) a leading axis with an entry for each member."
        )
    return lengths.pop()


def with_own_params(system: Stated, members: int) -> Stated:
    """The system with a copy of each shared leaf of its params for every member."""
    repeated = lambda x: _repeated(x, members, np.shape(x)[:1] != (members,))
    return system.with_params(jax.tree.map(repeated, system.params))


def _spread(system: Stated, params: PyTree, q0s: Any, members: int) -> tuple[Any, str]:
    """The system with the params of all members, and whether these differ."""
    own = lambda tree: any(np.shape(x)[:1] == (members,) for x in jax.tree.leaves(tree))
    if params is not None:
        if not own(params):
            return _with_shared(system, params, q0s, members), "states"
        _check_own(system, params, q0s, members)
        return with_own_params(system.with_params(params), members), "states and params"
    if system.params is None or any(np.shape(x)[:1] != (members,) for x in jax.tree.leaves(system.params)):
        return system, "states"
    as_shared, as_own = _traces(system, q0s[0]), _traces(system.member(0), q0s[0])
    if as_shared and as_own:
        warnings.warn(
            f"params is ambiguous: every leaf of system.params has a leading axis of {members}, the number of members. "
            "Treated as per-member, although the energy is also defined with all of them at once. To share them, close "
            "over them; ensemble(..., params=...) states explicitly that they differ.",
            stacklevel=outside(),
        )
    return system, "states and params" if as_own else "states"


def _with_shared(system: Stated, params: PyTree, q0s: Any, members: int) -> Stated:
    """The system with params that all members share."""
    shared = system.with_params(params)
    if _lengths(params) and not _traces(shared, q0s[0]):
        raise InputError(
            f"params: no leaf has a leading axis of {members} members, as many as q0s has, and the energy is not "
            "defined with params as they are, shared by all members."
        )
    return shared


def _check_own(system: Stated, params: PyTree, q0s: Any, members: int) -> None:
    """An error where the energy is defined with a leaf as it is, but not with its first entry."""
    if _traces(system.with_params(_member_of(params, members)), q0s[0]):
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if np.shape(leaf)[:1] != (members,):
            continue
        kept = jax.tree_util.tree_map_with_path(
            lambda at, x, path=path: x if at == path else _member_of(x, members), params
        )
        if _traces(system.with_params(kept), q0s[0]):
            name = f"params{jax.tree_util.keystr(path)}"
            raise InputError(
                f"{name} has a leading axis of {members}, the number of members, and is treated as one value for each, "
                f"with which the energy is not defined. To share it, give it the member axis: "
                f"np.broadcast_to(x, {(members, *np.shape(leaf))})."
            )


def _traces(system: Stated, q: Any) -> bool:
    """Whether the energy is a single number for params as they are."""
    try:
        jax.eval_shape(lambda x: derive(system, x.shape).lagrangian(x, x), q)
    except Exception:
        return False
    return True
