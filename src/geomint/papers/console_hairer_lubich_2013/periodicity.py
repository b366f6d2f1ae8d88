"""Linear stability: the interval of periodicity (0, Ω) of a method, by exact arithmetic and by running the method."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...errors import RunStopped
from ...methods import SymmetricMultistep
from ...methods.multistep_coefficients import construct, defects, interval_of_periodicity, smallest_gap
from ...run import simulate
from ...run.instability import unwatched
from ...system.system import System
from ...view import Scene
from ..base import Outcome, experiment
from ..checks import Check
from .coefficients import discriminant, draw_region
from .runs import EIGHT, FOUR, PAPER, A

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = (0.66, -0.26)  # the largest Ω of order 6
STEPS = 20_000
BEYOND = 1e12  # upper limit of the plot
SWINGS = {
    "r = 4, a = 0.5": 2.46,
    "r = 6, (A)": 5.80,
    "r = 6, largest Ω": 7.26,
    "r = 8": 5.86,
}  # largest |q| at hω = .999 Ω
METHODS = {"r = 4, a = 0.5": FOUR, "r = 6, (A)": A, "r = 6, largest Ω": WIDEST, "r = 8": EIGHT}


def largest_swing(method: SymmetricMultistep, h: float) -> float:
    """max |q| of an oscillator with ω = 1 that starts at q = 1, in 20,000 steps or until it overflows."""
    try:
        run = simulate(OSCILLATOR, [1.0], [0.0], method=method, dt=h, t_end=STEPS * h)
    except RunStopped as stop:
        run = stop.run
    return float(np.max(np.abs(run.q)))


OSCILLATOR = System(lambda q: 0.5 * jnp.sum(q**2))


@experiment(
    PAPER, "periodicity", "The interval of periodicity (0, Ω), from the roots and by running the method", "section 4.2"
)
def periodicity(quick: bool) -> Outcome:
    """A method is stable on q̈ = −ω²q while all roots of ρ + (hω)²σ have modulus 1. Ω is found by counting real roots
    exactly, which misses no unstable window however narrow. Then the method itself runs an oscillator at hω 0.1 %
    below Ω and 0.1 % above."""
    methods = {label: SymmetricMultistep(a=a) for label, a in METHODS.items()}
    offsets = np.array(
        [-1e-3, 1e-3] if quick else [*-np.geomspace(2e-2, 1e-4, 12), *np.geomspace(1e-4, 2e-2, 12), -1e-3, 1e-3]
    )
    swings = {
        label: np.array([largest_swing(m, m.periodicity * (1 + x)) for x in offsets]) for label, m in methods.items()
    }
    checks = [*limits_of_stability(methods), *growth_in_runs(offsets, swings)]
    for label, (gap, digits) in GAPS.items():
        half, found = 0.51 * 10**-digits, smallest_gap(methods[label].coefficients)
        claim = f"{label}: smallest gap between roots of ρ and σ, in radians"
        checks.append(Check(claim, found, (gap - half, gap + half), verdict="information", note=CLOSE))
    parameters = {"steps of a run": STEPS, "start": "q = 1 at rest", "offsets of hω/Ω": len(offsets)}
    left_out = ("the largest |q| at 24 further steps about Ω (figure only)",)
    figure = draw_periodicity(0.1 if quick else 0.025, offsets, swings)
    return Outcome(checks, figure, motion=both_sides, parameters=parameters, left_out=left_out)


def both_sides() -> Scene:
    """The oscillator by the method of order 8 at hω 0.1 % below Ω and 0.1 % above, in the plane of q and p."""
    method = SymmetricMultistep(a=EIGHT)
    shown = {"0.1 % below Ω": 0.999, "0.1 % above Ω": 1.001}
    with unwatched():  # the energy grows above Ω, which is what is shown
        runs = [
            simulate(
                OSCILLATOR, [1.0], [0.0], method=method, dt=x * method.periodicity, t_end=160 * x * method.periodicity
            )
            for x in shown.values()
        ]
    paths = [np.concatenate([np.asarray(run.q), np.asarray(run.p)], axis=1) for run in runs]
    return Scene(
        np.arange(161.0),
        np.stack(paths, axis=1),
        colors=(0, 1),
        names={name: k for k, name in enumerate(shown)},
        series={f"|q|, {name}": (np.arange(161.0), np.abs(x[:, 0])) for name, x in zip(shown, paths, strict=True)},
        trail=8,
        title="Harmonic oscillator at the end of the interval of periodicity",
        subtitle="order 8, q to the right, p upwards, time in steps",
    )


CLOSE = "Parasitic roots this close excite each other at some steps; (12) and (13) do not exclude it."
GAPS = {
    "r = 4, a = 0.5": (0.322, 3),
    "r = 6, (A)": (0.0054, 4),
    "r = 6, largest Ω": (0.0571, 4),
    "r = 8": (0.0006, 4),
}


def limits_of_stability(methods: dict[str, SymmetricMultistep]) -> list[Check]:
    """Ω by exact arithmetic, against the paper's formula and numbers."""
    fourth = [-0.95, -0.5, 0.0, 0.5, 0.9, 0.99]
    off = max(abs(interval_of_periodicity(construct((a,))) - math.sqrt(6 * (1 - a) / (2 - a))) for a in fourth)
    near = [(a_1 / 100, a_2 / 100) for a_1 in range(63, 70) for a_2 in range(-29, -22)]
    found = {pair: interval_of_periodicity(method) for pair in near if not defects(method := construct(pair))}
    best = max(found, key=lambda pair: found[pair])
    four, six = "section 4.2, order 4", "section 4.2, order 6"
    formula: dict[str, Any] = {"paper": "Ω = √(6(1 − a₁)/(2 − a₁))", "where": four}
    at_half: dict[str, Any] = {"paper": math.sqrt(2), "where": four}
    omega = {label: methods[label].periodicity for label in METHODS}
    return [
        Check("r = 2: Ω", interval_of_periodicity(construct(())), (2 - 1e-12, 2 + 1e-12), paper=2, where="section 4.2"),
        Check("r = 4: largest distance from √(6(1 − a₁)/(2 − a₁))", off, (None, 1e-12), **formula),
        Check(
            "r = 6: largest Ω where (13) holds", found[best], (1.05025, 1.05035),
            paper="0 < Ω < 1.05", where=six, note="1.05 is rounded",
        ),
        Check("r = 6: a₁ of the largest Ω, to hundredths", best[0], (0.655, 0.665), paper=0.66, where=six),
        Check("r = 6: a₂ of the largest Ω, to hundredths", best[1], (-0.265, -0.255), paper=-0.26, where=six),
        Check("r = 4, a = 0.5: Ω", omega["r = 4, a = 0.5"], (1.41415, 1.41425), **at_half),
        Check("(A): Ω", omega["r = 6, (A)"], (0.72165, 0.72185), verdict="information"),
        Check("r = 8: Ω", omega["r = 8"], (0.93815, 0.93825), verdict="information"),
    ]  # fmt: skip


def growth_in_runs(offsets: np.ndarray, swings: dict[str, np.ndarray]) -> list[Check]:
    """Below Ω a run stays bounded, by a factor that depends on how close to 1 the roots come; above it grows."""
    checks = []
    for label, swing in swings.items():
        bounded, grown = swing[offsets == -1e-3][0], swing[offsets == 1e-3][0]
        below, above = (f"{label}: largest |q| in a run at hω = {x} Ω" for x in (0.999, 1.001))
        stays: dict[str, Any] = {"paper": "bounded for hω < Ω", "where": "section 4.2, (16)"}
        grows: dict[str, Any] = {"paper": "unstable for hω > Ω", "where": "section 4.2, (16)", "rtol": None}
        checks.append(Check.near(below, bounded, SWINGS[label], 0.05, **stays))
        checks.append(Check(above, grown, (1e40, None), **grows))
    return checks


def draw_periodicity(width: float, offsets: np.ndarray, swings: dict[str, np.ndarray]) -> Figure:
    """Ω over the region of Fig. 1; runs about it."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.6)
    region, runs = figure.subplots(1, 2, width_ratios=(1.1, 1))
    line = np.arange(-1 + width / 2, 1, width)  # centres of cells
    omega = np.full((len(line), len(line)), np.nan)
    corners = 0.5 * width * np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
    for i, j in itertools.combinations(range(len(line)), 2):
        a_1, a_2 = float(line[i]), float(line[j])
        if any(
            discriminant(a_1 + x, a_2 + y) > 0 for x, y in corners
        ):  # cells on the curve too; the region beyond it is painted over
            omega[i, j] = omega[j, i] = interval_of_periodicity(construct((round(a_1, 6), round(a_2, 6))))
    image = region.pcolormesh(line, line, omega, cmap="viridis", vmin=0, vmax=1.05, rasterized=True)
    figure.colorbar(image, ax=region, label="Ω")
    fine = np.linspace(-1, 1, 801)
    region.contourf(fine, fine, discriminant(*np.meshgrid(fine, fine)), levels=[-np.inf, 0], colors=["w"])
    draw_region(region, fill=False)
    region.set_title("Ω of the methods of order 6 that satisfy (13)", fontsize=11)
    by_size = np.argsort(offsets)
    for k, (label, swing) in enumerate(swings.items()):
        runs.semilogy(
            offsets[by_size],
            np.minimum(swing[by_size], BEYOND),
            ("o-", "s-", "^-", "D-")[k],
            ms=4,
            lw=1,
            color=f"C{k}",
            label=label,
        )
    runs.axvline(0, color="0.5", lw=0.8, ls="--")
    runs.set_xscale("symlog", linthresh=1e-4, linscale=0.6)
    runs.set(ylim=(0.5, 10 * BEYOND), xlim=(-0.04, 0.04), xlabel="hω/Ω − 1", ylabel=f"largest |q| in {STEPS:,} steps")
    runs.set_title("Harmonic oscillator from q = 1 at rest\n(what grows beyond 10¹² is drawn there)", fontsize=11)
    runs.legend(frameon=False, fontsize=9, loc="upper left")
    runs.grid(alpha=0.25)
    return figure
