"""RATTLE over multi-stage splittings in place of Verlet: structure, order, and error for the same number of forces."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis import measure
from ...analysis.measure import Point
from ...methods import Rattle, Splitting, Verlet
from ...methods.splitting import KickDrift
from ...models import Model
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .problems import PAPER, animated, pendula, spheres

if TYPE_CHECKING:
    from matplotlib.figure import Figure


BASES: dict[str, KickDrift] = {
    "Verlet": Verlet(),
    "two-stage, b = .211781": Splitting("two-stage"),
    "two-stage, b = .193183": Splitting("two-stage-minimum-error"),
    "three-stage": Splitting("three-stage"),
    "Verlet, drift form": Verlet(form="drift"),  # two constraint solves for each force; the others need one
}
SPAN = 10.0


def order(model: Model, base: KickDrift, at: Point, exact: np.ndarray, spacing: float) -> float:
    """The order in the positions, from three steps, against the exact motion."""
    steps = spacing / np.array([4, 8, 16])
    runs = [
        simulate(
            model.system,
            at.q,
            p0=at.p,
            method=Rattle(base),
            dt=h,
            t_end=len(exact) * spacing,
            save_every=round(spacing / h),
            compensated=True,
        )
        for h in steps
    ]
    return float(np.polyfit(np.log(steps), np.log([np.max(np.abs(run.q[1:] - exact)) for run in runs]), 1)[0])


def largest_error(model: Model, base: KickDrift, spacing: float) -> float:
    """max |H − H(0)| until t = 10 at one force evaluation every `spacing`."""
    dt = (base.traits.forces or 1) * spacing
    run = simulate(
        model.system, model.q0, model.v0, method=Rattle(base), dt=dt, t_end=round(SPAN / dt) * dt, compensated=True
    )
    return float(np.max(np.abs(run.energy_error)))


@functools.partial(jit, static_argnums=0)
def largest_energy_error(
    kinds: tuple[str, ...], shares: jax.Array, system: Any, q: jax.Array, p: jax.Array, h: float, steps: int
) -> jax.Array:
    """The slides' ψ_h with several stages, constrained only at the end of the step:

    p̄ = p − Gᵀμ,   (q, p̄) = ψ_h(q, p̄),   g(q) = 0.
    """
    mech = derive(system, q.shape)
    start = mech.energy(q, p)

    def free(q: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
        for k, kind in enumerate(kinds):
            q, p = (
                (q, p + shares[k] * h * mech.force(q))
                if kind == "kick"
                else (q + mech.displacement(p, shares[k] * h), p)
            )
        return q, p

    def step(_: Any, state: Any) -> Any:
        q, p, worst = state
        ends = lambda impulse: free(q, p - mech.constraint_force(q, impulse))
        residual = lambda impulse: mech.constraint(ends(impulse)[0])
        newton = lambda _, impulse: impulse - jnp.linalg.solve(jax.jacfwd(residual)(impulse), residual(impulse))
        q, p = ends(jax.lax.fori_loop(0, 5, newton, jnp.zeros_like(mech.constraint(q))))
        p = Rattle().tangent(mech, q, p)
        return q, p, jnp.maximum(worst, jnp.abs(mech.energy(q, p) - start))

    return jax.lax.fori_loop(0, steps, step, (q, p, jnp.zeros_like(start)))[2]


def largest_error_at_ends(model: Model, base: KickDrift, spacing: float) -> float:
    dt, (kinds, shares) = (base.traits.forces or 1) * spacing, zip(*base.stages, strict=True)
    q, p = jnp.asarray(model.q0, float), jnp.asarray(model.v0, float)  # unit masses
    return float(largest_energy_error(kinds, jnp.asarray(shares), model.system, q, p, dt, round(SPAN / dt)))


class Gains(NamedTuple):
    """Energy error of RATTLE over Verlet divided by that over another base, at equal numbers of forces."""

    problem: str
    everywhere: dict[str, float]  # constrained after every drift
    ends: dict[str, float]  # only at the ends of steps


def gains_on(problem: str, model: Model, bases: dict[str, KickDrift], spacing: float, ends: bool) -> Gains:
    plain = largest_error(model, bases["Verlet"], spacing)
    others = {label: base for label, base in bases.items() if label != "Verlet"}
    only = {
        label: plain / largest_error_at_ends(model, base, spacing)
        for label, base in others.items()
        if ends and "stage" in label
    }
    return Gains(problem, {label: plain / largest_error(model, base, spacing) for label, base in others.items()}, only)


# Gains per force over Verlet by base and problem.
PROBLEMS = ("triple pendulum", "two bodies on a sphere", "double pendulum", "chain of 10")
GAINS: dict[str, dict[str, float]] = {
    "two-stage, b = .211781": dict(zip(PROBLEMS, (1.335, 1.295, 1.666, 2.01), strict=True)),
    "two-stage, b = .193183": dict(zip(PROBLEMS, (1.606, 1.459, 2.511, 4.16), strict=True)),
    "three-stage": dict(zip(PROBLEMS, (1.39, 1.36, 1.96, 2.71), strict=True)),
    "Verlet, drift form": dict(zip(PROBLEMS, (3.54, 4.94, 2.02, 1.31), strict=True)),
}
TWO_STAGE = ("two-stage, b = .211781", "two-stage, b = .193183")
AT_ENDS = {"triple pendulum": 0.25, "two bodies on a sphere": 0.078}


@experiment(
    PAPER,
    "generalized-rattle",
    "RATTLE over multi-stage splittings: symplectic, symmetric, order 2, and what the stages gain",
    "slides on ψ_h; Fernández-Pendás et al. 2016",
)
def generalized_rattle(quick: bool) -> Outcome:
    """Structure on the triple pendulum in motion; energy error for the same number of forces on several problems.
    The gain depends on the problem, and turns into a loss where only the ends of steps are constrained. The slides
    constrain once a step: their claim is tested by the base with one drift."""
    bases = {label: base for label, base in BASES.items() if not quick or "stage, b" in label or label == "Verlet"}
    best, model = "two-stage, b = .193183", pendula()["triple pendulum"]
    at = measure.flow(Rattle(), model.system, Point(model.q0, model.v0), 0.02, 37)
    exact, checks = measure.independent_reference(model.system, at, 0.1 * np.arange(1, 11)).q, []
    for label, base in bases.items():
        method = Rattle(base)
        about: dict[str, Any] = (
            {"paper": "symplectic, symmetric, second-order", "where": "ψ_h in place of velocity Verlet"}
            if sum(kind == "drift" for kind, _ in base.stages) == 1
            else {"verdict": "information", "note": "constrained after every drift; the slides constrain once a step"}
        )
        checks.append(Check(f"order over {label}", order(model, base, at, exact, 0.1), (1.99, 2.01), **about))
        symmetric = measure.symmetry(method, model.system, at, 0.05)
        checks.append(Check(f"symmetry over {label}", symmetric, (None, 1e-14), **about))
        if not quick or label == best:
            defect = measure.symplecticity(method, model.system, at, 0.05)
            checks.append(Check(f"symplecticity on TM over {label}", defect, (None, 1e-14), **about))
    problems = (
        {"triple pendulum": model}
        if quick
        else {
            "triple pendulum": model,
            "two bodies on a sphere": spheres(),
            "double pendulum": pendula()["double pendulum"],
            "chain of 10": models.chain(10),
        }
    )
    gains = [
        gains_on(name, problem, bases, 0.01, name in ("triple pendulum", "two bodies on a sphere"))
        for name, problem in problems.items()
    ]
    checks += gain_checks(gains)
    spacings = np.array([0.04, 0.02, 0.01] if quick else [0.04, 0.02, 0.01, 0.005])
    lines = {label: np.array([largest_error(model, base, s) for s in spacings]) for label, base in bases.items()}
    only = np.array([largest_error_at_ends(model, bases[best], s) for s in spacings])
    return Outcome(
        checks,
        draw_generalized(spacings, lines, only, gains),
        motion=lambda: animated(
            pendula()["double pendulum"], Rattle(bases[best]), 0.02, 20.0, "A double pendulum by two-stage RATTLE"
        ),
        parameters={"steps of the order": [0.025, 0.0125, 0.00625], "forces in a unit of time": 100, "t_end": SPAN},
        left_out=("the three-stage splitting and the drift form", "sphere, double pendulum and chain"),
    )


def gain_checks(gains: list[Gains]) -> list[Check]:
    """What the stages gain; and what they lose if only the ends of steps are constrained."""
    everywhere = [
        Check.near(
            f"gain per force over Verlet, {x.problem}: {label}",
            gain,
            GAINS[label][x.problem],
            0.04,
            verdict="information",
            note="energy error over Verlet divided by that over this splitting, constrained after every drift",
        )
        for x in gains
        for label, gain in x.everywhere.items()
    ]
    return everywhere + [
        Check.near(
            f"the same, constrained at ends only, {x.problem}: {label}",
            gain,
            AT_ENDS[x.problem],
            0.06,
            verdict="information",
            note="a loss per force compared with Verlet; the slides claim structure and order only",
        )
        for x in gains
        for label, gain in x.ends.items()
        if label in TWO_STAGE
    ]


def draw_generalized(
    spacings: np.ndarray, lines: dict[str, np.ndarray], only: np.ndarray, gains: list[Gains]
) -> Figure:
    """Energy error against forces on the left, gains by problem on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(12.0, 5.2)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    colors = {label: f"C{k}" for k, label in enumerate(BASES)}
    for label, errors in lines.items():
        left.loglog(1 / spacings, errors, "o-", ms=4, lw=1.2, color=colors[label], label=label)
    left.loglog(
        1 / spacings,
        only,
        "x--",
        ms=5,
        lw=1.2,
        color=colors["two-stage, b = .193183"],
        label="two-stage, constrained at ends only",
    )
    left.set(
        xlabel="force evaluations in a unit of time",
        ylabel="largest energy error, t ≤ 10",
        title="RATTLE on the triple pendulum",
    )
    left.set_xticks(1 / spacings, [f"{1 / s:g}" for s in spacings])
    left.set_xticks([], minor=True)
    left.legend(frameon=False, fontsize=8)
    bars = list(gains[0].everywhere)
    width = 0.8 / len(bars)
    for j, label in enumerate(bars):
        for k, x in enumerate(gains):
            y = k + (j - 0.5 * (len(bars) - 1)) * width
            right.barh(y, x.everywhere[label], 0.9 * width, color=colors[label], label=label if k == 0 else None)
            right.text(x.everywhere[label] + 0.05, y, f"{x.everywhere[label]:.2f}", va="center", fontsize=8)
            if label in x.ends:
                right.plot(x.ends[label], y, "kx", ms=5, label="constrained at ends only" if j == k == 0 else None)
    right.axvline(1, color="0.3", lw=0.9)
    right.set(
        xlim=(0, 1.25 * max(max(x.everywhere.values()) for x in gains)),
        xlabel="energy error of Verlet over that of the base, at equal numbers of forces",
        title="Gain, 100 forces in a unit of time",
    )
    right.set_yticks(range(len(gains)), [x.problem.replace("s on", "s\non").replace(" p", "\np") for x in gains])
    right.invert_yaxis()
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3, frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure
