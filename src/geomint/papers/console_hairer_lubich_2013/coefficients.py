"""The coefficients of symmetric multistep methods, and the condition (13) under which one is stable with constraints.

A method is given by ρ(ζ) = (ζ − 1)² Π(ζ² + 2a_jζ + 1); σ follows from the order r = k.
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from ...methods import SymmetricMultistep
from ...methods.multistep_coefficients import Coefficients, construct, defects, order
from ..base import Outcome, experiment
from ..checks import Check
from .runs import EIGHT, FOUR, PAPER, A, B

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- the paper's formulas ---------------------------------------------------------------------------------------------
def sigma_of_paper(a: tuple[Any, ...]) -> tuple[Any, ...]:
    """β_0 … β_k as printed in section 4.1: exact for fractions, and for arrays too."""
    if len(a) == 1:
        return _symmetric([(7 + a[0]) / 6, (-1 + 5 * a[0]) / 3])
    if len(a) == 2:
        s, p = a[0] + a[1], a[0] * a[1]
        return _symmetric([(79 + 9 * s - p) / 60, (-14 + 26 * s + 6 * p) / 15, (97 + 7 * s + 97 * p) / 30])
    s, d, p = a[0] + a[1] + a[2], a[0] * a[1] + a[0] * a[2] + a[1] * a[2], a[0] * a[1] * a[2]
    return sigma_of_order_8(s, d, p)


def sigma_of_order_8(s_1: Any, s_2: Any, s_3: Any) -> tuple[Any, ...]:
    """β_0 … β_8 as printed in section 4.1, from the elementary symmetric functions of a₁, a₂, a₃."""
    return _symmetric(
        [
            (10993 + 1039 * s_1 - 95 * s_2 + 31 * s_3) / 7560,
            (-2215 + 2279 * s_1 + 473 * s_2 - 73 * s_3) / 1260,
            (16661 + 491 * s_1 + 8261 * s_2 + 2171 * s_3) / 2520,
            (-8723 + 7027 * s_1 + 1357 * s_2 + 12067 * s_3) / 1890,
        ]
    )


def _symmetric(half: list[Any]) -> tuple[Any, ...]:
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
    return np.roots(np.trim_zeros([float(c) for c in ascending])[::-1])


# --- coefficients -----------------------------------------------------------------------------------------------------
@experiment(
    PAPER,
    "coefficients",
    "σ and δ̂ are the paper's to the last digit; (13) separates good methods from bad ones, and (B) is refused",
    "section 4.1, Fig. 1",
)
def coefficients(quick: bool) -> Outcome:
    """All coefficients are constructed in exact fractions, so that they can be compared with the printed ones without
    rounding, and (12) and (13) are decided by counting real roots exactly."""
    grid = list(itertools.combinations([Fraction(n, 20) for n in range(-19, 20, 2 if quick else 1)], 2))
    wrong = sum(holds(construct(pair), 13) != (discriminant(*pair) > 0) for pair in grid)
    checks = [*printed_formulas(), *conditions_of_named_methods(), *conditions_by_order()]
    curve = f"r = 6: of {len(grid)} pairs (a₁, a₂), those on the wrong side of β² = 4α(γ − 2α)"
    separates = "the curve separates methods that satisfy (13) from those that do not"
    checks.append(Check(curve, wrong, (0, 0), paper=separates, where="section 4.1, Fig. 1"))
    return Outcome(checks, draw_coefficients(), parameters={"a of (A)": A, "a of (B)": B, "pairs of Fig. 1": len(grid)})


def printed_formulas() -> list[Check]:
    """σ and δ̂, as constructed here from the order conditions, against the formulas of section 4.1."""
    values = [Fraction(x) for x in ("-9/10", "-7/10", "-1/3", "0", "2/7", "4/10", "17/19")]
    checks = []
    for n in (1, 2, 3):
        different = sum(construct(a).sigma != sigma_of_paper(a) for a in itertools.combinations(values, n))
        claim = f"σ of order {2 * n + 2}: methods of {math.comb(len(values), n)} that differ from the paper's formula"
        checks.append(Check(claim, different, (0, 0), paper="formulas for σ", where="section 4.1"))
    printed = {k: tuple(Fraction(x, below) for x in above) for k, (below, above) in DELTA_HAT.items()}
    different = sum(construct(values[: k // 2 - 1]).delta_hat != x for k, x in printed.items())
    claim = "δ̂ for k = 2, 4, 6, 8: formulas that differ"
    return [*checks, Check(claim, different, (0, 0), paper="coefficients δ̂", where="section 4.1")]


def conditions_of_named_methods() -> list[Check]:
    """Order, (12) and (13) of the methods that the experiments use."""
    checks = []
    for label, a in {"r = 4, a = 0.5": FOUR, "(A)": A, "r = 8": EIGHT}.items():
        method, r = construct(a), 2 * len(a) + 2
        checks.append(
            Check(f"{label}: exact order", order(method.rho, method.sigma), (r, r), paper=r, where="section 4")
        )
        violated = 2 - holds(method, 12) - holds(method, 13)
        claim = f"{label}: conditions (12), (13) that are violated"
        where = "example 1" if a == A else f"section 4.1, order {r}"
        checks.append(Check(claim, violated, (0, 0), paper="both hold", where=where))
    modulus, near = max(abs(roots(construct(B).sigma))), (1.31455, 1.31465)
    outside: dict[str, Any] = {"paper": "a zero of modulus larger than 1", "where": "example 1"}
    refused = "SymmetricMultistep refuses (B) and names this root."
    return [
        *checks,
        Check("(B): largest modulus of a root of σ", modulus, near, **outside),
        Check("(B) is refused: the modulus in the message", refusal(B), near, verdict="information", note=refused),
    ]


def conditions_by_order() -> list[Check]:
    """What the paper says of all methods of order 4, and of a part of those of order 8."""
    fourth = [construct((a,)) for a in np.arange(-99, 100, 6) / 100]
    tenths = [Fraction(n, 10) for n in range(-9, 10)]
    low, high = [a for a in tenths if a <= Fraction(-1, 2)], [a for a in tenths if a >= Fraction(1, 2)]
    eighth = [construct((*pair, a_3)) for pair in itertools.combinations(low, 2) for a_3 in high]
    all_of_4 = "(13) holds for all −1 < a₁ < 1"
    part_of_8 = "(13) holds if two a_j are not too far from −1 and the third is not far from 1"
    limits = "The paper gives no limits. With two a_j up to −0.4, (−0.5, −0.4, 0.7) violates (13)."
    counted = lambda methods: sum(not holds(method, 13) for method in methods)
    return [
        Check(
            f"r = 4: methods of {len(fourth)} with a₁ in (−1, 1) that violate (13)",
            counted(fourth), (0, 0), paper=all_of_4, where="section 4.1, order 4",
        ),
        Check(
            f"r = 8: methods of {len(eighth)} with two a_j ≤ −0.5 and one ≥ 0.5 that violate (13)",
            counted(eighth), (0, 0), paper=part_of_8, where="section 4.1, order 8", note=limits,
        ),
    ]  # fmt: skip


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
    marks = (
        ("(A)", A, "o", "C0", (8, 6)),
        ("(B)", B, "X", "C3", (8, 6)),
        ("largest Ω", (0.66, -0.26), "*", "C1", (-24, 9)),
    )
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
