"""Section 2: the recursion in momenta, (10), against the one in positions, (7), which amplifies rounding errors."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...methods.multistep_coefficients import Coefficients, construct
from ..base import Outcome, experiment
from ..checks import Check
from .periodicity import both_sides
from .runs import EIGHT, FOUR, PAPER, A

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 0.1
DIGITS = 34  # of the arithmetic that stands for exact
METHODS = {"r = 4, a = 0.5": FOUR, "(A)": A, "r = 8": EIGHT}


def in_positions(method: Coefficients, number: Callable[[Any], Any], steps: int) -> list[Any]:
    """q_n of q̈ = −q by (7), in the arithmetic of `number`, from starting values rounded to doubles."""
    k, h = method.order, number(STEP)
    of = lambda x: number(x.numerator) / number(x.denominator)
    weights = [-of(a) - h * h * of(b) for a, b in zip(method.rho[:k], method.sigma[:k], strict=True)]
    q = [number(math.cos(j * STEP)) for j in range(k)]
    for _ in range(steps):
        q.append(sum((w * x for w, x in zip(weights, q[-k:], strict=True)), number(0)))
    return q


def in_momenta(method: Coefficients, number: Callable[[Any], Any], steps: int) -> list[Any]:
    """The same by (10)."""
    k, h = method.order, number(STEP)
    of = lambda x: number(x.numerator) / number(x.denominator)
    earlier, forces = [-of(a) for a in method.rho_hat[: k - 1]], [-h * of(b) for b in method.sigma[1:k]]
    q = [number(math.cos(j * STEP)) for j in range(k)]
    p = [(q[j + 1] - q[j]) / h for j in range(k - 1)]
    for _ in range(steps):
        known = sum((w * x for w, x in zip(earlier, p[1 - k :], strict=True)), number(0))
        p.append(known + sum((w * x for w, x in zip(forces, q[1 - k :], strict=True)), number(0)))
        q.append(q[-1] + h * p[-1])
    return q


def round_off_of(form: Callable[..., list[Any]], method: Coefficients, steps: int) -> np.ndarray:
    """|q_n| in doubles less that in decimal arithmetic, largest so far."""
    with decimal.localcontext() as context:
        context.prec = DIGITS
        exact = form(method, decimal.Decimal, steps)
        apart = [abs(float(decimal.Decimal(x) - y)) for x, y in zip(form(method, float, steps), exact, strict=True)]
    return np.maximum.accumulate(apart)


@experiment(
    PAPER,
    "round-off",
    "Rounding errors: the form in momenta (10) against the form in positions (7)",
    "section 2, comments on the implementation",
)
def round_off(quick: bool) -> Outcome:
    """The paper states the methods in positions, (7), and implements them in momenta, (10), to reduce the effect of
    round-off. Both forms run the oscillator q̈ = −q from the same starting values, in doubles and in 34 decimal
    digits; the difference is round-off. No sum is compensated here, as geomint's own implementation does."""
    steps = 4000 if quick else 40_000
    found = {
        label: [round_off_of(form, construct(a), steps) for form in (in_positions, in_momenta)]
        for label, a in METHODS.items()
    }
    said: dict[str, Any] = {"paper": "reduced by (10)", "where": "section 2, comments on the implementation"}
    checks = [
        Check(
            f"{label}: round-off of form (7) over that of form (10), {steps:,} steps", positions[-1] / momenta[-1],
            (10.0, None), rtol=None, **said,
        )
        for label, (positions, momenta) in found.items()
    ]  # fmt: skip
    parameters = {"h": STEP, "steps": steps, "digits": DIGITS}
    return Outcome(checks, draw_round_off(found), motion=both_sides, parameters=parameters)


def draw_round_off(found: dict[str, list[np.ndarray]]) -> Figure:
    """Round-off of both forms over the steps."""
    from ...plots.figures import new_figure

    figure = new_figure(8.0, 4.6)
    axes = figure.subplots()
    for k, (label, forms) in enumerate(found.items()):
        for x, style, name in zip(forms, ("-", "--"), ("positions (7)", "momenta (10)"), strict=True):
            shown = np.unique(np.geomspace(10, len(x) - 1, 400).astype(int))
            axes.loglog(shown, np.maximum(x[shown], 1e-17), style, lw=1.1, color=f"C{k}", label=f"{label}: {name}")
    axes.set(xlabel="step", ylabel="largest difference to exact arithmetic", title="Round-off, q̈ = −q, h = 0.1")
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.25)
    return figure
