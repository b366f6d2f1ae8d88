"""What Zhang and Skeel's method is: its structure, its linear stability, and its step limit on penalised problems.

The method is velocity Verlet in a softened potential Ṽ, which costs one linear solve a step. The paper does not state
the step limit.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis import measure
from ...analysis.measure import Point
from ...analysis.penalty import penalize
from ...errors import RunStopped
from ...methods import (
    Composition,
    ImplicitMidpoint,
    Method,
    Newmark,
    PushforwardNewmark,
    SimplifiedZhangSkeel,
    ZhangSkeel,
    protocols,
)
from ...numerics.compilation import jit
from ...run import simulate
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "tao-owhadi-2015"
OMEGA, BETA = 20.0, 0.4  # of the pendula


pendulum: Any = functools.cache(
    models.double_pendulum
)  # one system for all experiments, so that its programs are compiled once


# --- structure ------------------------------------------------------------------------------------------------------
class Problem(NamedTuple):
    """A system, a point and a step at which a method is measured."""

    name: str
    system: System
    at: Point
    dt: float


def swinging_pendulum() -> Problem:
    """The penalised double pendulum in the middle of its motion, at the paper's step."""
    model = pendulum()
    system = penalize(model.system, OMEGA)
    at = measure.flow(ZhangSkeel(beta=BETA), system, Point(model.q0, model.v0), 0.1, 37)  # unit masses: p = v
    return Problem("double pendulum, h = 0.1", system, at, 0.1)


def coupled_quartic() -> Problem:
    """Three unequal masses and no symmetry. The term that Z&Ss drops is of order h⁵: visible at h = .4, 1e-6 at h =
    .1."""

    def potential(q):
        x, y, z = q
        return 0.25 * jnp.sum(q**4) + 0.5 * jnp.sum(q**2) + 0.5 * (x * y**2 - y * z) + 0.3 * x * y * z + 0.2 * x

    at = Point(np.array([0.7, -0.4, 0.3]), np.array([0.2, 0.9, -0.5]))
    return Problem("coupled quartic, h = 0.4", System(potential, mass=np.array([1.0, 2.0, 0.5])), at, 0.4)


class Structure(NamedTuple):
    method: str
    problem: str
    symplecticity: float
    reversibility: float | None


def structure_of(label: str, method: Method, problem: Problem, there_and_back: bool) -> Structure:
    _, system, at, dt = problem
    ready = protocols.prepare(method, [(system, at.q)])
    return Structure(
        label,
        problem.name,
        measure.symplecticity(ready, system, at, dt),
        measure.reversibility(method, system, at, dt) if there_and_back else None,
    )


# Defects of the methods that do not keep dq ∧ dp, by method and problem.
DEFECTS = {
    ("Z&Ss", "double pendulum, h = 0.1"): 3.39e-3,
    ("Z&Ss", "coupled quartic, h = 0.4"): 8.53e-4,
    ("Z&Ss", "coupled quartic, h = 0.1"): 1.5e-6,
    ("Newmark", "double pendulum, h = 0.1"): 6.2e-5,
    ("Newmark", "coupled quartic, h = 0.4"): 2.66e-2,
}


def structure_checks(rows: list[Structure]) -> list[Check]:
    """Z&S and pushforward Newmark are symplectic, Z&Ss and Newmark (in dq ∧ dp) are not; all are reversible."""
    checks = []
    for row in rows:
        where, name = f"{row.method}, {row.problem}", f"symplecticity defect: {row.method}, {row.problem}"
        defect = DEFECTS.get((row.method, row.problem))
        small = Check(name, row.symplecticity, (None, 1e-13), note="< 1e-13")
        checks.append(
            small
            if defect is None
            else Check.near(name, row.symplecticity, defect, 0.05, note=f"{defect:g}: not symplectic")
        )
        if row.reversibility is not None:
            checks.append(Check(f"reversibility: {where}", row.reversibility, (None, 1e-12), note="< 1e-12"))
    return checks


def draw_structure(orders: dict[str, measure.Order], rows: list[Structure]) -> Figure:
    """Error against step on the left, defects on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    for k, (label, found) in enumerate(orders.items()):
        left.loglog(
            found.steps,
            np.max(found.errors, axis=1),
            "o-",
            ms=4,
            lw=1.2,
            color=f"C{k}",
            label=f"{label}: measured {found.order:.3f}",
        )
    left.set(xlabel="step h", ylabel="relative error, larger of q and p", title="Coupled quartic")
    left.legend(frameon=False, fontsize=8)
    left.grid(alpha=0.25)
    draw_defects(right, rows)
    return figure


def draw_defects(axes: Axes, rows: list[Structure]) -> None:
    """A bar for each method and problem."""
    methods, problems = list(dict.fromkeys(r.method for r in rows)), list(dict.fromkeys(r.problem for r in rows))
    for row in rows:
        y = methods.index(row.method) + 0.36 * (problems.index(row.problem) - 0.5)
        color = ("C0", "C1")[problems.index(row.problem)]
        size = max(row.symplecticity, 1e-17)
        axes.barh(
            y, np.log10(size) + 18, 0.32, left=-18, color=color, label=row.problem if row.method == methods[0] else None
        )
        axes.text(np.log10(size) + 0.25, y, f"{row.symplecticity:.0e}", va="center", fontsize=8)
    axes.set(xlim=(-18, 0.5), xlabel="symplecticity defect of one step", title="Is dq ∧ dp kept?")
    axes.set_yticks(range(len(methods)), [m.replace(" ", "\n") for m in methods])
    axes.set_xticks(range(-18, 1, 3), [f"1e{k}" if k else "1" for k in range(-18, 1, 3)])
    axes.axvline(-12, color="0.5", lw=0.8, ls="--")
    axes.invert_yaxis()
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2, frameon=False, fontsize=8)


@experiment(
    PAPER,
    "structure",
    "Z&S is symplectic, Z&Ss is not; both are reversible; compositions reach orders 4 and 6",
    "Theorems 2.4, 2.7, 2.9, 2.12",
)
def structure(quick: bool) -> Outcome:
    """The derivative of one large step, a step forwards and back, and the error against the step, on problems whose
    Hessians do not commute: a method that is symplectic only in one dimension fails."""
    methods = {"Z&S": ZhangSkeel(beta=BETA), "Z&Ss": SimplifiedZhangSkeel(beta=BETA)}
    if not quick:
        methods |= {"pushforward Newmark": PushforwardNewmark(beta=BETA), "Newmark": Newmark(beta=BETA)}
    quartic = coupled_quartic()
    problems = (swinging_pendulum(), quartic)
    rows = [
        structure_of(label, method, problem, not quick or label == "Z&S")
        for label, method in methods.items()
        for problem in problems
    ]
    shorter = [structure_of("Z&Ss", methods["Z&Ss"], quartic._replace(name="coupled quartic, h = 0.1", dt=0.1), False)]
    bases = {"Z&S": (ZhangSkeel(beta=BETA), 2, 0.01)}
    bases |= {
        f"composition of order {n}": (Composition(ZhangSkeel(beta=BETA), order=n), n, width)
        for n, width in ((4, 0.02), (6, 0.06))
    }
    orders = {
        label: measure.order(method, quartic.system, quartic.at, 0.2, refinements=10)
        for label, (method, _, _) in bases.items()
    }
    checks = [
        Check(f"order: {label}", orders[label].order, (n - width, n + width), note=f"{n} ± {width:g}")
        for label, (_, n, width) in bases.items()
    ]
    return Outcome(structure_checks(rows + shorter) + checks, draw_structure(orders, rows))


# --- linear stability -----------------------------------------------------------------------------------------------
@jit
def half_traces(beta: Any, steps: jax.Array) -> jax.Array:
    """½ |trace| of the matrix of one step on V = ½q², for steps hω: where it is above 1 the motion grows."""
    oscillator, zero = System(lambda q: 0.5 * jnp.sum(q**2)), jnp.zeros(1)
    one = lambda h: measure.step_jacobian(ZhangSkeel(beta=beta), oscillator, zero, zero, h)
    return 0.5 * jnp.abs(jnp.trace(jax.vmap(one)(steps), axis1=1, axis2=2))


def threshold(beta: float) -> float:
    """The hω at which ½|trace| passes 1, by bisection."""
    low, high = 1.0, 100.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        stable = float(half_traces(beta, jnp.asarray([middle]))[0]) <= 1
        low, high = (middle, high) if stable else (low, middle)
    return 0.5 * (low + high)


@experiment(PAPER, "linear-stability", "Stable up to hω = 2/√(1 − 4β), and for every step from β = ¼ on", "Theorem 2.5")
def linear_stability(quick: bool) -> Outcome:
    """The matrix of one step on a harmonic oscillator, by differentiation of the step itself."""
    from ...plots.figures import new_figure

    found = {beta: threshold(beta) for beta in (0.0, 0.1, 0.2, 0.24)}
    exact = {beta: 2 / np.sqrt(1 - 4 * beta) for beta in found}
    checks = [
        Check(
            f"limit of hω, β = {b:g}", x, (exact[b] * (1 - 1e-6), exact[b] * (1 + 1e-6)), note=f"{exact[b]:.7g} to 1e-6"
        )
        for b, x in found.items()
    ]
    far = jnp.asarray(np.geomspace(1e-2, 1e4, 2001 if quick else 20_001))
    checks += [
        Check(
            f"largest ½|trace| up to hω = 1e4, β = {b:g}",
            float(jnp.max(half_traces(b, far))),
            (None, 1.0),
            note="at most 1: stable",
        )
        for b in (0.25, 0.3, 0.4)
    ]
    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    steps = np.geomspace(0.3, 300, 1500)
    for k, beta in enumerate((*found, 0.25, 0.4)):
        axes.semilogx(steps, half_traces(beta, jnp.asarray(steps)), color=f"C{k}", lw=1.4, label=f"β = {beta:g}")
        if beta in found:
            axes.plot(exact[beta], 1.0, "o", ms=5, color=f"C{k}")
    axes.axhspan(1, 2, color="0.9", zorder=0)
    axes.text(0.33, 1.04, "unstable", color="0.4", fontsize=9)
    axes.set(
        ylim=(0, 1.5),
        xlim=(steps[0], steps[-1]),
        xlabel="hω",
        ylabel="½ |trace| of one step",
        title="Zhang–Skeel on a harmonic oscillator (dots: 2/√(1 − 4β))",
    )
    axes.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 0.19))
    axes.grid(alpha=0.25)
    return Outcome(checks, figure)


# --- the step limit of penalised problems -----------------------------------------------------------------------------
def energy_errors(method: Method, dt: float, products: np.ndarray) -> np.ndarray:
    """max |T + Ṽ − start| on the double pendulum to t = 50 for ω = (h²ω)/h²; infinite where the run stops."""
    model, found = pendulum(), []
    for product in products:
        try:
            run = simulate(
                penalize(model.system, product / dt**2), model.q0, model.v0, method=method, dt=dt, t_end=50.0
            )
            found.append(float(np.max(np.abs(run.filtered_energy - run.filtered_energy[0]))))
        except RunStopped:
            found.append(np.inf)
    return np.asarray(found)


def position_error(method: Method, omega: float) -> tuple[float, float]:
    """At h = .1 on the double pendulum to t = 50: the largest error of (x₂, y₂), and the step at which the run
    stops. The one that does not apply is NaN."""
    model = pendulum()
    try:
        run = simulate(penalize(model.system, omega), model.q0, model.v0, method=method, dt=0.1, t_end=50.0)
    except RunStopped as stop:
        return np.nan, float(stop.step or np.nan)
    exact = measure.independent_reference(model.system, Point(model.q0, model.v0), np.asarray(run.t)).q  # unit masses
    return float(np.max(np.abs(np.asarray(run.columns.get("q_filtered", run.q)) - exact)[:, 1])), np.nan


FILTERED_ERRORS = {
    0.1: (2.2e-3, 5.3e-3),
    0.05: (4.4e-4, 6.3e-4),
    0.025: (1.1e-4, 1.4e-4),
    0.0125: (2.7e-5, 3.4e-5),
}  # of T + Ṽ


@experiment(PAPER, "step-limit", "On penalised problems the step is limited: h²ω ≲ 0.3", "sections 1.2 and 4.1")
def step_limit(quick: bool) -> Outcome:
    """The double pendulum with increasing stiffness. Section 1.2 says that the step does not depend on ω; section
    4.1 says that Z&S, Newmark and the implicit midpoint rule are unstable at ω = 2000. For Z&S the limit is h²ω ≈
    .35: Ṽ contains a cubic term of about ω²g³/4, which pulls outwards. Newmark, fully solved, and pushforward
    Newmark, whose Ṽ is a Moreau envelope, are stable at ω = 2000."""
    products = np.round(np.arange(0.1 if quick else 0.04, 0.5, 0.02), 2)
    steps = (0.1, 0.05) if quick else (0.1, 0.05, 0.025, 0.0125)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*h²ω")  # geomint warns of these steps; they are intended here
        errors = {h: energy_errors(ZhangSkeel(beta=BETA), h, products) for h in steps}
        newmark = energy_errors(PushforwardNewmark(beta=BETA), 0.1, products)
        stiffer = {60: 0.6, 300: 3.0, 2000: 20.0}  # ω and h²ω
        far = dict(
            zip(
                stiffer,
                energy_errors(PushforwardNewmark(beta=BETA), 0.1, np.array(list(stiffer.values()))),
                strict=True,
            )
        )
        unstable: dict[str, Method] = {"Z&S": ZhangSkeel(beta=BETA)}
        if not quick:
            unstable["implicit midpoint"] = ImplicitMidpoint()
        stops = {label: position_error(method, 2000.0)[1] for label, method in unstable.items()}
        solved = position_error(Newmark(beta=BETA), 2000.0)[0]
    checks = filtered_checks(products, errors)
    checks.append(
        Check("pushforward Newmark, h = 0.1: largest error of T + Ṽ up to h²ω = 0.5", newmark.max(), (1.7e-3, 5.2e-3))
    )
    checks += [
        Check.near(f"pushforward Newmark, h = 0.1, ω = {omega}: error of T + Ṽ", x, 1.83e-3, 0.06)
        for omega, x in far.items()
    ]
    checks += [
        Check(
            f"{label}, h = 0.1, ω = 2000: the run stops at step",
            x,
            (1, 20),
            note="in the first steps, as section 4.1 says",
            rtol=None,
        )
        for label, x in stops.items()
    ]
    checks.append(
        Check.near(
            "Newmark, h = 0.1, ω = 2000: largest error of x₂, y₂",
            solved,
            0.081,
            0.05,
            note="0.081: stable, where section 4.1 says unstable",
        )
    )
    return Outcome(checks, draw_step_limit(products, errors, newmark))


def filtered_checks(products: np.ndarray, errors: dict[float, np.ndarray]) -> list[Check]:
    """Z&S at each step: where the runs begin to stop, and the error of T + Ṽ below that."""
    first = {
        h: float(np.append(products, np.nan)[np.argmax(np.isinf(np.append(e, np.inf)))]) for h, e in errors.items()
    }
    checks = [
        Check(f"Z&S, h = {h:g}: first h²ω at which the run stops", x, (0.33, 0.37), note="0.34 or 0.36")
        for h, x in first.items()
    ]
    checks += [
        Check(f"Z&S, h = {h:g}: largest error of T + Ṽ up to h²ω = 0.3", e[products <= 0.3].max(), FILTERED_ERRORS[h])
        for h, e in errors.items()
    ]
    return checks


def draw_step_limit(products: np.ndarray, errors: dict[float, np.ndarray], newmark: np.ndarray) -> Figure:
    from ...plots.figures import new_figure

    figure = new_figure(7.5, 4.5)
    axes = figure.subplots()
    for k, (h, error) in enumerate(errors.items()):
        axes.semilogy(
            products,
            np.where(np.isfinite(error), error, np.nan),
            "o-",
            ms=3.5,
            lw=1.2,
            color=f"C{k}",
            label=f"Z&S, h = {h:g}",
        )
        lost = products[np.isinf(error)]
        axes.plot(lost, np.full(len(lost), 1.0 * 1.6**-k), "x", ms=5, color=f"C{k}")
    axes.semilogy(products, newmark, "s--", ms=3, lw=1, color="0.4", label="pushforward Newmark, h = 0.1")
    axes.axvline(0.3, color="0.5", lw=0.8, ls=":")
    axes.set(
        xlabel="h²ω",
        ylabel="largest error of T + Ṽ, t ≤ 50",
        title="Penalised double pendulum (crosses: the run stopped)",
    )
    axes.set_ylim(top=2.0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    axes.grid(alpha=0.25)
    return figure
