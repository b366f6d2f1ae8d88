"""The coefficients of symmetric multistep methods, and their stability.

A method is given by ρ(ζ) = (ζ − 1)² Π(ζ² + 2a_jζ + 1); σ follows from the order r = k. Measured are the coefficients,
the condition (13) under which a method is stable with constraints, and the largest hω for which it is stable.
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...errors import InputError, RunStopped
from ...methods import SymmetricMultistep
from ...methods.multistep_coefficients import (
    Coefficients,
    construct,
    defects,
    interval_of_periodicity,
    order,
    smallest_gap,
)
from ...run import simulate
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "console-hairer-lubich-2013"
A, B = (-0.7, 0.4), (-0.1, 0.4)  # the two methods of Fig. 2
WIDEST = (0.66, -0.26)  # the largest Ω of order 6
FOUR, EIGHT = (0.5,), (-0.8, -0.4, 0.7)  # of the heavy top; of the sphere


# --- the paper's formulas ---------------------------------------------------------------------------------------------
def sigma_of_paper(a: tuple[Any, ...]) -> tuple[Any, ...]:
    """β_0 … β_k as printed in section 4.1: exact for fractions, and for arrays too."""
    if len(a) == 1:
        half = [(7 + a[0]) / 6, (-1 + 5 * a[0]) / 3]
    elif len(a) == 2:
        s, p = a[0] + a[1], a[0] * a[1]
        half = [(79 + 9 * s - p) / 60, (-14 + 26 * s + 6 * p) / 15, (97 + 7 * s + 97 * p) / 30]
    else:
        s, d, p = a[0] + a[1] + a[2], a[0] * a[1] + a[0] * a[2] + a[1] * a[2], a[0] * a[1] * a[2]
        half = [
            (10993 + 1039 * s - 95 * d + 31 * p) / 7560,
            (-2215 + 2279 * s + 473 * d - 73 * p) / 1260,
            (16661 + 491 * s + 8261 * d + 2171 * p) / 2520,
            (-8723 + 7027 * s + 1357 * d + 12067 * p) / 1890,
        ]
    return (0, *half, *half[-2::-1], 0)


DELTA_HAT = {
    2: (2, (1, 1)),
    4: (12, (-1, 7, 7, -1)),
    6: (60, (1, -8, 37, 37, -8, 1)),
    8: (840, (-3, 29, -139, 533, 533, -139, 29, -3)),
}


def discriminant(a_1: Any, a_2: Any) -> Any:
    """β² − 4α(γ − 2α) of order 6: (13) holds where it is positive, and on its zeros σ has double roots."""
    _, alpha, beta, gamma, *_ = sigma_of_paper((a_1, a_2))
    return beta**2 - 4 * alpha * (gamma - 2 * alpha)


def holds(method: Coefficients, number: int) -> bool:
    return not any(f"({number})" in reason for reason in defects(method))


def roots(ascending: tuple[Any, ...]) -> np.ndarray:
    """The non-zero roots."""
    stripped = [float(c) for c in ascending if c]  # only the outermost coefficients vanish, for the a used here
    return np.roots(stripped[::-1])


# --- coefficients -----------------------------------------------------------------------------------------------------
@experiment(
    PAPER,
    "coefficients",
    "σ and δ̂ are the paper's to the last digit; (13) decides, and method (B) is refused",
    "section 4.1, Fig. 1",
)
def coefficients(quick: bool) -> Outcome:
    """In exact fractions, so that coefficients can be compared with the printed ones without rounding."""
    values = [Fraction(x) for x in ("-9/10", "-7/10", "-1/3", "0", "2/7", "4/10", "17/19")]
    different = {
        n: sum(construct(a).sigma != sigma_of_paper(a) for a in itertools.combinations(values, n)) for n in (1, 2, 3)
    }
    tried = {n: math.comb(len(values), n) for n in different}
    printed = {k: tuple(Fraction(x, below) for x in above) for k, (below, above) in DELTA_HAT.items()}
    checks = [
        Check(
            f"σ of order {2 * n + 2}: methods of {tried[n]} that differ from the paper's formula",
            x,
            (0, 0),
        )
        for n, x in different.items()
    ]
    checks.append(
        Check(
            "δ̂ for k = 2, 4, 6, 8: formulas that differ",
            sum(construct(values[: k // 2 - 1]).delta_hat != x for k, x in printed.items()),
            (0, 0),
        )
    )
    for label, a in {"r = 4, a = 0.5": FOUR, "(A)": A, "r = 8": EIGHT}.items():
        method, r = construct(a), 2 * len(a) + 2
        checks.append(Check(f"{label}: exact order", order(method.rho, method.sigma), (r, r), note=str(r)))
        checks.append(
            Check(
                f"{label}: conditions (12), (13) that are violated",
                2 - holds(method, 12) - holds(method, 13),
                (0, 0),
            )
        )
    fourth = [construct((a,)) for a in np.arange(-99, 100, 6) / 100]
    checks.append(
        Check(
            f"r = 4: methods of {len(fourth)} with a₁ in (−1, 1) that violate (13)",
            sum(not holds(m, 13) for m in fourth),
            (0, 0),
        )
    )
    checks += [
        Check(
            "(B): largest modulus of a root of σ",
            max(abs(roots(construct(B).sigma))),
            (1.31455, 1.31465),
            note="1.3146",
        ),
        Check("(B) is refused, with the modulus", refusal(B), (1.31455, 1.31465), note="1.3146"),
    ]
    grid = list(itertools.combinations([Fraction(n, 20) for n in range(-19, 20, 2 if quick else 1)], 2))
    wrong = sum(holds(construct(pair), 13) != (discriminant(*pair) > 0) for pair in grid)
    checks.append(
        Check(
            f"r = 6: of {len(grid)} pairs (a₁, a₂), those on the wrong side of β² = 4α(γ − 2α)",
            wrong,
            (0, 0),
        )
    )
    return Outcome(checks, draw_coefficients())


def refusal(a: tuple[float, ...]) -> float:
    """The modulus of the root that the error message of a refused method names; NaN where the method is accepted."""
    try:
        SymmetricMultistep(a=a)
    except InputError as error:
        named = re.search(r"modulus ([\d.]+)", str(error))
        return float(named[1]) if named else math.nan
    return math.nan


def draw_coefficients() -> Figure:
    """Fig. 1, and the roots of the two methods."""
    from ...plots.figures import new_figure

    figure = new_figure(12.5, 4.6)
    region, *circles = figure.subplots(1, 3)
    draw_region(region)
    region.set_title("Fig. 1: in the grey, (13) holds for order 6", fontsize=10)
    for axes, label, a in zip(circles, ("(A)", "(B)"), (A, B), strict=True):
        method = construct(a)
        angle = np.linspace(0, 2 * np.pi, 400)
        axes.plot(np.cos(angle), np.sin(angle), color="0.6", lw=0.8)
        rho, sigma = np.append(np.exp(1j * np.arccos(-np.array(a))), 1.0), roots(method.sigma)
        rho = np.concatenate([rho, rho[:-1].conj()])
        axes.plot(np.real(rho), np.imag(rho), "o", ms=7, mfc="none", color="C0", label="roots of ρ (1 is double)")
        axes.plot(np.real(sigma), np.imag(sigma), "x", ms=7, mew=1.8, color="C3", label="non-zero roots of σ")
        axes.set(xlim=(-1.55, 1.55), ylim=(-1.55, 1.55), aspect="equal", xlabel="Re ζ", ylabel="Im ζ")
        axes.set_title(f"{label}: a = (−{-a[0]:g}, {a[1]:g}), largest |ζ| of σ: {max(abs(sigma)):.4f}", fontsize=10)
        axes.grid(alpha=0.25)
    figure.legend(*circles[0].get_legend_handles_labels(), loc="outside lower right", ncols=2, frameon=False)
    return figure


def draw_region(axes: Axes, fill: bool = True) -> None:
    """The plane of (a₁, a₂) with the curve of double roots; both are symmetric."""
    line = np.linspace(-1, 1, 801)
    value = discriminant(*np.meshgrid(line, line))
    if fill:
        axes.contourf(line, line, value, levels=[0, np.inf], colors=["0.72"])
    axes.contour(line, line, value, levels=[0], colors="k", linewidths=1.2)
    axes.plot([], [], color="k", lw=1.2, label="β² = 4α(γ − 2α)")
    axes.plot([-1, 1], [-1, 1], color="0.4", lw=0.8, ls=":", label="a₁ = a₂: ρ has double roots")
    marks = (("(A)", A, "o", "C0", (8, 6)), ("(B)", B, "X", "C3", (8, 6)), ("largest Ω", WIDEST, "*", "C1", (-24, 9)))
    for name, (a_1, a_2), marker, color, shift in marks:
        axes.plot(
            a_1, a_2, marker, ms=13 if marker == "*" else 8, color=color, mec="k" if marker == "*" else "w", mew=0.6
        )
        axes.annotate(
            name,
            (a_1, a_2),
            shift,
            textcoords="offset points",
            fontsize=9,
            bbox={"boxstyle": "round,pad=0.15", "fc": "w", "ec": "none", "alpha": 0.75},
        )
    ticks = [-1, -0.5, 0, 0.5, 1]
    axes.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", xlabel="a₁", ylabel="a₂", xticks=ticks, yticks=ticks)
    axes.legend(frameon=True, framealpha=0.9, edgecolor="none", fontsize=8, loc="upper right")


# --- periodicity ------------------------------------------------------------------------------------------------------
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
    """Ω by exact counting of real roots, which misses no unstable window however narrow; then an oscillator at hω
    0.1 % below Ω and 0.1 % above."""
    fourth = [-0.95, -0.5, 0.0, 0.5, 0.9, 0.99]
    off = max(abs(interval_of_periodicity(construct((a,))) - math.sqrt(6 * (1 - a) / (2 - a))) for a in fourth)
    near = [(a_1 / 100, a_2 / 100) for a_1 in range(63, 70) for a_2 in range(-29, -22)]
    found = {pair: interval_of_periodicity(method) for pair in near if not defects(method := construct(pair))}
    best = max(found, key=lambda pair: found[pair])
    methods = {label: SymmetricMultistep(a=a) for label, a in METHODS.items()}
    checks = [
        Check("r = 4: largest distance from √(6(1 − a₁)/(2 − a₁))", off, (None, 1e-12)),
        Check("r = 6: largest Ω where (13) holds", found[best], (1.05025, 1.05035), note="1.0503"),
        Check("r = 6: a₁ of the largest Ω, to hundredths", best[0], (0.655, 0.665), note="0.66"),
        Check("r = 6: a₂ of the largest Ω, to hundredths", best[1], (-0.265, -0.255), note="−0.26"),
        Check("r = 4, a = 0.5: Ω", methods["r = 4, a = 0.5"].periodicity, (1.41415, 1.41425), note="√2"),
        Check("(A): Ω", methods["r = 6, (A)"].periodicity, (0.72165, 0.72185), note="0.7218"),
        Check("r = 8: Ω", methods["r = 8"].periodicity, (0.93815, 0.93825), note="0.9382"),
    ]
    offsets = np.array(
        [-1e-3, 1e-3] if quick else [*-np.geomspace(2e-2, 1e-4, 12), *np.geomspace(1e-4, 2e-2, 12), -1e-3, 1e-3]
    )
    swings = {
        label: np.array([largest_swing(m, m.periodicity * (1 + x)) for x in offsets]) for label, m in methods.items()
    }
    for label, swing in swings.items():
        bounded, grown = swing[offsets == -1e-3][0], swing[offsets == 1e-3][0]
        checks.append(
            Check.near(
                f"{label}: largest |q| in a run at hω = 0.999 Ω",
                bounded,
                SWINGS[label],
                0.05,
                note=f"{SWINGS[label]:g} ± 5 %: bounded",
            )
        )
        checks.append(
            Check(
                f"{label}: largest |q| in a run at hω = 1.001 Ω",
                grown,
                (1e40, None),
                note="above 1e40: grows",
                rtol=None,
            )
        )
    gaps = {
        "r = 4, a = 0.5": (0.322, 3),
        "r = 6, (A)": (0.0054, 4),
        "r = 6, largest Ω": (0.0571, 4),
        "r = 8": (0.0006, 4),
    }
    for label, (gap, digits) in gaps.items():
        half = 0.51 * 10**-digits
        checks.append(
            Check(
                f"{label}: smallest gap between roots of ρ and σ, in radians",
                smallest_gap(methods[label].coefficients),
                (gap - half, gap + half),
                note=f"{gap:g}",
            )
        )
    return Outcome(checks, draw_periodicity(0.1 if quick else 0.025, offsets, swings))


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
