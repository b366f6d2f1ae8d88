"""The methods of order 8 in Hairer, Lubich and Wanner's Table 7.1: none satisfies (13)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import models
from ...errors import RunStopped
from ...methods import SymmetricMultistep
from ...methods.multistep_coefficients import Coefficients, order
from ..base import Outcome, experiment
from ..checks import Check
from .coefficients import holds, roots, sigma_of_order_8
from .runs import EIGHT, PAPER, motion, moved

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Printed(NamedTuple):
    """A row of the table: α_j and β_j times a denominator, j = 0 … 4; both are symmetric."""

    alpha: tuple[Any, ...]
    denominator: int
    beta: tuple[int, ...]
    modulus: float  # of the largest root of σ


# Geometric Numerical Integration, section XV.7. SY8 is the method of Quinlan and Tremaine (1990).
BOOK = {
    "SY8": Printed((1, -2, 2, -1, 0), 12096, (0, 17671, -23622, 61449, -50516), 1.2172),
    "SY8B": Printed((1, 0, 0, Fraction(-1, 2), -1), 120960, (0, 192481, 6582, 816783, -156812), 1.7888),
    "SY8C": Printed((1, -1, 0, 0, 0), 8640, (0, 13207, -8934, 42873, -33812), 1.5802),
}
STEPS = 300  # at most, of a run


def constructed(alpha: tuple[Any, ...]) -> Coefficients:
    """The method with this ρ. Its a_j need not be rational, but their elementary symmetric functions are, and these
    are all that the paper's σ needs: ρ̃ = ρ/(ζ − 1)² = ζ⁶ + 2s₁ζ⁵ + (3 + 4s₂)ζ⁴ + (4s₁ + 8s₃)ζ³ + …"""
    rho = [Fraction(x) for x in (*alpha, *alpha[-2::-1])]
    rho_hat = [-sum(rho[: j + 1], Fraction(0)) for j in range(8)]  # division by ζ − 1, twice
    rho_tilde = [-sum(rho_hat[: j + 1], Fraction(0)) for j in range(7)]
    s_1, s_2 = rho_tilde[1] / 2, (rho_tilde[2] - 3) / 4
    s_3 = (rho_tilde[3] - 4 * s_1) / 8
    sigma = tuple(Fraction(x) for x in sigma_of_order_8(s_1, s_2, s_3))
    return Coefficients((), 8, tuple(rho), sigma, tuple(rho_hat), tuple(rho_tilde), ())


def parameters(method: Coefficients) -> tuple[float, ...]:
    """The a_j as numbers: ρ̃ has the roots exp(±iθ_j), a_j = −cos θ_j."""
    return tuple(float(-z.real) for z in roots(method.rho_tilde) if z.imag > 0)


def energy_until_it_stops(a: tuple[float, ...]) -> np.ndarray:
    """|ΔE| of the triple pendulum at h = .01, up to the step at which the constraint can't be solved."""
    try:
        run = moved(models.triple_pendulum(), SymmetricMultistep(a=a, unsafe=True), 0.01, STEPS * 0.01)
    except RunStopped as stop:
        run = stop.run
    return np.abs(run.energy_error)


@experiment(
    PAPER,
    "book-methods",
    "None of the methods of order 8 in Hairer, Lubich and Wanner's Table 7.1 satisfies (13)",
    "section 4.1, order 8",
)
def book_methods(quick: bool) -> Outcome:
    """These methods were made for unconstrained problems, where (12) is enough. The table is not in the paper: ρ is
    taken from the book, and σ follows from it by the paper's formula in exact fractions; both agree with the table's β.
    With constraints the multipliers grow by the modulus of the largest root of σ in each step, like those of (B)."""
    methods = {name: constructed(row.alpha) for name, row in BOOK.items()}
    checks, errors = [], {}
    ours: dict[str, Any] = {"verdict": "information"}
    for name, method in methods.items():
        printed = tuple(Fraction(x, BOOK[name].denominator) for x in (*BOOK[name].beta, *BOOK[name].beta[-2::-1]))
        modulus = max(abs(roots(method.sigma)))
        near = BOOK[name].modulus + 6e-5 * np.array([-1, 1])
        said: dict[str, Any] = {"paper": "no method of Table 7.1 satisfies (13)", "where": "section 4.1, order 8"}
        not_one: dict[str, Any] = said | {"paper": "not 1"}
        differ = sum(x != y for x, y in zip(method.sigma, printed, strict=True))
        checks += [
            Check(f"{name}: β_j of 9 that differ from the book's", differ, (0, 0), **ours),
            Check(f"{name}: exact order", order(method.rho, method.sigma), (8, 8), **ours),
            Check(f"{name}: (12) is violated", not holds(method, 12), (0, 0), **ours),
            Check(f"{name}: (13) is violated", not holds(method, 13), (1, 1), **said),
            Check(f"{name}: largest modulus of a root of σ", modulus, (near[0], near[1]), **not_one),
        ]
        if not quick:
            errors[name] = energy_until_it_stops(parameters(method))
            expected, stopped = math.log(1e16) / math.log(modulus), len(errors[name])
            note = f"ln(10¹⁶)/ln({modulus:.4f}) = {expected:.0f}"
            claim = f"{name}: triple pendulum, h = 0.01: the run stops at step"
            checks.append(Check(claim, stopped, (0.8 * expected, 1.2 * expected), rtol=None, note=note, **ours))
    return Outcome(
        checks,
        draw_roots(methods, errors),
        motion=motion(models.triple_pendulum(), SymmetricMultistep(a=EIGHT), 0.01, 20.0),
        parameters={"a": {name: tuple(round(a, 6) for a in parameters(x)) for name, x in methods.items()}},
        left_out=("runs of the triple pendulum until the constraint can't be solved",),
    )


def draw_roots(methods: dict[str, Coefficients], errors: dict[str, np.ndarray]) -> Figure:
    """Roots of ρ and σ; |ΔE| of the runs."""
    from ...plots.figures import new_figure

    figure = new_figure(14.5 if errors else 12.0, 4.6)
    panels = figure.subplots(1, 4 if errors else 3)
    angle = np.linspace(0, 2 * np.pi, 400)
    for axes, (name, method) in zip(panels, methods.items(), strict=False):
        rho, sigma = np.append(roots(method.rho_tilde), 1.0), roots(method.sigma)
        axes.plot(np.cos(angle), np.sin(angle), color="0.6", lw=0.8)
        axes.plot(np.real(rho), np.imag(rho), "o", ms=7, mfc="none", color="C0", label="roots of ρ (1 is double)")
        axes.plot(np.real(sigma), np.imag(sigma), "x", ms=7, mew=1.8, color="C3", label="non-zero roots of σ")
        axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xlabel="Re ζ", ylabel="Im ζ")
        axes.set_title(f"{name}: largest |ζ| of σ: {max(abs(sigma)):.4f}", fontsize=10)
        axes.grid(alpha=0.25)
    for k, (name, error) in enumerate(errors.items()):
        steps, modulus = np.arange(1, len(error)), BOOK[name].modulus
        panels[3].semilogy(steps, np.maximum(error[1:], 1e-17), lw=1, color=f"C{k}", label=name)
        growing = steps[steps > 10 / math.log(modulus) / 4]
        panels[3].semilogy(growing, error[-1] * modulus ** (growing - growing[-1]), "--", lw=0.8, color=f"C{k}")
    if errors:
        panels[3].set(xlabel="step", ylabel="|H − H(0)|", ylim=(1e-17, 1e4))
        panels[3].set_title("Triple pendulum, h = 0.01\n(dashed: growth by that modulus)", fontsize=10)
        panels[3].legend(frameon=False, fontsize=9)
        panels[3].grid(alpha=0.25)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure
