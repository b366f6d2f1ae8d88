"""What Zhang and Skeel's method is: symplectic, reversible, of order 2, and linearly stable for every step.

The method is velocity Verlet in a softened potential Ṽ, which costs one linear solve a step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...analysis import measure
from ...analysis.measure import Point
from ...analysis.penalty import penalize
from ...methods import Composition, Method, Newmark, PushforwardNewmark, SimplifiedZhangSkeel, ZhangSkeel, protocols
from ...numerics.compilation import jit
from ...system.lagrangian import derive
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, OMEGA, PAPER, pendulum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


@functools.partial(jit, static_argnames="weighted")
def lemma_defect(system: System, at: Point, h: jax.Array, weighted: bool) -> jax.Array:
    """max |JᵀΩJ − Ω| of a step of (2.10) in (x, v), where Ω = dx ∧ M dv: with f = −M⁻¹∇U, for which M Df is symmetric,
    or with f = −∇U, for which Df is and which keeps dx ∧ dv."""
    mech, n = derive(system, at.q.shape), at.q.size
    f = lambda x: mech.velocity(mech.force(x)) if weighted else mech.force(x)

    def step(y: jax.Array) -> jax.Array:
        x, v = y[:n], y[n:]
        after = x + h * v + 0.5 * h**2 * f(x)
        return jnp.concatenate([after, v + 0.5 * h * (f(x) + f(after))])

    jacobian = jax.jacfwd(step)(jnp.concatenate([at.q, mech.velocity(at.p)]))
    mass, zero = jax.jacfwd(mech.momentum)(jnp.zeros(n)), jnp.zeros((n, n))
    form = jnp.block([[zero, mass], [-mass, zero]])
    return jnp.max(jnp.abs(jacobian.T @ form @ jacobian - form))


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
NOTES = {"coupled quartic, h = 0.1": "the term that Z&Ss drops is of order h⁵: only long steps show the defect"}


# What the paper says of each method, and where: of symplecticity, and of time reversal.
SYMPLECTIC = {
    "Z&S": ("symplectic", "Theorem 2.12"),
    "Z&Ss": ("not always symplectic", "Theorem 2.4"),
    "pushforward Newmark": ("preserves the canonical symplectic form", "section 2.1"),
    "Newmark": ("does not preserve the canonical symplectic form", "section 2.1"),
}
REVERSIBLE = {
    "Z&S": ("time-reversible", "Corollary 2.10"),
    "Z&Ss": ("time-reversible", "Theorem 2.4"),
    "pushforward Newmark": ("time-reversible", "Theorem 2.9"),
}


def structure_checks(rows: list[Structure]) -> list[Check]:
    """Z&S and pushforward Newmark are symplectic, Z&Ss and Newmark (in dq ∧ dp) are not; all are reversible."""
    checks = []
    for row in rows:
        name, (paper, where) = f"symplecticity defect: {row.method}, {row.problem}", SYMPLECTIC[row.method]
        defect = DEFECTS.get((row.method, row.problem))
        about: dict[str, Any] = {"paper": paper, "where": where}
        checks.append(
            Check(name, row.symplecticity, (None, 1e-13), **about)
            if defect is None
            else Check.near(name, row.symplecticity, defect, 0.05, **about, note=NOTES.get(row.problem, ""))
        )
        if row.reversibility is not None:
            claim = f"reversibility: {row.method}, {row.problem}"
            paper, where = REVERSIBLE.get(row.method, (None, ""))
            verdict = "reproduced" if paper else "information"
            checks.append(Check(claim, row.reversibility, (None, 1e-12), paper=paper, where=where, verdict=verdict))
    return checks


def lemma_checks(problem: Problem) -> list[Check]:
    """(2.10) at unequal masses, 1, 2 and ½, in dx ∧ M dv. Lemma 2.13 has no M, and is about dx ∧ dv."""
    at, h = Point(*map(jnp.asarray, problem.at)), jnp.asarray(problem.dt)
    return [
        Check(
            "(2.10) with M Df symmetric, masses 1, 2, ½: symplecticity defect",
            float(lemma_defect(problem.system, at, h, weighted=True)),
            (None, 1e-13),
            verdict="information",
            note="the form is dx ∧ M dv; for it the condition is that M Df is symmetric",
        ),
        Check(
            "(2.10) with Df symmetric, masses 1, 2, ½: symplecticity defect",
            float(lemma_defect(problem.system, at, h, weighted=False)),
            (1e-3, None),
            verdict="information",
            note="the form is dx ∧ M dv; Lemma 2.13 has no M and is right for dx ∧ dv",
            rtol=0.02,
        ),
    ]


def order_checks(orders: dict[str, measure.Order], bases: dict[str, tuple[Method, int, float]]) -> list[Check]:
    stated = {
        2: (2, "Corollary 2.8"),
        4: (4, "Remark 2.11"),
        6: ("arbitrarily high order by composition", "Theorem 1.2"),
    }
    return [
        Check(f"order: {label}", orders[label].order, (n - width, n + width), paper=stated[n][0], where=stated[n][1])
        for label, (_, n, width) in bases.items()
    ]


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
    bases: dict[str, tuple[Method, int, float]] = {"Z&S": (ZhangSkeel(beta=BETA), 2, 0.01)}
    bases |= {
        f"composition of order {n}": (Composition(ZhangSkeel(beta=BETA), order=n), n, width)
        for n, width in (((6, 0.06),) if quick else ((4, 0.02), (6, 0.06)))
    }
    orders = {
        label: measure.order(method, quartic.system, quartic.at, 0.2, refinements=10)
        for label, (method, _, _) in bases.items()
    }
    checks = [*structure_checks(rows + shorter), *lemma_checks(quartic), *order_checks(orders, bases)]
    left_out = ["pushforward Newmark and Newmark: symplecticity and reversibility", "reversibility of Z&Ss", "order 4"]
    return Outcome(
        checks,
        draw_structure(orders, rows),
        parameters={"β": BETA, "ω of the pendulum": OMEGA, "steps of the orders": "0.2, then halved"},
        left_out=left_out if quick else (),
    )


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
    about: dict[str, Any] = {"paper": "stable for every step if and only if β ≥ ¼"}
    checks = [
        Check(f"limit of hω, β = {b:g}", x, (exact[b] * (1 - 1e-6), exact[b] * (1 + 1e-6)), **about)
        for b, x in found.items()
    ]
    far = jnp.asarray(np.geomspace(1e-2, 1e4, 2001 if quick else 20_001))
    checks += [
        Check(
            f"largest ½|trace| up to hω = 1e4, β = {b:g}",
            float(jnp.max(half_traces(b, far))),
            (None, 1.0),
            **about,
            note="stable while it is at most 1",
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
    return Outcome(checks, figure, parameters={"values of hω": len(far), "range of hω": "0.01 … 10⁴"})
