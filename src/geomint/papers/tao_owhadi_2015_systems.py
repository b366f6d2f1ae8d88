"""The systems of Tao and Owhadi's paper in motion: the penalised double pendulum, the chain, and DNA.

Observables are read at q = x + c a(x), `run.q_filtered`: there the penalised constraints hold to order ω⁻². RATTLE, whose
positions are those of the paper's SHAKE, moves the constrained systems themselves; the benchmark is the constrained motion,
by an unrelated method to about 1e-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import measure, models
from ..compilation import jit
from ..errors import RunStopped
from ..lagrange import derive
from ..measure import Point
from ..methods import Method, Newmark, Rattle, SimplifiedZhangSkeel, Verlet, ZhangSkeel
from ..models import Model
from ..penalty import penalize, recover_multipliers
from ..run import Trajectory, simulate
from .base import Check, Outcome, experiment
from .tao_owhadi_2015 import BETA, OMEGA, PAPER, pendulum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def constrained_motion(model: Model, times: np.ndarray) -> Point:
    """The exact motion on the constraint, from the model's initial data."""
    q, v = jnp.asarray(model.q0, float), jnp.asarray(model.v0, float)
    return measure.independent_reference(model.system, Point(np.asarray(q), np.asarray(derive(model.system, q.shape).momentum(v))), times)


def positions(run: Trajectory) -> np.ndarray:
    """Where the run is looked at: the filtered positions, if the method has them."""
    return np.asarray(run.columns.get("q_filtered", run.q))


# --- double pendulum --------------------------------------------------------------------------------------------------
class Row:
    """A row of Fig. 1: the errors of (x₂, y₂) and of the energy, every .1 until t = 50. Constrained methods need no springs."""

    def __init__(self, label: str, method: Method, dt: float, exact: np.ndarray):
        self.label, model = label, pendulum()
        system = model.system if method.traits.constrained else penalize(model.system, OMEGA)
        self.run = simulate(system, model.q0, model.v0, method=method, dt=dt, t_end=50.0, save_every=round(0.1 / dt))
        self.t = np.asarray(self.run.t)
        self.error = positions(self.run)[:, 1] - exact[:, 1]
        self.largest = float(np.max(np.abs(self.error)))
        self.energy = np.asarray(self.run.energy)


class Stiff:
    """Z&S at h = .01 for one ω: ω²|g| where it is read right and where it is not, and the multipliers of the first ten units of time."""

    def __init__(self, omega: float):
        model = pendulum()
        run = simulate(penalize(model.system, omega), model.q0, model.v0, method=ZhangSkeel(beta=BETA), dt=0.01, t_end=50.0)
        constraint = jax.vmap(derive(model.system, model.q0.shape).constraint)
        scaled = lambda q: omega**2 * np.asarray(constraint(jnp.asarray(q)))
        self.omega, self.raw = omega, scaled(run.q_filtered)
        self.at_q, self.at_x = (float(np.max(np.linalg.norm(scaled(q), axis=1))) for q in (run.q_filtered, run.q))
        self.multipliers = recover_multipliers(run, 0.2)[:1001]

    def rms(self, exact: np.ndarray) -> float:
        return float(np.sqrt(np.mean((self.multipliers - exact) ** 2)))


@experiment(PAPER, "double-pendulum", "Penalised double pendulum: coarse steps, satisfied constraints, recovered multipliers", "Figs. 1, 2a, 2b")
def double_pendulum(quick: bool) -> Outcome:
    """ω = 20, h = .1: Z&S is as good as Newmark solved to the end, and Newmark with one Newton step damps the motion to
    rest. RATTLE, without springs, is better than all of them."""
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
    stiff = {omega: Stiff(omega) for omega in ((20.0, 100.0, 500.0) if quick else (20.0, 35.0, 50.0, 70.0, 100.0, 140.0, 200.0, 350.0, 500.0))}
    mech = derive(pendulum().system, pendulum().q0.shape)
    multipliers = np.asarray(jax.vmap(mech.multipliers)(exact.q[:1001], exact.p[:1001]))  # unit masses: p = v
    ours = rows["Z&S"].run
    limits = {"RATTLE": 0.03, "Verlet, h = 0.005": 0.03, "Newmark": 0.15, "Z&S": 0.15, "Z&Ss": 0.2}
    checks = [Check(f"{label}: largest error of x₂, y₂", rows[label].largest, None, limit, f"below {limit:g}") for label, limit in limits.items()]
    checks += [
        Check("RATTLE: largest |g|", np.max(np.abs(rows["RATTLE"].run.constraint_residual)), None, 1e-14, "below 1e-14"),
        Check("RATTLE: multipliers, rms error", np.sqrt(np.mean((rows["RATTLE"].run.multipliers[:101] - multipliers[::10]) ** 2)), None, 0.05, "below 0.05"),
        Check("Z&S: largest error of T + V", np.max(np.abs(ours.energy_error)), None, 0.05, "below 0.05"),
        Check("Z&S: largest error of T + Ṽ", np.max(np.abs(ours.filtered_energy - ours.filtered_energy[0])), None, 4e-3, "below 0.004"),
        Check("Newmark, one Newton step: energy at t = 50", rows["Newmark, one Newton step"].energy[-1], None, -3.3, "below −3.3: damped from −3"),
        Check("smallest max ω²|g(q)|, ω = 20 … 500", min(x.at_q for x in stiff.values()), 1.5, 2.6, "1.5 … 2.6"),
        Check("largest max ω²|g(q)|, ω = 20 … 500", max(x.at_q for x in stiff.values()), 1.5, 2.6, "1.5 … 2.6"),
        Check("max ω²|g(x)| at ω = 500", stiff[500.0].at_x, 10.0, None, "grows, to about 30"),
        Check("multipliers, ω = 20: rms error", stiff[20.0].rms(multipliers), None, 0.1, "below 0.1"),
        Check("multipliers, ω = 500: rms error", stiff[500.0].rms(multipliers), None, 0.02, "below 0.02"),
    ]
    return Outcome(checks, draw_pendulum(list(rows.values()), list(stiff.values()), multipliers))


def draw_pendulum(rows: list[Row], stiff: list[Stiff], multipliers: np.ndarray) -> Figure:
    """Fig. 1 on the left, Figs. 2a and 2b on the right."""
    from ..plots import new_figure

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
    figure.suptitle(f"Double pendulum, h = 0.1 against the constrained motion; springs of ω = {OMEGA:g} except under RATTLE, β = {BETA:g}", fontsize=11)
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
    axes.set(xlim=(0, 10), ylim=(-0.4, 3.0), xlabel="time", ylabel="multiplier", title=f"Fig. 2b: multipliers, ω = {stiff.omega:g}, window 0.2, rms {stiff.rms(exact):.3f}")
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center")
    axes.grid(alpha=0.25)


# --- chain --------------------------------------------------------------------------------------------------------------
@experiment(PAPER, "chain", "Ten pendula in a chain: Z&S on springs beside the constrained motion", "Fig. 3")
def chain(quick: bool) -> Outcome:
    """n = 10, ω = 20, β = .4, h = .05. The band of the Hessian is found, and a step costs O(n)."""
    from ..plots import new_figure

    model: Any = models.chain(10)
    dt, t_end = 0.05, 50.0 if quick else 100.0
    exact = constrained_motion(model, dt * np.arange(round(t_end / dt) + 1))
    run = simulate(penalize(model.system, OMEGA), model.q0, model.v0, method=ZhangSkeel(beta=BETA), dt=dt, t_end=t_end)
    rattle = {h: simulate(model.system, model.q0, model.v0, method=Rattle(), dt=h, t_end=t_end, save_every=round(dt / h)).q for h in (0.05, 0.025, 0.01)}
    largest = lambda q, other: np.max(np.abs(q - other), axis=(1, 2))
    apart = {"Z&S, h = 0.05": largest(positions(run), exact.q)} | {f"RATTLE, h = {h:g}": largest(q, exact.q) for h, q in rattle.items()}
    beside = largest(positions(run), rattle[0.01])
    until = lambda y, t: y[: round(t / dt) + 1].max()
    bounds = {10: 0.03, 50: 0.06} | ({} if quick else {100: 0.12})
    checks = [Check(f"Z&S against RATTLE (h = 0.01): largest deviation of a coordinate, t ≤ {t}", until(beside, t), None, most, f"below {most:g}") for t, most in bounds.items()]
    checks.append(Check("Z&S against the constrained motion, t ≤ 50", until(apart["Z&S, h = 0.05"], 50), None, 0.06, "below 0.06"))
    checks += [Check(f"RATTLE, h = {h:g}, against the constrained motion, t ≤ 50", until(apart[f"RATTLE, h = {h:g}"], 50), None, 2.4 * h**2, f"below 2.4 h² = {2.4 * h**2:.2g}") for h in rattle]
    figure = new_figure(12.0, 6.0)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.6, 1), width_ratios=(2.6, 1))
    coordinates, deviation, shape = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[:, 1])
    for k, link in enumerate((0, 2, 4, 6, 9)):
        coordinates.plot(run.t, exact.q[:, link, 0], color="k", lw=0.8, label="constrained" if k == 0 else None)
        coordinates.plot(run.t[::10], positions(run)[::10, link, 0], ".", ms=3.5, color=f"C{k}", label=f"pendulum {link + 1}")
    coordinates.set(xlim=(0, t_end), ylim=(-12, 16), ylabel="x", title="Z&S at h = 0.05, ω = 20 (dots); constrained motion (lines)")
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
    return Outcome(checks, figure)


# --- DNA ----------------------------------------------------------------------------------------------------------------
REST = float(np.arccos(0.7))  # the closed strand; its mirror is 2π − REST
SOFT = ZhangSkeel(beta=0.3)


class Opening:
    """A run of the DNA model from the noise of a seed; `stopped` is the time at which it was lost."""

    def __init__(self, system: Any, seed: int, method: Method, dt: float, t_end: float, save_every: int = 1):
        model = models.dna(seed=seed)
        blocks = round(t_end / dt / save_every)
        self.dt, self.stopped = dt, np.inf
        try:
            run = simulate(system, model.q0, model.v0, method=method, dt=dt, t_end=blocks * save_every * dt, save_every=save_every)
        except RunStopped as stop:
            run, self.stopped = stop.run, float(stop.time or 0.0)
        self.t, self.energy = np.asarray(run.t), np.asarray(run.energy)
        self.kept = np.asarray(run.columns.get("filtered_energy", run.energy))
        self.angle, self.rate = np.mean(run.q, axis=1), np.mean(run.p, axis=1)

    @property
    def transition(self) -> float:
        """The first time at which the mean angle passes π, half-way between the two rests; between saved points by a straight line."""
        after = int(np.argmax(self.angle > np.pi))
        if self.angle[after] <= np.pi:
            return np.nan
        return float(np.interp(np.pi, self.angle[after - 1 : after + 1], self.t[after - 1 : after + 1]))


def verlet_limit() -> float:
    """Verlet's 2/ω where the Morse potential is steepest, all angles equal: the fastest mode alternates in sign."""
    ring, mode = derive(models.dna(8).system, (8,)), jnp.asarray([1.0, -1.0] * 4)
    square = jax.vmap(lambda angle: jnp.mean(mode * ring.hessian_product(jnp.full(8, angle), mode)))
    return float(2 / jnp.sqrt(jnp.max(square(jnp.linspace(0, np.pi, 2001)))))


def stiffness_on_the_hump(steps: np.ndarray) -> np.ndarray:
    """h²λ, λ the largest eigenvalue of Hess Ṽ with one angle at 0, on top of the Morse hump, and the others at rest: Verlet on
    Ṽ is stable while it is below 4."""
    ring, x = derive(models.dna(6).system, (6,)), jnp.full(6, REST).at[0].set(0.0)
    hessian = jit(jax.vmap(lambda h: -jax.jacfwd(lambda y: SOFT.filter(ring, y, h).force)(x)))
    return steps**2 * np.linalg.eigvalsh(np.asarray(hessian(jnp.asarray(steps))))[:, -1]


@experiment(PAPER, "dna", "The opening of DNA at steps of h = 1.8, and what becomes of it", "Fig. 8")
def dna(quick: bool) -> Outcome:
    """N = 200. The strand opens when Verlet says, within 15 %. At the paper's h = 2 the run is lost; at h = 1.8 it is lost
    later, since an angle on the Morse hump makes Hess Ṽ stiffer than h allows, from h = 1.22 on."""
    system, t_end = models.dna().system, 500.0 if quick else 10_000.0
    every = 1 if quick else 5
    verlet = [Opening(system, seed, Verlet(), 0.2, t_end if seed == 0 else 500.0, 1 if seed else every) for seed in range(3)]
    coarse = [Opening(system, seed, SOFT, 1.8, t_end if seed == 0 else 500.0) for seed in range(3)]
    lost = [Opening(system, 0, SOFT, dt, 500.0 if quick else 20_000.0, 5) for dt in (1.0, 1.8, 2.0)]
    steps = np.linspace(0.2, 2.3, 422)
    stiffness = stiffness_on_the_hump(steps)
    checks = [Check(f"Verlet, h = 0.2, seed {k}: mean angle passes π", x.transition, 82.0, 96.0, "82 … 96") for k, x in enumerate(verlet)]
    checks += [Check(f"Z&S, h = 1.8, seed {k}: the same, over Verlet's", x.transition / verlet[k].transition, 1.0, 1.2, "1 … 1.2: later") for k, x in enumerate(coarse)]
    checks += [
        Check("median T + V of Z&S over Verlet's", np.median(coarse[0].energy) / np.median(verlet[0].energy), None, 1.0, "below 1"),
        Check("Z&S, h = 1: largest T + Ṽ over the smallest", lost[0].kept.max() / lost[0].kept.min(), None, 1.5, "below 1.5: bounded"),
        Check("Verlet: linear step limit at the steepest angle", verlet_limit(), 0.9675, 0.9685, "0.968, not 0.2"),
        Check("Z&S: step at which h²λ(Hess Ṽ) passes 4 on the hump", steps[np.argmax(stiffness > 4)], 1.2, 1.24, "about 1.22"),
    ]
    if not quick:
        checks.append(Check("Z&S, h = 2: the run is lost at t", lost[2].stopped, None, 20_000.0, "before 20,000"))
    return Outcome(checks, draw_dna(verlet, coarse, lost, steps, stiffness))


def draw_dna(verlet: list[Opening], coarse: list[Opening], lost: list[Opening], steps: np.ndarray, stiffness: np.ndarray) -> Figure:
    """Fig. 8 above; when it opens, what is kept and why it is lost below."""
    from ..plots import envelope, new_figure

    figure = new_figure(13.0, 7.0)
    panels = figure.subplots(2, 3)
    angle, portrait, energy, first, kept, hump = panels.ravel()
    both = ((verlet, "Verlet, h = 0.2", "C0"), (coarse, "Z&S, h = 1.8", "C1"))
    for runs, label, color in both:
        angle.plot(*envelope(runs[0].t, runs[0].angle, 1500), lw=0.9, color=color, label=label)
        portrait.plot(runs[0].angle, runs[0].rate, lw=0.4, alpha=0.8, color=color)
        energy.plot(*envelope(runs[0].t, runs[0].energy, 1500), lw=0.7, color=color)
        for k, run in enumerate(runs):
            early = run.t <= 200
            first.plot(run.t[early], run.angle[early], lw=1.1, ls=("-", "--", ":")[k], color=color, label=f"{label}, seed {k}" if k else label)
    for level in (REST, 2 * np.pi - REST):
        angle.axhline(level, color="0.6", lw=0.8, ls="--")
    first.axhline(np.pi, color="0.6", lw=0.8, ls="--")
    for run, color in zip(lost, ("C2", "C1", "C3"), strict=True):
        sane = run.kept < 1e3
        kept.semilogy(run.t[sane], run.kept[sane], lw=0.7, color=color, label=f"h = {run.dt:g}" + (f", lost at {run.stopped:.0f}" if np.isfinite(run.stopped) else ""))
    hump.semilogy(steps, stiffness, color="C1", lw=1.4)
    hump.axhline(4, color="0.4", lw=0.8, ls="--")
    angle.set(xlabel="time", ylabel="mean angle", title="Mean angle, seed 0", ylim=(0, 7.6))
    portrait.set(xlabel="mean angle", ylabel="mean velocity", title="Phase portrait")
    energy.set(xlabel="time", ylabel="T + V", title="Energy")
    first.set(xlabel="time", ylabel="mean angle", title="The first opening, seeds 0 to 2")
    kept.set(xlabel="time", ylabel="T + Ṽ", title="Z&S: what is kept, until it is not")
    hump.set(xlabel="step h", ylabel="h² λ", title="Hess Ṽ with one angle on the hump\n(Verlet on Ṽ is stable below 4)")
    angle.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
    first.legend(frameon=False, fontsize=7)
    kept.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in panels.ravel():
        axes.grid(alpha=0.25)
    figure.suptitle("DNA, 200 base pairs, β = 0.3", fontsize=11)
    return figure
