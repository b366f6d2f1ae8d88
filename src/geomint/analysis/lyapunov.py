"""lyapunov: the exponents at which neighbouring motions separate, by the tangent map of the method."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from ..engines.grid import grid
from ..errors import InputError
from ..methods import Method
from ..methods.tangent import TangentMap
from ..models import Model
from ..numerics.keywords import checked_keywords
from ..run import Trajectory, ensemble, simulate
from ..run.defaults import of_model
from ..run.prepare import checked_method
from ..system.checks import flag, number, positive, whole
from ..system.lagrangian import derive
from ..system.spaces import space_of
from ..system.system import Stated

SUBSTEPS = 10  # most steps between two orthonormalisations of more than FEW vectors; fewer are cheap after every step
FEW = 12
SAVES = 1000  # most saved points
TRANSIENT = 0.1  # share of the run in which the directions turn to where they grow
PARTS = 10  # of the rest, for the uncertainty


@dataclasses.dataclass(frozen=True)
class Lyapunov:
    """Lyapunov exponents, of gm.lyapunov; with members each array has a leading axis for them.

    exponents:    the mean rates of growth after the first tenth of the run, largest first
    uncertainty:  their standard errors, from the scatter of ten parts of it
    t:            times
    running:      the mean rates from the start to each of these times, (times, exponents)
    run:          the trajectory
    """

    exponents: np.ndarray
    uncertainty: np.ndarray
    t: np.ndarray
    running: np.ndarray
    run: Trajectory

    def __str__(self) -> str:
        if self.exponents.ndim > 1:
            return f"Lyapunov exponents of {len(self.exponents)} trajectories up to t = {self.t[-1]:g}"
        pairs = zip(self.exponents, self.uncertainty, strict=True)
        return "\n".join(f"{x: .6g} ± {error:.1g}" for x, error in pairs)

    __repr__ = __str__

    def plot(self, path: str | Path | None = None) -> Any:
        """The mean rates over time, on logarithmic scales; written to `path` where one is given."""
        from ..plots.lyapunov import drawn

        return drawn(self, path)


@checked_keywords
def lyapunov(
    system: Stated | Model,
    q0: Any = None,
    v0: Any = None,
    *,
    p0: Any = None,
    method: Method | None = None,
    dt: float | None = None,
    t_end: float | None = None,
    t0: float = 0.0,
    count: int | None = None,
    members: bool = False,
    engine: str = "auto",
    progress: bool = False,
) -> Lyapunov:
    """Lyapunov exponents: the mean rates at which neighbouring motions separate, by the tangent map of the method.

    count:    so many of the largest exponents; all of them by default: as many as q and p have numbers, on a constraint
              manifold twice its dimension
    members:  the leading axis of q0 and v0 counts trajectories, as in gm.ensemble
    engine:   as for gm.simulate and gm.ensemble

    Tangent vectors are carried along by the derivative of the method's own steps, and made orthonormal after each of
    them, more than twelve vectors after at most ten (Benettin, Galgani, Giorgilli, Strelcyn, Meccanica 15 (1980) 9).
    The derivative of a symplectic method is symplectic, and the vectors begin as a symplectic basis: all exponents of
    a free system come in pairs whose sum is zero to rounding after any time.
    """
    call = of_model("lyapunov", system, q0, v0, p0, method, dt, t_end)
    base = checked_method(call.system, call.method)
    if base.traits.steps > 1 or base.traits.event_driven or base.traits.stochastic:
        raise InputError(
            f"lyapunov needs the tangent map of a one-step method without random numbers, and {base.name} is none; "
            "take gm.Composition(gm.Verlet(), order=6), or gm.Rattle() on a manifold."
        )
    if not space_of(call.system).flat:
        raise InputError(
            "lyapunov follows tangent vectors of flat arrays, and the positions of this system are on a group; state a "
            "rigid body by RigidBody(...).system(representation='matrix'), for gm.Rattle()."
        )
    many = flag(members, "members", "lyapunov")
    start = number(t0, "t0", "lyapunov")
    h = float(positive(call.dt, "dt", "lyapunov"))
    steps = grid(h, number(call.t_end, "t_end", "lyapunov"), start).steps
    if steps < 2 * PARTS:
        raise InputError(f"lyapunov: from t0 = {start:g} to t_end = {call.t_end:g} there are only {steps} steps.")
    largest = _most(call.system, np.asarray(call.q0)[0] if many and not call.one_start else np.asarray(call.q0))
    wanted: Any = largest if count is None else whole(count, "count", "lyapunov", least=1, most=largest)
    substeps = next(k for k in range(1 if wanted <= FEW else SUBSTEPS, 0, -1) if steps % k == 0)
    every = next(k for k in range(1, steps + 1) if steps // substeps % k == 0 and steps // substeps // k <= SAVES)
    mapped = TangentMap(base, wanted, substeps)
    settings: dict[str, Any] = {"method": mapped, "dt": substeps * h, "t_end": start + steps * h, "t0": start}
    settings |= {"save_every": every, "engine": engine, "progress": progress}
    if many:
        q, v, p = (None if x is None else np.asarray(x) for x in (call.q0, call.v0, call.p0))
        run = ensemble(call.system, q, v, p0s=p, **settings)
    else:
        run = simulate(call.system, call.q0, call.v0, p0=call.p0, **settings)
    return _evaluated(run)


def _most(system: Stated, q: np.ndarray) -> int:
    """How many exponents there are."""
    if system.constraint is None:
        return 2 * q.size
    q = q.astype(float)
    jacobian = np.asarray(derive(system, q.shape, 0.0).constraint_jacobian(q))
    singular = np.linalg.svd(jacobian, compute_uv=False)
    return 2 * (q.size - int(np.sum(singular > 1e-10 * singular[0])))


def _evaluated(run: Trajectory) -> Lyapunov:
    growth, t = np.asarray(run.columns["growth"], float), np.asarray(run.t)
    saves = len(t) - 1
    first = max(1, round(TRANSIENT * saves))
    rate = lambda a, b: (growth[..., b, :] - growth[..., a, :]) / (t[b] - t[a])
    exponents = rate(first, saves)
    edges = np.unique(np.linspace(first, saves, PARTS + 1).round().astype(int))
    parts = np.stack([rate(a, b) for a, b in itertools.pairwise(edges)])
    uncertainty = np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts)) if len(parts) > 1 else 0 * exponents
    order = np.argsort(-exponents, axis=-1)
    sort = lambda x: np.take_along_axis(x, order, axis=-1)
    running = (growth - growth[..., :1, :])[..., 1:, :] / (t[1:] - t[0])[:, None]
    running = np.take_along_axis(running, order[..., None, :], axis=-1)
    return Lyapunov(sort(exponents), sort(uncertainty), t[1:], running, run)
