"""The multipliers of constraints from the penalised system, by (1.8):

    ω²·(g averaged over a short time) → λ    as ω → ∞,

with geomint's sign, M q̈ = −∇V − Gᵀλ. ω²g itself has no limit, since the motion normal to the manifold oscillates with
frequencies of order ω; only its average has. system/penalty.py makes the penalised system.

Reference: Tao, Owhadi, IMA J. Numer. Anal. (2015), theorem 1.3.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..run import Trajectory
from ..system.checks import instance, positive
from ..system.penalty import Penalty, penalize
from ..system.system import System


def recover_multipliers(run: Trajectory, window: float) -> np.ndarray:
    """λ(t) ≈ ω² g, averaged over a window centred at each saved time (narrower at the ends), as (saved, m).

    Read at the filtered positions where the method has them; at the plain ones the error grows with ω.
    """
    must = "the run of a system made by gm.penalize"
    instance(run, "run", "recover_multipliers", kinds=Trajectory, must=must)
    window = positive(window, "window", "recover_multipliers")
    system = run.system
    if not isinstance(system, System) or not isinstance(system.fast, Penalty):
        raise InputError("recover_multipliers needs a run of a system made by gm.penalize.")
    if run.members:
        raise InputError("recover_multipliers(run=...): the run is an ensemble; run each member with gm.simulate.")
    q = jnp.asarray(run.columns.get("q_filtered", run.q))
    penalty = system.fast
    constraint = lambda x: jnp.atleast_1d(system.call(penalty.constraint, x, name="constraint"))
    raw = np.asarray(penalty.omega) ** 2 * np.asarray(jax.vmap(constraint)(q))
    spacing = run.grid.dt * run.grid.save_every
    half = round(min(window / spacing / 2, len(raw)))
    if half < 1:
        raise InputError(
            f"window = {window:g} is shorter than two saved intervals of {spacing:g}; save more often or widen it."
        )
    count = len(raw)
    reach = np.minimum(half, np.minimum(np.arange(count), count - 1 - np.arange(count)))
    sums = np.concatenate([np.zeros((1, raw.shape[1])), np.cumsum(raw, axis=0)])
    return (sums[np.arange(count) + reach + 1] - sums[np.arange(count) - reach]) / (2 * reach + 1)[:, None]


__all__ = ["Penalty", "penalize", "recover_multipliers"]
