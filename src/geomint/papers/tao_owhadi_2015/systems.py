"""The penalised double pendulum (Figs. 1 and 2) and the chain (Fig. 3).

Observables are evaluated at q = x + c a(x), `run.q_filtered`, where the penalised constraints hold to order ω⁻².
RATTLE, whose positions are those of the paper's SHAKE, integrates the constrained systems themselves. The reference is
the constrained motion, by an independent method to about 1e-11.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis import measure
from ...analysis.measure import Point
from ...analysis.penalty import penalize, recover_multipliers
from ...manifold.projection import project
from ...methods import Method, Newmark, Rattle, SimplifiedZhangSkeel, Verlet, ZhangSkeel
from ...models import Model
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .structure import BETA, OMEGA, PAPER, pendulum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def constrained_motion(model: Model, times: np.ndarray) -> Point:
    """The exact motion on the constraint, from the model's initial data."""
    q, v = jnp.asarray(model.q0, float), jnp.asarray(model.v0, float)
    return measure.independent_reference(
        model.system, Point(np.asarray(q), np.asarray(derive(model.system, q.shape).momentum(v))), times
    )


def positions(run: Trajectory) -> np.ndarray:
    """The positions at which observables are evaluated: the filtered ones, if the method has them."""
    return np.asarray(run.columns.get("q_filtered", run.q))


def kept_energy(run: Trajectory) -> np.ndarray:
    """T + Ṽ, which filtered methods conserve, or T + V where the method has no Ṽ."""
    return np.asarray(run.columns.get("filtered_energy", run.energy))


# --- double pendulum --------------------------------------------------------------------------------------------------
class Row:
    """A row of Fig. 1: the errors of (x₂, y₂) and of the energy, every .1 until t = 50. Constrained methods need no
    springs."""

    def __init__(self, label: str, method: Method, dt: float, exact: np.ndarray):
        self.label, model = label, pendulum()
        system = model.system if method.traits.constrained else penalize(model.system, OMEGA)
        self.run = simulate(system, model.q0, model.v0, method=method, dt=dt, t_end=50.0, save_every=round(0.1 / dt))
        self.t = np.asarray(self.run.t)
        self.error = positions(self.run)[:, 1] - exact[:, 1]
        self.largest = float(np.max(np.abs(self.error)))
        self.energy = np.asarray(self.run.energy)


class Stiff:
    """Z&S at h = .01 for one ω: ω²|g| at the filtered and at the plain positions, and the multipliers up to t = 10."""

    def __init__(self, omega: float):
        model = pendulum()
        run = simulate(
            penalize(model.system, omega), model.q0, model.v0, method=ZhangSkeel(beta=BETA), dt=0.01, t_end=50.0
        )
        constraint = jax.vmap(derive(model.system, model.q0.shape).constraint)
        scaled = lambda q: omega**2 * np.asarray(constraint(jnp.asarray(q)))
        self.omega, self.raw = omega, scaled(run.q_filtered)
        self.at_q, self.at_x = (float(np.max(np.linalg.norm(scaled(q), axis=1))) for q in (run.q_filtered, run.q))
        self.multipliers = recover_multipliers(run, 0.2)[:1001]

    def rms(self, exact: np.ndarray) -> float:
        return float(np.sqrt(np.mean((self.multipliers - exact) ** 2)))


def sensitivity(sign: float) -> float:
    """The largest change of a coordinate up to t = 40 after a rotation of the first rod by 1e-8, with the potential
    ±V; RATTLE at h = .01."""
    model = pendulum()
    system = dataclasses.replace(model.system, potential=lambda q: sign * model.system.potential(q))
    starts = (model.q0, model.q0 + 1e-8 * np.array([-model.q0[0, 1], model.q0[0, 0]]))  # both masses move by as much
    go = lambda q: simulate(system, *project(system, q, model.v0), method=Rattle(), dt=0.01, t_end=40.0, save_every=10)
    first, second = map(go, starts)
    return float(np.max(np.abs(first.q - second.q)))


# Largest error of x₂, y₂ and of the energy up to t = 50.
PENDULUM = {
    "RATTLE": (0.0220, 0.0019),
    "Verlet, h = 0.005": (0.0234, 6.6e-6),
    "Newmark": (0.1028, 0.0073),
    "Newmark, one Newton step": (0.561, 0.363),
    "Z&S": (0.0942, 0.0267),
    "Z&Ss": (0.1479, 0.017),
}


@experiment(
    PAPER,
    "double-pendulum",
    "Penalised double pendulum: coarse steps, satisfied constraints, recovered multipliers",
    "Figs. 1, 2a, 2b",
)
def double_pendulum(quick: bool) -> Outcome:
    """ω = 20, h = .1: Z&S is as accurate as fully solved Newmark; Newmark with one Newton step damps the motion to
    rest. RATTLE, without springs, is more accurate than all of them."""
    exact = constrained_motion(pendulum(), 0.01 * np.arange(5001))
    methods: dict[str, tuple[Method, float]] = {
        "RATTLE": (Rattle(), 0.1),
        "Verlet, h = 0.005": (Verlet(), 0.005),
        "Newmark": (Newmark(beta=BETA), 0.1),
        "Newmark, one Newton step": (Newmark(beta=BETA, newton_steps=1), 0.1),
        "Z&S": (ZhangSkeel(beta=BETA), 0.1),
        "Z&Ss": (SimplifiedZhangSkeel(beta=BETA), 0.1),
    }
    rows = {label: Row(label, method, dt, exact.q[::10]) for label, (method, dt) in methods.items()}
    stiff = {
        omega: Stiff(omega)
        for omega in ((20.0, 100.0, 500.0) if quick else (20.0, 35.0, 50.0, 70.0, 100.0, 140.0, 200.0, 350.0, 500.0))
    }
    mech = derive(pendulum().system, pendulum().q0.shape)
    multipliers = np.asarray(jax.vmap(mech.multipliers)(exact.q[:1001], exact.p[:1001]))  # unit masses: p = v
    checks = row_checks(rows, multipliers) + stiff_checks(stiff, multipliers)
    if not quick:
        checks += sensitivity_checks()
    return Outcome(checks, draw_pendulum(list(rows.values()), list(stiff.values()), multipliers))


def row_checks(rows: dict[str, Row], multipliers: np.ndarray) -> list[Check]:
    """The errors of the methods of Fig. 1, and what RATTLE and Z&S conserve."""
    ours = rows["Z&S"].run
    checks = [
        Check.near(f"{label}: largest error of x₂, y₂", rows[label].largest, value, 0.05)
        for label, (value, _) in PENDULUM.items()
    ]
    checks += [
        Check.near(f"{label}: largest error of the energy", np.max(np.abs(rows[label].run.energy_error)), value, 0.05)
        for label, (_, value) in PENDULUM.items()
    ]
    checks += [
        Check(
            "RATTLE: largest |g|",
            np.max(np.abs(rows["RATTLE"].run.constraint_residual)),
            (None, 1e-14),
            note="below 1e-14",
        ),
        Check.near(
            "RATTLE: multipliers, rms error",
            np.sqrt(np.mean((rows["RATTLE"].run.multipliers[:101] - multipliers[::10]) ** 2)),
            0.00675,
            0.05,
        ),
        Check.near(
            "Z&S: largest error of T + Ṽ", np.max(np.abs(kept_energy(ours) - kept_energy(ours)[0])), 0.00187, 0.05
        ),
        Check.near(
            "Newmark, one Newton step: energy at t = 50",
            rows["Newmark, one Newton step"].energy[-1],
            -3.36,
            0.005,
            note="−3.36: damped from −3",
        ),
    ]
    return checks


def stiff_checks(stiff: dict[float, Stiff], multipliers: np.ndarray) -> list[Check]:
    """Constraints and multipliers of Z&S with springs of rising stiffness (Figs. 2a and 2b)."""
    return [
        Check.near("smallest max ω²|g(q)|, ω = 20 … 500", min(x.at_q for x in stiff.values()), 1.84, 0.03),
        Check.near("largest max ω²|g(q)|, ω = 20 … 500", max(x.at_q for x in stiff.values()), 2.42, 0.03),
        Check.near("max ω²|g(x)| at ω = 500", stiff[500.0].at_x, 30.7, 0.05, note="30.7: it grows"),
        Check.near("multipliers, ω = 20: rms error", stiff[20.0].rms(multipliers), 0.0341, 0.05),
        Check.near("multipliers, ω = 500: rms error", stiff[500.0].rms(multipliers), 0.00475, 0.05),
    ]


def sensitivity_checks() -> list[Check]:
    """The sign of the potential decides whether the motion is chaotic."""
    return [
        Check(
            "as printed, V = −Σy: what becomes of a turn by 1e-8 by t = 40",
            sensitivity(-1.0),
            (1e-2, 4.0),
            note="0.14: chaotic",
            rtol=None,
        ),
        Check(
            "with V = +Σy: what becomes of a turn by 1e-8 by t = 40",
            sensitivity(1.0),
            (2e-8, 2e-7),
            note="7e-8: it hardly grows",
            rtol=0.2,
        ),
    ]


def draw_pendulum(rows: list[Row], stiff: list[Stiff], multipliers: np.ndarray) -> Figure:
    """Fig. 1 on the left, Figs. 2a and 2b on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 8.8)
    left, right = figure.add_gridspec(1, 2, width_ratios=(1.45, 1))
    strips = left.subgridspec(len(rows), 2)
    for k, row in enumerate(rows):
        for column in range(2):
            axes = figure.add_subplot(strips[k, column])
            if column == 0:
                axes.plot(row.t, row.error[:, 0], lw=0.9, color="C0", label="x₂")
                axes.plot(row.t, row.error[:, 1], lw=0.9, color="C1", label="y₂")
                axes.set_ylabel("error")
                axes.set_title(f"{row.label}: at most {row.largest:.3f}", fontsize=9)
            else:
                axes.plot(row.t, row.energy, lw=0.9, color="C2", label="T + V")
                soft = row.run.columns.get("filtered_energy")
                if soft is not None:
                    axes.plot(row.t, soft, lw=0.9, color="C3", label="T + Ṽ")
                    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper right")
                axes.set(ylim=(-3.4, -2.93) if row.energy.min() < -3.1 else (-3.04, -2.96))
                axes.set_title("energy", fontsize=9)
            axes.margins(x=0)
            axes.grid(alpha=0.25)
            axes.tick_params(labelbottom=k == len(rows) - 1, labelsize=8)
            if k == len(rows) - 1:
                axes.set_xlabel("time")
            if k == column == 0:
                axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper left")
    panels = right.subgridspec(2, 1)
    draw_constraints(figure.add_subplot(panels[0]), stiff)
    draw_multipliers(figure.add_subplot(panels[1]), stiff[0], multipliers)
    figure.suptitle(
        "Double pendulum, h = 0.1 against the constrained motion; "
        f"springs of ω = {OMEGA:g} except under RATTLE, β = {BETA:g}",
        fontsize=11,
    )
    return figure


def draw_constraints(axes: Axes, stiff: list[Stiff]) -> None:
    omega = [x.omega for x in stiff]
    axes.loglog(omega, [x.at_q for x in stiff], "o-", ms=4, color="C0", label="at q = x + c a(x)")
    axes.loglog(omega, [x.at_x for x in stiff], "s--", ms=4, color="C3", label="at x")
    axes.set(ylim=(1, 50), xlabel="ω", ylabel="largest ω²|g|, t ≤ 50", title="Fig. 2a: constraints, h = 0.01")
    axes.set_xticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)


def draw_multipliers(axes: Axes, stiff: Stiff, exact: np.ndarray) -> None:
    t = 0.01 * np.arange(len(exact))
    for k in range(2):
        axes.plot(t, stiff.raw[: len(t), k], lw=0.5, color=f"C{k}", alpha=0.35, label="ω²g" if k == 0 else None)
        axes.plot(t, stiff.multipliers[:, k], lw=1.5, color=f"C{k}", label=f"λ{'₁₂'[k]}, averaged")
        axes.plot(t, exact[:, k], lw=1.2, color="k", ls=":", label="exact" if k == 0 else None)
    axes.set(
        xlim=(0, 10),
        ylim=(-0.4, 3.0),
        xlabel="time",
        ylabel="multiplier",
        title=f"Fig. 2b: multipliers, ω = {stiff.omega:g}, window 0.2, rms {stiff.rms(exact):.3f}",
    )
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center")
    axes.grid(alpha=0.25)


# --- chain ------------------------------------------------------------------------------------------------------------
DEVIATIONS = {10: 0.0150, 50: 0.0338, 100: 0.0656}  # of Z&S by t
RATTLE_STEPS = (0.05, 0.025, 0.01)
RATTLE_DEVIATIONS = {10: 0.28, 50: 1.29, 100: 3.19}  # of RATTLE by t, over h²


@experiment(PAPER, "chain", "Ten pendula in a chain: Z&S on springs beside the constrained motion", "Fig. 3")
def chain(quick: bool) -> Outcome:
    """n = 10, ω = 20, β = .4, h = .05. The Hessian is found to be banded, so that a step costs O(n)."""
    model: Any = models.chain(10)
    dt, t_end = 0.05, 50.0 if quick else 100.0
    exact = constrained_motion(model, dt * np.arange(round(t_end / dt) + 1))
    run = simulate(penalize(model.system, OMEGA), model.q0, model.v0, method=ZhangSkeel(beta=BETA), dt=dt, t_end=t_end)
    rattle = {
        h: simulate(model.system, model.q0, model.v0, method=Rattle(), dt=h, t_end=t_end, save_every=round(dt / h)).q
        for h in RATTLE_STEPS
    }
    largest = lambda q, other: np.max(np.abs(q - other), axis=(1, 2))
    apart = {"Z&S, h = 0.05": largest(positions(run), exact.q)} | {
        f"RATTLE, h = {h:g}": largest(q, exact.q) for h, q in rattle.items()
    }
    beside = largest(positions(run), rattle[0.01])
    checks = chain_checks(apart, beside, dt, (10, 50) if quick else (10, 50, 100))
    kept = kept_energy(run)[: round(50 / dt) + 1]
    checks.append(
        Check.near(
            "Z&S: largest error of T + Ṽ, t ≤ 50",
            np.max(np.abs(kept - kept[0])),
            0.00225,
            0.06,
            note="0.00225; Z&Ss has 0.0098",
        )
    )
    return Outcome(checks, draw_chain(run, exact.q, apart))


def chain_checks(apart: dict[str, np.ndarray], beside: np.ndarray, dt: float, times: tuple[int, ...]) -> list[Check]:
    """The largest deviations until each of the times."""
    until = lambda y, t: y[: round(t / dt) + 1].max()
    checks = [
        Check.near(
            f"Z&S against RATTLE (h = 0.01): largest deviation of a coordinate, t ≤ {t}",
            until(beside, t),
            DEVIATIONS[t],
            0.03,
        )
        for t in times
    ]
    checks += [
        Check.near(
            f"Z&S against the constrained motion, t ≤ {t}", until(apart["Z&S, h = 0.05"], t), DEVIATIONS[t], 0.03
        )
        for t in times
    ]
    for h in RATTLE_STEPS:
        checks += [
            Check.near(
                f"RATTLE, h = {h:g}, against the constrained motion, t ≤ {t}",
                until(apart[f"RATTLE, h = {h:g}"], t),
                RATTLE_DEVIATIONS[t] * h**2,
                0.05,
                note=f"{RATTLE_DEVIATIONS[t]:g} h²",
            )
            for t in times
        ]
    return checks


def draw_chain(run: Trajectory, exact: np.ndarray, apart: dict[str, np.ndarray]) -> Figure:
    """The coordinates of some links, the deviations from the exact motion, and the shape at four times."""
    from ...plots.figures import new_figure

    dt, t_end = run.dt, float(run.t[-1])
    figure = new_figure(12.0, 6.0)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.6, 1), width_ratios=(2.6, 1))
    coordinates, deviation, shape = (
        figure.add_subplot(grid[0, 0]),
        figure.add_subplot(grid[1, 0]),
        figure.add_subplot(grid[:, 1]),
    )
    for k, link in enumerate((0, 2, 4, 6, 9)):
        coordinates.plot(run.t, exact[:, link, 0], color="k", lw=0.8, label="constrained" if k == 0 else None)
        coordinates.plot(
            run.t[::10], positions(run)[::10, link, 0], ".", ms=3.5, color=f"C{k}", label=f"pendulum {link + 1}"
        )
    coordinates.set(
        xlim=(0, t_end), ylim=(-12, 16), ylabel="x", title="Z&S at h = 0.05, ω = 20 (dots); constrained motion (lines)"
    )
    coordinates.legend(frameon=False, fontsize=8, ncols=6, loc="upper center", columnspacing=1.2, handletextpad=0.4)
    for k, (label, y) in enumerate(apart.items()):
        deviation.semilogy(run.t, np.where(y > 0, y, np.nan), lw=0.9, color=f"C{k}", label=label)
    deviation.set(xlim=(0, t_end), ylim=(1e-6, 3), xlabel="time", ylabel="largest deviation")
    deviation.legend(frameon=False, fontsize=8, ncols=4, loc="upper center")
    for k, t in enumerate((0, 10, 30, 50)):
        rope = np.concatenate([np.zeros((1, 2)), positions(run)[round(t / dt)]])
        shape.plot(rope[:, 0], rope[:, 1], "o-", ms=3, lw=1, color=f"C{k}", label=f"t = {t}")
    shape.set(xlabel="x", ylabel="y", title="The chain")
    shape.set_aspect("equal", adjustable="datalim")
    shape.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in (coordinates, deviation, shape):
        axes.grid(alpha=0.25)
    return figure
