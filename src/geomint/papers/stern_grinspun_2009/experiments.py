"""Stern, Grinspun: Implicit-explicit variational integration of highly oscillatory problems, Multiscale Model. Simul. 7
(2009) 1779.

IMEX takes the slow potential V at the ends of a step and the fast W in the middle. With a quadratic W it is Verlet with the
mass M + (hΩ/2)², and has no resonances.

The Fermi–Pasta–Ulam chain hands the energy of its stiff springs

    I_j = ½ (p₁ⱼ² + ω² q₁ⱼ²),     I = I₁ + I₂ + I₃,

from the first to the last on the time scale ω, while their sum I is an adiabatic invariant. A method that does not
resolve the fast frequency must still keep both: the exchange is what the mollified and the fully implicit methods lose.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...errors import RunStopped
from ...methods import (
    IMEX,
    RESPA,
    Composition,
    Gautschi,
    ImplicitMidpoint,
    Impulse,
    Method,
    MollifiedImpulse,
    Trigonometric,
    Verlet,
)
from ...run import ensemble, simulate
from ...system.mechanics import Mechanics
from ...system.system import System
from ..base import Check, Information, Outcome, experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "stern-grinspun-2009"
OMEGA = 50.0


# --- the energies of the stiff springs ------------------------------------------------------------------------------
@functools.cache
def stiff_springs() -> models.Model:
    """The chain, one and the same for all runs, so that a method is compiled for it once."""
    return models.fpu(omega=OMEGA)


class OscillatoryEnergies:
    """I_j and I of a run of the chain over time."""

    def __init__(self, label: str, method: Method, dt: float, t_end: float, save_every: int = 1):
        self.label, self.dt = label, dt
        chain = stiff_springs()
        steps = round(t_end / dt) // save_every * save_every  # the last saved point at or just before t_end
        run = simulate(chain.system, chain.q0, chain.v0, method=method, dt=dt, t_end=steps * dt, save_every=save_every)
        self.t = np.asarray(run.t)
        self.parts = 0.5 * (np.asarray(run.p)[:, 1] ** 2 + OMEGA**2 * np.asarray(run.q)[:, 1] ** 2)
        self.total = self.parts.sum(axis=1)

    @property
    def lead(self) -> np.ndarray:
        """I₁ − I₃: positive until the first spring has handed its energy on."""
        return self.parts[:, 0] - self.parts[:, 2]

    @property
    def exchange_time(self) -> float:
        """The first time at which I₁ = I₃, between saved points by a straight line; NaN where it does not come."""
        after = int(np.argmax(self.lead < 0))
        if self.lead[after] >= 0:
            return float("nan")
        before = after - 1
        return float(
            self.t[before]
            + (self.t[after] - self.t[before]) * self.lead[before] / (self.lead[before] - self.lead[after])
        )


def draw_energies(axes: Axes, x: OscillatoryEnergies) -> None:
    """I₁, I₂, I₃ and I over time."""
    from ...plots.figures import envelope

    lines = {
        "I = I₁ + I₂ + I₃": x.total,
        "I₁": x.parts[:, 0],
        "I₂": x.parts[:, 1],
        "I₃": x.parts[:, 2],
    }  # the sum behind its parts
    for (name, y), color in zip(lines.items(), ("0.6", "C0", "C1", "C2"), strict=True):
        axes.plot(*envelope(x.t, y), lw=0.8, color=color, label=name)
    axes.set(xlim=(x.t[0], x.t[-1]))
    axes.set_title(x.label, fontsize=10)
    axes.grid(alpha=0.25)


def draw_exchange(panels: list[OscillatoryEnergies], columns: int = 3) -> Figure:
    """A panel for each run."""
    from ...plots.figures import new_figure

    rows = -(-len(panels) // columns)
    figure = new_figure(4.2 * columns, 3.2 * rows + 0.6)
    top = min(2.2, max(1.2, *(1.05 * float(np.nanmax(x.total)) for x in panels)))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, x in zip(grid.flat, panels, strict=False):
        draw_energies(axes, x)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    grid[0, 0].set_ylim(0, top)
    for axes in grid[:, 0]:
        axes.set_ylabel("oscillatory energy")
    for axes in grid[-1]:
        axes.set_xlabel("time")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Fermi–Pasta–Ulam chain, three stiff springs, ω = {OMEGA:g}", fontsize=11)
    return figure


@experiment(
    PAPER,
    "fpu-baselines",
    "FPU chain: slow energy exchange, resolved and missed by the usual methods",
    "FPU: reference, Störmer/Verlet, midpoint",
)
def fpu_baselines(quick: bool) -> Outcome:
    """The exchange by a converged reference; Verlet at a step that resolves the stiff springs poorly (hω = 1.5) loses the
    invariant, and the implicit midpoint rule, stable at hω = 5, loses the exchange."""
    reference = Composition(Verlet(), order=8)
    exact = (
        OscillatoryEnergies("reference", reference, 0.02, 200.0, 5)
        if quick
        else OscillatoryEnergies("reference", reference, 0.005, 200.0, 20)
    )
    verlet = OscillatoryEnergies("Störmer/Verlet, h = 0.03", Verlet(), 0.03, 200.0)
    midpoint = OscillatoryEnergies("implicit midpoint, h = 0.1", ImplicitMidpoint(), 0.1, 200.0)
    checks = [
        Check.near("reference: smallest I", exact.total.min(), 0.9376, 0.003),
        Check.near("reference: largest I", exact.total.max(), 1.0623, 0.003),
        Check.near("reference: first time I₁ = I₃", exact.exchange_time, 77.38, 0.003),
        Check.near("Verlet, h = 0.03: largest I", verlet.total.max(), 1.67, 0.04, "1.67: the invariant is lost"),
        Check.near(
            "midpoint, h = 0.1: smallest I₁ − I₃", midpoint.lead.min(), 0.791, 0.03, "0.79, above 0: no exchange"
        ),
    ]
    return Outcome(checks, draw_exchange([exact, verlet, midpoint]))


@experiment(
    PAPER,
    "fpu",
    "FPU chain: IMEX keeps invariant and exchange at steps that do not resolve the stiff springs",
    "FPU: reference, Störmer/Verlet and IMEX at nine steps",
)
def fpu(quick: bool) -> Outcome:
    """The nine panels of the slides, to t = 200; the first is Verlet with 126 steps in each fast period."""
    saved_every = {0.001: 20, 0.03: 1} if quick else {0.001: 20, 0.01: 2, 0.03: 1}
    verlet = {
        h: OscillatoryEnergies(f"Störmer/Verlet, h = {h:g}", Verlet(), h, 200.0, every)
        for h, every in saved_every.items()
    }
    imex = {
        h: OscillatoryEnergies(f"IMEX, h = {h:g}", IMEX(), h, 200.0)
        for h in ((0.1, 0.3) if quick else (0.03, 0.1, 0.15, 0.2, 0.25, 0.3))
    }
    checks = [
        check for h, x in verlet.items() for check in exchange_checks(f"Verlet, h = {h:g}", x, VERLET_EXPECTED[h])
    ]
    checks += [check for h, x in imex.items() for check in exchange_checks(f"IMEX, h = {h:g}", x, IMEX_EXPECTED[h])]
    return Outcome(checks, draw_exchange([*verlet.values(), *imex.values()]))


# By the step: smallest I, largest I, and the first time I₁ = I₃, to t = 200.
VERLET_EXPECTED = {0.001: (0.938, 1.066, 77.3), 0.01: (0.940, 1.088, 74.9), 0.03: (0.721, 1.672, 47.7)}
IMEX_EXPECTED = {
    0.03: (0.938, 1.061, 73.6), 0.1: (0.950, 1.077, 72.4), 0.15: (0.929, 1.122, 70.4), 0.2: (0.808, 1.433, 73.1), 0.25: (0.770, 1.242, 68.9),
    0.3: (0.882, 1.863, 80.6),
}  # fmt: skip


def exchange_checks(name: str, x: OscillatoryEnergies, expected: tuple[float, float, float]) -> list[Check]:
    """The numbers are to 1 %; where I is off by more than that it must be off by the same, since the method is at fault."""
    names = ("smallest I", "largest I", "first time I₁ = I₃")
    measured = (x.total.min(), x.total.max(), x.exchange_time)
    return [
        Check.near(f"{name}: {what}", y, value, 0.01) for what, y, value in zip(names, measured, expected, strict=True)
    ]


# --- slow exchange and the trigonometric methods --------------------------------------------------------------------
def largest_invariant(method: Method, dt: float) -> float:
    """Of I up to t = 200; infinite where the run is lost."""
    try:
        return float(OscillatoryEnergies("", method, dt, 200.0).total.max())
    except RunStopped:
        return float("inf")


def draw_slow_exchange(panels: list[OscillatoryEnergies], steps: np.ndarray, largest: dict[str, np.ndarray]) -> Figure:
    """The runs at h = .1 in two rows, and below them the largest I against the step."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 9.0)
    columns = -(-len(panels) // 2)
    grid = figure.add_gridspec(3, columns, height_ratios=(1, 1, 1.15))
    first: Any = None
    for k, x in enumerate(panels):
        axes = first = figure.add_subplot(grid[divmod(k, columns)], sharex=first, sharey=first)
        draw_energies(axes, x)
        axes.tick_params(labelleft=k % columns == 0, labelbottom=k >= len(panels) - columns)
        if k % columns == 0:
            axes.set_ylabel("oscillatory energy")
        if k >= len(panels) - columns:
            axes.set_xlabel("time")
    first.set_ylim(0, 1.35)
    below = figure.add_subplot(grid[2, :])
    for (label, y), color in zip(largest.items(), ("C3", "C4"), strict=True):
        below.semilogy(steps * OMEGA / np.pi, np.minimum(y, 1e9), "o-", ms=3, lw=1.1, color=color, label=label)
    below.set(
        xlabel="hω/π",
        ylabel="largest I, t ≤ 200",
        ylim=(0.8, 3e9),
        title="The largest I against the step (at the top: the run was lost)",
    )
    below.grid(alpha=0.25)
    below.legend(frameon=False)
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Fermi–Pasta–Ulam chain, ω = {OMEGA:g}, h = 0.1 (hω = 5)", fontsize=11)
    return figure


LEADS = {
    "implicit midpoint": 0.791,
    "Gautschi": 0.268,
    "mollified impulse": 0.947,
    "Hairer–Lubich": 0.690,
    "Hochbruck–Lubich": 0.907,
}


@experiment(
    PAPER,
    "slow-exchange",
    "At hω = 5 IMEX and the impulse method exchange energy, the filtered methods and midpoint do not",
    "Analysis of slow energy exchange",
)
def slow_exchange(quick: bool) -> Outcome:
    """The trigonometric family beside IMEX. The impulse method keeps the exchange too, but is resonant."""
    silent: dict[str, Method] = {
        "implicit midpoint": ImplicitMidpoint(),
        "Gautschi": Gautschi(),
        "mollified impulse": MollifiedImpulse(),
    }
    silent |= {"Hairer–Lubich": Trigonometric("hairer-lubich"), "Hochbruck–Lubich": Trigonometric("hochbruck-lubich")}
    shown: dict[str, Method] = {"IMEX": IMEX(), "impulse": Impulse(), **silent}
    runs = {label: OscillatoryEnergies(label, method, 0.1, 200.0) for label, method in shown.items()}
    reference = OscillatoryEnergies("reference", Verlet(), 0.001, 200.0, 20)
    checks = [
        Check.near(f"{label}: first time I₁ = I₃", runs[label].exchange_time, t, 0.01)
        for label, t in (("IMEX", 72.4), ("impulse", 75.4))
    ]
    checks += [
        Check.near(
            f"{label}: smallest I₁ − I₃",
            runs[label].lead.min(),
            LEADS[label],
            0.02,
            f"{LEADS[label]:g}, above 0: no exchange",
        )
        for label in silent
    ]
    kept = max(np.abs(runs[label].total - 1).max() for label in silent)
    checks.append(Check.near("the methods without exchange: largest |I − 1|", kept, 0.073, 0.1, "0.073: I is kept"))
    # .25 is near hω = 4π, within the window of its resonance.
    steps = np.unique(np.append(np.linspace(0.05, 0.26, 8 if quick else 85), 0.25))
    largest = {
        label: np.array([largest_invariant(shown[label], float(h)) for h in steps]) for label in ("impulse", "IMEX")
    }
    at = int(np.argmax(steps == 0.25))
    checks.append(
        Check.near("impulse, h = 0.25 (hω = 3.98π): largest I", largest["impulse"][at], 40.6, 0.05, "40.6: resonance")
    )
    checks.append(
        Check(
            "IMEX: largest I of all steps up to 0.18", largest["IMEX"][steps < 0.181].max(), 1.09, 1.32, "1.11 … 1.26"
        )
    )
    information = [
        Information("IMEX: largest I of all steps up to 0.26", largest["IMEX"].max(), "chaotic at the longest steps")
    ]
    return Outcome(checks, draw_slow_exchange([reference, *runs.values()], steps, largest), information)


# --- IMEX is Verlet with another mass -------------------------------------------------------------------------------
def dense_oscillator() -> tuple[System, np.ndarray, np.ndarray]:
    """Five coordinates with full matrices of mass and stiffness, a rest position of W away from 0, and a quartic V."""
    random = np.random.default_rng(3)
    first, second = random.normal(size=(2, 5, 5))
    mass, stiff = np.eye(5) + 0.2 * first @ first.T, 100.0 * second @ second.T
    place = random.normal(size=5)
    fast = lambda q: 0.5 * (q - place) @ (jnp.asarray(stiff) @ (q - place))
    return (
        System(lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1] ** 2, mass=mass, fast=fast),
        place + 0.1 * random.normal(size=5),
        0.3 * random.normal(size=5),
    )


def heavier(system: System, q: np.ndarray, h: float) -> System:
    """The mass M + (h²/4) Hess W, and V + W as one potential."""
    mech, zero = Mechanics(system, q.shape), jnp.asarray(q)
    row = lambda e: (
        mech.momentum(e.reshape(q.shape)) + 0.25 * h**2 * mech.fast_hessian_product(zero, e.reshape(q.shape))
    ).ravel()
    return System(mech.potential, mass=jax.vmap(row)(jnp.eye(q.size)))


def apart(a: Any, b: Any) -> np.ndarray:
    """Over time: the largest difference of q and p, each relative to its largest value."""
    return np.max(
        [
            np.abs(x - y).reshape(len(x), -1).max(axis=1) / np.abs(x).max()
            for x, y in ((np.asarray(a.q), np.asarray(b.q)), (np.asarray(a.p), np.asarray(b.p)))
        ],
        axis=0,
    )


@experiment(
    PAPER,
    "modified-mass",
    "IMEX with a quadratic fast part is Verlet with the mass M + (hΩ/2)²",
    "IMEX as Störmer/Verlet with a modified mass matrix",
)
def modified_mass(quick: bool) -> Outcome:
    """Three ways to the same numbers over 100 steps: IMEX as it runs for a quadratic W, Newton's method for the midpoint, and
    Verlet on a system whose mass is the other one."""
    from ...plots.figures import new_figure

    chain, springs = models.elastic_chain(20, stiff=10.0), stiff_springs()
    problems = {"FPU": (springs.system, springs.q0, springs.v0), "full matrices": dense_oscillator()}
    if not quick:
        problems["elastic chain"] = (chain.system, chain.q0, chain.v0)
    figure, checks, h = new_figure(8.0, 4.2), [], 0.1
    axes = figure.subplots()
    for k, (label, (system, q0, v0)) in enumerate(problems.items()):
        run = simulate(system, q0, v0, method=IMEX(), dt=h, t_end=100 * h)
        newton = simulate(system, q0, v0, method=IMEX(plan=run.method.plan, quadratic=False), dt=h, t_end=100 * h)  # pyright: ignore[reportAttributeAccessIssue]
        verlet = simulate(heavier(system, q0, h), q0, p0=np.asarray(run.p)[0], method=Verlet(), dt=h, t_end=100 * h)
        for name, other, style in (("Verlet with the modified mass", verlet, "-"), ("Newton's method", newton, ":")):
            difference = apart(run, other)
            checks.append(Check(f"{label}: from {name}", difference.max(), None, 1e-13, "rounding"))
            axes.semilogy(
                np.arange(101), np.maximum(difference, 1e-17), style, lw=1.3, color=f"C{k}", label=f"{label}: {name}"
            )
    axes.axhline(1e-13, color="0.5", lw=0.8, ls="--")
    axes.set(
        xlabel="step",
        ylabel="relative difference of q and p",
        title="IMEX for a quadratic W against the same method done in two other ways, h = 0.1",
        xlim=(0, 100),
        ylim=(1e-17, 1e-12),
    )
    axes.grid(alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return Outcome(checks, figure)


# --- resonance ------------------------------------------------------------------------------------------------------
STEP, INNER = 0.1, 32  # RESPA's inner steps are stable up to hω = 2·INNER
PEAKS = np.arange(1, 5)
RESPA_PEAKS = (
    2 * INNER / np.pi * np.sin(PEAKS * np.pi / (2 * INNER))
)  # in hω/π: where the inner Verlet steps turn by kπ


def energy_errors(method: Method, ratios: np.ndarray) -> np.ndarray:
    """The largest relative error of the energy up to t = 1000, for each hω/π."""
    oscillator, ones = models.fast_slow_oscillator(), np.ones((len(ratios), 1))
    largest = np.zeros(len(ratios))
    for every in (5, 8):  # looked at in two rhythms, lest one of them meet the oscillation always in the same phase
        run = ensemble(
            oscillator.system,
            oscillator.q0 * ones,
            oscillator.v0 * ones,
            params={"omega": np.pi * ratios / STEP},
            method=method,
            dt=STEP,
            t_end=1000.0,
            save_every=every,
        )
        largest = np.maximum(largest, np.max(np.abs(run.energy_error / run.energy[:, :1]), axis=1))
    return largest


@experiment(
    PAPER,
    "resonance",
    "r-RESPA and the impulse method are resonant where hω is near a multiple of π, IMEX never is",
    "Coupled linear oscillators",
)
def resonance(quick: bool) -> Outcome:
    """V = ½q², W = ½ω²q², h = .1, to t = 1000. The impulse method is unstable for hω/π between k − h²/(kπ²) and k, a
    window of .001/k: the grid holds the integers, the middles of the windows, and a closer look at the first."""
    windows = [peaks - share * STEP**2 / (PEAKS * np.pi**2) for peaks in (PEAKS, RESPA_PEAKS) for share in (0.0, 0.5)]
    near = np.linspace(0.9975, 1.0015, 41 if quick else 161)
    whole = np.linspace(4.5 / 1851, 4.5, 1851)[slice(None, None, 9 if quick else 1)]
    ratios = np.unique(np.concatenate([whole, near, *windows]))
    errors = {
        "r-RESPA": energy_errors(RESPA(INNER), ratios),
        "impulse": energy_errors(Impulse(), ratios),
        "IMEX": energy_errors(IMEX(), ratios),
    }
    at = lambda label, x: float(errors[label][np.argmin(np.abs(ratios - x))])
    checks = [
        Check(f"impulse at hω/π = {k}", at("impulse", k), 980 / k**2, 1040 / k**2, f"about {1010 / k**2:.4g}")
        for k in PEAKS
    ]
    checks += [
        Check(
            f"r-RESPA at hω/π = {x:.4f}, where its inner steps turn by {k}π",
            at("r-RESPA", x),
            980 / k**2,
            1040 / k**2,
            f"about {1010 / k**2:.4g}",
        )
        for k, x in zip(PEAKS, RESPA_PEAKS, strict=True)
    ]
    checks += [
        Check.near(f"impulse in the middle of window {k}", at("impulse", windows[1][k - 1]), value, 0.1)
        for k, value in zip(PEAKS, (3.4e13, 4.1e6, 2.0e4, 1.4e3), strict=True)
    ]
    checks.append(
        Check(f"IMEX: largest of all {len(ratios)} ω", errors["IMEX"].max(), 0.00249, 0.00251, "h²/4 = 2.5e-3")
    )
    return Outcome(checks, draw_resonance(ratios, errors, near))


def draw_resonance(ratios: np.ndarray, errors: dict[str, np.ndarray], near: np.ndarray) -> Figure:
    """All ω on the left, the first window on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1), sharey=True)
    colors = {"r-RESPA": "C0", "impulse": "C3", "IMEX": "C2"}
    for label, error in errors.items():
        left.semilogy(
            ratios,
            error,
            lw=1.1,
            color=colors[label],
            label=label if label != "r-RESPA" else f"r-RESPA, {INNER} inner steps",
        )
        right.semilogy(ratios, error, ".-", ms=3, lw=1.1, color=colors[label])
    left.set(
        xlim=(0, 4.5),
        ylim=(1e-5, 1e15),
        xlabel="hω/π",
        ylabel="largest relative error of the energy",
        title=f"All ω, h = {STEP:g}, t ≤ 1000",
    )
    right.set(xlim=(near[0], near[-1]), xlabel="hω/π", title="The first resonance")
    right.set_xticks([0.998, 0.999, 1.0, 1.001])
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
