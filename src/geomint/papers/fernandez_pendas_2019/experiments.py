"""Fernández-Pendás: Geometric numerical integration, 4. Constrained mechanical systems (lecture slides, BCAM, 2019).

SHAKE and RATTLE are one method seen from two places, and RATTLE goes with any symmetric splitting. The slides write
G = −∂g/∂q and leave masses out; here G = ∂g/∂q and

    M q̈ = −∇U − Gᵀλ,   g(q) = 0,   G M⁻¹p = 0.

This file measures the methods; `fernandez_pendas_2019_solvers` measures what solves the constraint: chains and spheres.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis import measure
from ...analysis.measure import Point
from ...methods import Rattle, Shake, Splitting, Verlet
from ...methods.splitting import KickDrift
from ...models import Model
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from ..base import Check, Outcome, experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "fernandez-pendas-2019"
EPS = float(np.finfo(float).eps)

pendula: Any = functools.cache(
    lambda: {"triple pendulum": models.triple_pendulum(), "double pendulum": models.double_pendulum()}
)
spheres: Any = functools.cache(models.sphere_bodies)  # one system each, so that its programs are compiled once


# --- SHAKE is RATTLE --------------------------------------------------------------------------------------------------
class Textbook(NamedTuple):
    """RATTLE as the slides write it; row k of λʳ and λᵛ belongs to the step from k to k + 1."""

    q: np.ndarray
    p: np.ndarray
    positional: np.ndarray  # λʳ, at q_k
    velocity: np.ndarray  # λᵛ, at q_{k+1}


def textbook_rattle(model: Model, h: float, steps: int) -> Textbook:
    """Links between unit masses in unit gravity, in NumPy: nothing of geomint but the initial data."""
    q, p, n = np.array(model.q0, float), np.array(model.v0, float), len(model.q0)
    links = lambda q: np.diff(q, axis=0, prepend=0.0)
    squares, force = np.sum(links(q) ** 2, axis=1), np.tile([0.0, -1.0], (n, 1))
    incidence = np.eye(n) - np.eye(n, k=-1)
    gradient = lambda q: (2 * incidence[:, :, None] * links(q)[:, None, :]).reshape(n, -1)
    pull = lambda G, multipliers: (G.T @ multipliers).reshape(q.shape)
    rows = []
    for _ in range(steps):
        G, positional = gradient(q), np.zeros(n)
        for _ in range(8):  # Newton's method for g(q_{k+1}) = 0
            half = p + 0.5 * h * (force - pull(G, positional))
            there = q + h * half
            positional = positional + np.linalg.solve(
                0.5 * h**2 * gradient(there) @ G.T, np.sum(links(there) ** 2, axis=1) - squares
            )
        half = p + 0.5 * h * (force - pull(G, positional))
        rows.append((q, p, positional))
        q, G = q + h * half, gradient(q + h * half)
        velocity = np.linalg.solve(G @ G.T, G @ np.ravel(2 / h * half + force))  # G p_{k+1} = 0
        p = half + 0.5 * h * (force - pull(G, velocity))
        rows[-1] = (*rows[-1], velocity)
    before, momenta, positional, velocity = (np.array(x) for x in zip(*rows, strict=True))
    return Textbook(np.append(before, q[None], axis=0), np.append(momenta, p[None], axis=0), positional, velocity)


class Compared:
    """The same steps by SHAKE, by RATTLE and by the textbook."""

    def __init__(self, name: str, h: float, steps: int):
        model = pendula()[name]
        go = lambda method: simulate(model.system, model.q0, model.v0, method=method, dt=h, t_end=steps * h)
        self.name, self.h = name, h
        self.rattle, self.shake, self.textbook = go(Rattle()), go(Shake()), textbook_rattle(model, h, steps)
        apart = lambda a, b: np.max(np.abs(a - b), axis=(1, 2))
        self.between, self.from_textbook = apart(self.shake.q, self.rattle.q), apart(self.rattle.q, self.textbook.q)
        self.momenta = float(np.max(apart(self.rattle.p, self.textbook.p)))
        # λʳ of the step that begins at q_k, λᵛ of the one that ends there.
        self.mean = 0.5 * (self.textbook.positional[1:] + self.textbook.velocity[:-1])
        self.multipliers = np.asarray(self.shake.multipliers)[1:-1]


def off_tangent(model: Model, steps: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """max |G M⁻¹p| until t = 2 by SHAKE and by RATTLE, step by step."""
    go = lambda method, h: np.max(
        np.abs(simulate(model.system, model.q0, model.v0, method=method, dt=h, t_end=2.0).velocity_residual)
    )
    shake, rattle = (np.array([go(method, h) for h in steps]) for method in (Shake(), Rattle()))
    return shake, rattle


@experiment(
    PAPER,
    "shake-equals-rattle",
    "SHAKE and RATTLE: the same positions, λ = ½(λʳ + λᵛ), other momenta",
    "slides on SHAKE and RATTLE, (4) to (6)",
)
def shake_equals_rattle(quick: bool) -> Outcome:
    """A hundred steps of .02 beside RATTLE written in NumPy from the slides. A multiplier is a position over h², so that
    rounding leaves ε/h² = 6e-13 in it."""
    both = [Compared(name, 0.02, 100) for name in pendula()]
    steps = (0.04, 0.02, 0.01) if quick else (0.04, 0.02, 0.01, 0.005, 0.0025)
    shake, rattle = off_tangent(pendula()["triple pendulum"], steps)
    checks = []
    for x in both:
        checks += [
            Check(f"{x.name}: positions, SHAKE against RATTLE", x.between.max(), None, 1e-13, "below 1e-13"),
            Check(
                f"{x.name}: positions, RATTLE against the textbook", x.from_textbook.max(), None, 1e-13, "below 1e-13"
            ),
            Check(f"{x.name}: momenta, RATTLE against the textbook", x.momenta, None, 1e-13, "below 1e-13"),
            Check(
                f"{x.name}: λ of SHAKE against ½(λʳ + λᵛ)",
                np.max(np.abs(x.multipliers - x.mean)),
                None,
                50 * EPS / x.h**2,
                "below 50 ε/h² = 3e-11",
            ),
            Check.near(
                f"{x.name}: λʳ against λᵛ",
                np.max(np.abs(x.textbook.positional[1:] - x.textbook.velocity[:-1])),
                0.014,
                0.05,
                "0.014: they differ",
            ),
        ]
    checks += [
        Check("RATTLE: largest |G M⁻¹p|", rattle.max(), None, 1e-14, "below 1e-14"),
        Check.near("SHAKE: largest |G M⁻¹p|, h = 0.01", shake[2], 7.69e-5, 0.05, "7.7e-5: off the tangent space"),
        Check("SHAKE: |G M⁻¹p| as a power of h", np.polyfit(np.log(steps), np.log(shake), 1)[0], 1.99, 2.01, "2"),
    ]
    return Outcome(checks, draw_shake(both, steps, shake, rattle))


def draw_shake(both: list[Compared], steps: tuple[float, ...], shake: np.ndarray, rattle: np.ndarray) -> Figure:
    """Positions, multipliers, and what is left of the hidden constraint."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 4.2)
    same, multipliers, tangent = figure.subplots(1, 3)
    for k, x in enumerate(both):
        seen = lambda y: np.where(y > 0, y, np.nan)
        same.semilogy(seen(x.between), "o", ms=3.5, color=f"C{k}", label=f"{x.name}: SHAKE − RATTLE")
        same.semilogy(seen(x.from_textbook), "x", ms=4, color=f"C{k}", alpha=0.6, label=f"{x.name}: RATTLE − textbook")
    same.axhline(1e-13, color="0.5", lw=0.8, ls="--")
    same.set(
        ylim=(1e-17, 1e-11),
        xlabel="step",
        ylabel="largest difference of a coordinate",
        title=f"The same positions, h = {both[0].h:g}",
    )
    same.legend(frameon=False, fontsize=8, loc="upper left")
    x = both[0]
    t = x.h * np.arange(1, len(x.mean) + 1)
    exact = x.mean[:, 0]
    multipliers.plot(t, x.textbook.positional[1:, 0] - exact, lw=1.3, color="C2", label="RATTLE's λʳ")
    multipliers.plot(t, x.textbook.velocity[:-1, 0] - exact, lw=1.3, color="C4", label="RATTLE's λᵛ")
    multipliers.plot(t[::4], x.multipliers[::4, 0] - exact[::4], "k.", ms=4, label="SHAKE's λ")
    multipliers.set(
        xlabel="time", ylabel="distance from ½(λʳ + λᵛ)", title=f"Multipliers of the first link, h = {x.h:g}"
    )
    multipliers.legend(frameon=False, fontsize=8)
    tangent.loglog(steps, shake, "o-", ms=4, color="C0", label="SHAKE")
    tangent.loglog(steps, np.maximum(rattle, 1e-17), "s-", ms=4, color="C1", label="RATTLE")
    guide = np.array(steps)
    tangent.loglog(guide, 0.3 * shake[0] * (guide / guide[0]) ** 2, "k:", lw=1, label="h²")
    tangent.set(
        ylim=(1e-17, 1e-1),
        xlabel="step h",
        ylabel="largest |G M⁻¹p|, t ≤ 2",
        title="Momenta: off the tangent space or not",
    )
    tangent.set_xticks(steps, [f"{h:g}" for h in steps])
    tangent.set_xticks([], minor=True)
    tangent.legend(frameon=False, fontsize=8, loc="center right")
    for axes in (same, multipliers, tangent):
        axes.grid(alpha=0.25)
    figure.suptitle("SHAKE and RATTLE; middle and right: triple pendulum", fontsize=11)
    return figure


# --- RATTLE over other splittings -------------------------------------------------------------------------------------
BASES: dict[str, KickDrift] = {
    "Verlet": Verlet(),
    "two-stage, b = .211781": Splitting("two-stage"),
    "two-stage, b = .193183": Splitting("two-stage-minimum-error"),
    "three-stage": Splitting("three-stage"),
    "Verlet, drift form": Verlet(form="drift"),  # two solves of the constraint for a force; the others take one
}
SPAN = 10.0


def order(model: Model, base: KickDrift, at: Point, exact: np.ndarray, spacing: float) -> float:
    """The power of h in the error of the positions, from three steps, against the exact motion."""
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
    """The slides' ψ_h with several stages, constrained only where the step ends:   p̄ = p − Gᵀμ, (q, p̄) = ψ_h(q, p̄), g(q) = 0."""
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
GAINS = {
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
    """Structure on the triple pendulum in motion; energy error for the same number of forces on several problems. What is
    gained depends on the problem, and is lost where only the ends of steps are constrained."""
    bases = {label: base for label, base in BASES.items() if not quick or "stage, b" in label or label == "Verlet"}
    best, model = "two-stage, b = .193183", pendula()["triple pendulum"]
    at = measure.flow(Rattle(), model.system, Point(model.q0, model.v0), 0.02, 37)
    exact, checks = measure.independent_reference(model.system, at, 0.1 * np.arange(1, 11)).q, []
    for label, base in bases.items():
        method = Rattle(base)
        checks.append(Check(f"order over {label}", order(model, base, at, exact, 0.1), 1.99, 2.01, "2"))
        checks.append(
            Check(
                f"symmetry over {label}", measure.symmetry(method, model.system, at, 0.05), None, 1e-14, "below 1e-14"
            )
        )
        if not quick or label == best:
            checks.append(
                Check(
                    f"symplecticity on TM over {label}",
                    measure.symplecticity(method, model.system, at, 0.05),
                    None,
                    1e-14,
                    "below 1e-14",
                )
            )
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
    checks += [
        Check.near(f"gain per force over Verlet, {x.problem}: {label}", gain, GAINS[label][x.problem], 0.04)
        for x in gains
        for label, gain in x.everywhere.items()
    ]
    checks += [
        Check.near(
            f"the same, constrained at ends only, {x.problem}: {label}",
            gain,
            AT_ENDS[x.problem],
            0.06,
            f"about {AT_ENDS[x.problem]:g}: a loss",
        )
        for x in gains
        for label, gain in x.ends.items()
        if label in TWO_STAGE
    ]
    spacings = np.array([0.04, 0.02, 0.01] if quick else [0.04, 0.02, 0.01, 0.005])
    lines = {label: np.array([largest_error(model, base, s) for s in spacings]) for label, base in bases.items()}
    only = np.array([largest_error_at_ends(model, bases[best], s) for s in spacings])
    return Outcome(checks, draw_generalized(spacings, lines, only, gains))


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
