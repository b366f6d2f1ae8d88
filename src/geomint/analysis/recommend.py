"""recommend: the method and the step that reach an accuracy at the least cost, or the best accuracy for a cost.

Found by short runs against an independent reference."""

from __future__ import annotations

import dataclasses
import html
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import GeomintError, InputError
from ..methods import (
    IMEX,
    RESPA,
    Boris,
    Composition,
    Gauss,
    Gautschi,
    ImplicitMidpoint,
    Impulse,
    LieVerlet,
    LobattoIIIAB,
    MagneticSplitting,
    Method,
    MoserVeselov,
    Rattle,
    RungeKutta4,
    Splitting,
    SymmetricMultistep,
    Trigonometric,
    Variational,
    Verlet,
)
from ..models import Model
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..system.checks import positive
from ..system.lagrangian import LagrangianSystem, derive
from ..system.spaces import space_of
from ..system.system import Stated
from .compare import COARSEST, check_comparable, problem
from .work_precision import MOST_STEPS, Measured, Motion, cost_of_force, known_motion

# A method is tried with shorter steps until its error is below the accuracy, and given up where reaching it would cost
# this many times the best found so far.
GIVEN_UP = 2.0
TRIES = 14
CLOSE = 1.15  # a step that is known to within this factor is not searched further
AGAIN = 2.0  # methods that cost up to this many times the best are timed twice more, in turn: timings are noisy
NEXT = 3  # other methods that the reasons name
LARGEST_MODES = 600  # coordinates of which frequencies are computed

_FREE: tuple[Method, ...] = (
    SymmetricMultistep(8),
    Splitting("blanes-moan-nystrom"),
    Verlet(),
    Splitting("blanes-moan"),
    SymmetricMultistep(6),
    SymmetricMultistep(4),
    Composition(Verlet(form="drift"), order=6),
    Composition(Verlet(form="drift"), order=8),
    Splitting("three-stage-minimum-error"),
    Splitting("mclachlan-atela"),
    RungeKutta4(),
    Gauss(2),
    Gauss(4),
    ImplicitMidpoint(),
)
_FAST: tuple[Method, ...] = (
    Trigonometric(filter="hochbruck-lubich"),
    Gautschi(),
    Impulse(),
    Trigonometric(),
    Trigonometric(filter="grimm-hochbruck"),
    IMEX(),
    RESPA(),
)
_CONSTRAINED: tuple[Method, ...] = (
    SymmetricMultistep(8),
    SymmetricMultistep(6),
    SymmetricMultistep(4),
    Rattle(),
    Composition(Rattle(), order=4),
    Composition(Rattle(), order=6),
    Composition(Rattle(), order=8),
    LobattoIIIAB(3),
    LobattoIIIAB(4),
)
_MAGNETIC: tuple[Method, ...] = (
    MagneticSplitting(),
    Boris(),
    Composition(Boris(), order=4),
    Composition(Boris(), order=6),
    Composition(Boris(), order=8),
    RungeKutta4(),
)
_ON_GROUPS: tuple[Method, ...] = (
    LieVerlet(map="exponential"),
    MoserVeselov(),
    LieVerlet(),
    Composition(LieVerlet(map="exponential"), order=4),
    Composition(LieVerlet(map="exponential"), order=6),
    Composition(LieVerlet(map="exponential"), order=8),
)
_LAGRANGIAN: tuple[Method, ...] = (
    Variational(),
    Variational(quadrature="trapezoid"),
    Variational(quadrature="galerkin", degree=2),
    Variational(quadrature="galerkin", degree=3),
)


def candidates(system: Stated) -> list[Method]:
    """The methods that are tried on a system, those that are usually the best first."""
    if isinstance(system, LagrangianSystem):
        listed = _LAGRANGIAN
    elif not space_of(system).flat:
        listed = _ON_GROUPS
    elif system.constraint is not None:
        listed = _CONSTRAINED
    elif getattr(system, "magnetic_field", None) is not None:
        listed = _MAGNETIC
    else:
        listed = (*_FAST, *_FREE) if getattr(system, "fast", None) is not None else _FREE
    able = []
    for method in listed:
        try:
            check_comparable(method, system)
        except InputError:
            continue
        able.append(method)
    return able


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """A method and a step for a system, of gm.recommend: gm.simulate(system, q0, v0, method=r.method, dt=r.dt, …).

    method, dt:  what is recommended
    error:       measured with it: the largest error of a coordinate, relative to the largest displacement
    seconds:     CPU time per unit of simulated time
    reasons:     sentences: what was found about the system, what was measured, which methods come next
    tried:       all that was measured
    """

    method: Method
    dt: float
    error: float
    seconds: float
    reasons: tuple[str, ...]
    tried: tuple[Measured, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.method.name}, dt = {self.dt:.6g}", *(f"- {reason}" for reason in self.reasons)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(reason)}</li>" for reason in self.reasons)
        return f"<p><b>{html.escape(self.method.name)}</b>, dt = {self.dt:.6g}</p><ul>{items}</ul>"


class Search(NamedTuple):
    """What a method is searched for."""

    motion: Motion
    accuracy: float
    dt: float
    longer: float  # how many times longer than the known motion the run is


@checked_keywords
def recommend(
    system: Stated | Model,
    q0: Any = None,
    v0: Any = None,
    *,
    p0: Any = None,
    accuracy: float | None = None,
    budget: float | None = None,
    dt: float | None = None,
    t_end: float | None = None,
) -> Recommendation:
    """The method and the step that reach an accuracy at the least cost, or the best accuracy for a cost.

    accuracy: the largest error of a coordinate up to t_end, relative to the largest displacement from the start.
    budget:   CPU seconds for the run up to t_end, on one core. Give accuracy or budget.
    dt:       a step to begin with, that resolves the motion; a model has one. Without it, a thousandth of t_end.
    t_end:    the end of the run, by default that of the model. Errors are measured up to there, or as far as an
              independent reference reaches at a reasonable cost, and extrapolated: linearly in time for methods with a
              bounded energy error, else with its square. Where the motion is chaotic, the accuracy is that of the part
              that can be known.

    Methods that fit the system are run for a short while with a few steps each, on the engine that a long run has, and
    their CPU time is measured; so the answer is for this machine. `print(...)` shows the reasons.
    """
    if (accuracy is None) == (budget is None):
        raise InputError("recommend needs accuracy= (an error) or budget= (CPU seconds), one of them.")
    made = problem("recommend", system, q0, v0, p0, dt, t_end)
    wanted = positive(accuracy if budget is None else budget, "budget" if accuracy is None else "accuracy", "recommend")
    end = made.longest if t_end is None else float(positive(t_end, "t_end", "recommend"))
    motion = known_motion(made.system, made.start, None, end, made.dt)
    longer = end / motion.t_end if math.isfinite(end) else 1.0
    search = Search(motion, float(wanted), made.dt, longer)
    methods = candidates(made.system)
    if not methods:
        raise InputError("recommend: no method with a fixed step integrates this system.")
    found = _cheapest(search, methods) if budget is None else _most_accurate(search, methods)
    if not found:
        if budget is not None:
            raise GeomintError(
                f"none of {len(methods)} methods computes this motion within {wanted:g} CPU seconds; give a larger "
                "budget."
            )
        least = min((m.error for m in motion.points if m.usable), default=math.nan)
        raise GeomintError(
            f"none of {len(methods)} methods reaches an error of {wanted:g} up to t = {motion.t_end:g}; the least "
            f"error measured is {least:.2g}. Give a larger accuracy, or a smaller dt to begin with."
        )
    (method, point), *_ = found
    reasons = (*about_system(made, point), *_about_choice(search, found, budget is None))
    return Recommendation(method, point.dt, point.error, point.seconds, reasons, tuple(motion.points))


Found = list[tuple[Method, Measured]]


def _cheapest(search: Search, methods: list[Method]) -> Found:
    """The methods that reach the accuracy, the cheapest first."""
    found: Found = []
    for method in methods:
        best = min((point.seconds for _, point in found), default=math.inf)
        point = _with_accuracy(search, method, best)
        if point is not None:
            found.append((method, point))
    for _ in range(2):
        least = min((point.seconds for _, point in found), default=math.inf)
        again = lambda method, x, most: search.motion.timed_again(method, x) if x.seconds < most else x
        found = [(method, again(method, point, AGAIN * least)) for method, point in found]
    return sorted(found, key=lambda each: each[1].seconds)


def _target(search: Search, method: Method) -> float:
    """The error allowed on the known part of the motion."""
    growth = 1 if method.traits.energy is not None or search.motion.system.driven else 2
    return search.accuracy / max(1.0, search.longer) ** growth


def _with_accuracy(search: Search, method: Method, best: float) -> Measured | None:
    """The point of a method with the largest step found whose error is below the target; None where it would cost more
    than GIVEN_UP times `best`."""
    motion, target, order = search.motion, _target(search, method), method.traits.order
    steps = motion.t_end / (COARSEST * search.dt * (method.traits.forces or order))
    good, bad = None, 0.0
    for _ in range(TRIES):
        point = motion.measured(method, max(1, round(steps)))
        if point.usable and point.error <= target:
            good = point if good is None or point.steps < good.steps else good
            if point.error * CLOSE**order >= target or point.steps <= max(bad * CLOSE, 20):
                break
            fewer = point.steps * max((point.error / target) ** (1 / order), 1 / 8) * 1.03
            steps = max(fewer, math.sqrt(bad * point.steps)) if bad else fewer
            if steps > point.steps / 1.05:
                break
            continue
        bad = max(bad, point.steps)
        ratio = (point.error / target) ** (1 / order) if point.usable else 2.0
        wanted = point.steps * min(8.0, max(1.1, 1.05 * ratio))
        steps = wanted if good is None else min(wanted, math.sqrt(bad * good.steps))
        too_expensive = point.seconds * (steps / point.steps) > GIVEN_UP * best
        if too_expensive or steps > MOST_STEPS or (good is not None and steps > 0.95 * good.steps):
            break
    return good


def _most_accurate(search: Search, methods: list[Method]) -> Found:
    """The methods within the budget, the most accurate first."""
    found: Found = []
    per_time = search.accuracy / (search.motion.t_end * max(1.0, search.longer))
    for method in methods:
        point = _within_budget(search, method, per_time)
        if point is not None:
            found.append((method, point))
    return sorted(found, key=lambda each: each[1].error)


def _within_budget(search: Search, method: Method, per_time: float) -> Measured | None:
    """The point of a method that costs so many seconds per unit of time; None where it computes no motion for that."""
    motion, point = search.motion, None
    seconds, _ = motion.seconds_per_step(method, search.dt, 1000)
    for _ in range(3):  # iterations may cost less at smaller steps
        steps = min(MOST_STEPS, math.floor(per_time * motion.t_end / seconds))
        if steps < 1:
            return None
        point = motion.measured(method, steps)
        if point.seconds <= 1.1 * per_time:
            break
        seconds = point.seconds * point.dt
    return point if point is not None and point.usable and point.seconds <= 1.2 * per_time else None


# --- reasons ----------------------------------------------------------------------------------------------------------
@jit
def _stiffness(system: Stated, q: Any) -> Any:
    """The Hessian of the whole potential and the mass, as matrices."""
    mech, unit = derive(system, q.shape, jnp.zeros(())), jnp.eye(q.size).reshape(q.size, *q.shape)
    rows = lambda product: jax.vmap(product)(unit).reshape(q.size, q.size)
    return rows(lambda v: jax.jvp(lambda x: -mech.force(x), (q,), (v,))[1]), rows(mech.momentum)


def frequencies(system: Stated, q: np.ndarray) -> np.ndarray:
    """ω of the potential at q, ascending, negative where it bends down: −√−ω². Empty where they are not computed: for
    Lagrangians, many coordinates, constraints, and on groups."""
    from scipy.linalg import eigh

    curved = system.constraint is not None or not space_of(system).flat
    if isinstance(system, LagrangianSystem) or curved or q.size > LARGEST_MODES:
        return np.zeros(0)
    stiffness, mass = (np.asarray(x) for x in _stiffness(system, jnp.asarray(q, float)))
    if not np.all(np.isfinite(stiffness)):
        return np.zeros(0)
    squares = eigh(0.5 * (stiffness + stiffness.T), mass, eigvals_only=True)
    return np.sign(squares) * np.sqrt(np.abs(squares))


def about_system(made: Any, point: Measured) -> list[str]:
    """What was found about the system."""
    system, q = made.system, np.asarray(made.start.q, float)
    reasons = []
    omega = frequencies(system, q)
    if omega.size and np.max(np.abs(omega)) > 0:
        fastest = float(np.max(np.abs(omega)))
        reasons.append(
            f"frequencies at the start up to ω = {fastest:.3g} (period {2 * np.pi / fastest:.3g}); this step has "
            f"hω = {point.dt * fastest:.2g}"
        )
    if system.constraint is not None:
        count = int(np.size(derive(system, q.shape, jnp.zeros(())).constraint(jnp.asarray(q))))
        reasons.append(f"a constraint of {count} equations: methods that stay on its manifold were tried")
    if getattr(system, "fast", None) is not None:
        reasons.append("a fast part is stated: methods whose step resolves the slow part alone were tried too")
    if getattr(system, "magnetic_field", None) is not None:
        reasons.append("a magnetic field: methods that turn the velocity by the exact rotation were tried")
    if system.driven:
        reasons.append("forces, damping or a time-dependent energy: methods that take these were tried")
    if not isinstance(system, LagrangianSystem):
        reasons.append(f"a force costs {1e6 * cost_of_force(system, made.start):.2g} µs by XLA")
    return reasons


def _about_choice(search: Search, found: Found, by_accuracy: bool) -> list[str]:
    (method, point), *others = found
    motion = search.motion
    said = [
        f"measured up to t = {motion.t_end:g}: error {point.error:.2g} of the displacement, energy error "
        f"{point.energy_error:.2g}, {1e6 * point.seconds:.3g} µs of CPU time per unit of time on the {point.engine} "
        "engine"
    ]
    if search.longer > 1:
        growth = "linearly" if _target(search, method) * search.longer >= 0.99 * search.accuracy else "quadratically"
        said.append(f"the run is {search.longer:.3g} times as long; the error is taken to grow {growth} in time")
    for other, there in others[:NEXT]:
        if by_accuracy:
            said.append(
                f"{other.name} with dt = {there.dt:.4g} takes {there.seconds / point.seconds:.2g} times as long"
            )
        else:
            said.append(f"{other.name} with dt = {there.dt:.4g} has {there.error / point.error:.2g} times the error")
    if method.traits_for(motion.system).symplectic:
        said.append("symplectic: the energy error stays bounded over long runs")
    elif method.traits_for(motion.system).energy is None and not motion.system.driven:
        said.append("not symplectic: over much longer runs the energy drifts")
    return said
