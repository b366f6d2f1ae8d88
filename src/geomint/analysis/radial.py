"""radial_distribution: the distances of pairs over the saved points of a run."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..md.box import Box
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..run.radial import RadialDistribution
from ..run.reductions import TileResult
from ..run.summary import Reduced
from ..run.trajectory import Trajectory
from ..system.checks import instance

NUMBERS = 2**22  # coordinates that are read at a time


@checked_keywords
def radial_distribution(
    run: Trajectory,
    bins: Any = 100,
    range: tuple[float, float] | None = None,
    *,
    between: tuple[Any, Any] | None = None,
    box: Box | None = None,
    molecule: int | None = None,
    intramolecular: bool = True,
) -> Reduced:
    """The distances of pairs over all saved points of a run, and over all members of an ensemble: `counts` and
    `distribution`, (bins,), and `edges`. In a periodic box the distribution is g(r), in free space the density of the
    distances; see gm.RadialDistribution, which counts inside the run of an ensemble.

    Symbols in `between`, the box and the molecules are those of the system's atoms. range: in a box by default up to
    half its shortest edge, in free space up to the largest extent of the run. Discard the points before equilibrium
    yourself: radial_distribution(run[500:]).
    """
    instance(run, "run", "radial_distribution", kinds=Trajectory, must="a run of gm.simulate or gm.ensemble")
    atoms = getattr(run.system, "atoms", None)
    box = getattr(run.system, "box", None) if box is None and atoms is None else box
    q = run.q
    points = q.shape[2:] if run.members else q.shape[1:]
    if len(points) < 2:
        raise InputError(f"radial_distribution(run=...): positions have shape (n, 3) or (n, 2), not {points}.")
    if range is None and box is None and getattr(atoms, "box", None) is None and np.ndim(bins) == 0:
        range = (0.0, _extent(run))
    stated = RadialDistribution(
        "q", bins, range, atoms=atoms, between=between, box=box, molecule=molecule, intramolecular=intramolecular
    )
    size = max(1, min(len(run.t), NUMBERS // int(np.prod(points))))
    total: dict[str, Any] = {}
    for frames in _pieces(run, size):
        good = np.all(np.isfinite(frames).reshape(len(frames), -1), axis=1)
        padded = np.concatenate([frames, np.zeros((size - len(frames), *points))]) if len(frames) < size else frames
        valid = np.pad(good, (0, size - len(good)))
        finite = np.where(valid.reshape(-1, *(1,) * len(points)), padded, 0.0)
        found = _counted(stated, jnp.asarray(finite), jnp.asarray(valid))
        total = {name: total.get(name, 0) + np.asarray(x) for name, x in found.items()}
    joined = stated.joined([{name: np.asarray(x)[None] for name, x in total.items()}], np.ones(1))
    return Reduced("RadialDistribution of q", {name: x[0] for name, x in joined.items()}, stated.settings)


@jit
def _counted(stated: RadialDistribution, frames: Array, valid: Array) -> TileResult:
    return stated.of_tile(frames, valid)


def _pieces(run: Trajectory, size: int) -> Any:
    """The positions of all saved points and members, (n, *q shape), at most `size` at a time."""
    for rows in run.q if run.members else [run.q]:
        for begin in np.arange(0, len(rows), size):
            yield np.asarray(rows[begin : begin + size])


def _extent(run: Trajectory) -> float:
    """The largest diagonal of a box around all particles."""
    largest = 0.0
    for frames in _pieces(run, max(1, NUMBERS // int(np.prod(run.q.shape[-2:])))):
        flat = frames.reshape(len(frames), -1, frames.shape[-1])
        sides = flat.max(axis=1) - flat.min(axis=1)
        largest = max(largest, float(np.nanmax(np.linalg.norm(sides, axis=-1), initial=0.0)))
    if largest == 0.0:
        raise InputError("radial_distribution(run=...): all particles are at one point; give range=(low, high).")
    return largest
