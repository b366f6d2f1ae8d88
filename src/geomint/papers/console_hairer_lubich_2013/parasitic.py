"""Theorem 3: the parasitic components of a run, fitted at the roots of ρ and σ, stay bounded for a long time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import models
from ...methods import SymmetricMultistep
from ...models import Model
from ...run import Trajectory
from ..base import Outcome, experiment
from ..checks import Check
from .coefficients import roots
from .displaced import Displaced, component, displaced_runs, size, with_errors
from .runs import EIGHT, FOUR, PAPER, motion, moved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD = Displaced(a=FOUR)
DELTA = 1e-5  # the error of the starting values of the long run
WINDOW = 96  # steps in which a component is fitted
LONG = 0.01  # the step of the long run


@functools.cache
def two_bodies() -> Model:
    """The model whose starting values have errors; one object, so that the method is compiled for it once."""
    return with_errors(models.sphere_bodies())


def angles() -> tuple[float, float]:
    """The arguments of the parasitic roots of ρ and of σ on the upper half of the unit circle."""
    upper = lambda weights: float(next(np.angle(z) for z in roots(weights) if z.imag > 1e-9))
    return upper(METHOD.coefficients.rho_tilde), upper(METHOD.coefficients.sigma)


class Sizes(NamedTuple):
    """|z| at the root of ρ, from displaced positions, and |h²Gᵀν| at that of σ, from displaced multipliers, in
    consecutive windows."""

    t: np.ndarray
    rho: np.ndarray
    sigma: np.ndarray


def pulls(run: Trajectory, member: int) -> np.ndarray:
    """−Gᵀλ of a member after its start, with the multipliers of the recursion."""
    return np.asarray(run.columns["pull"])[member, 1:]


def sizes(h: float, steps: int, delta: float, window: int = WINDOW) -> Sizes:
    """Of two runs: errors δ in q_j, and errors δ/h² in λ_j. Without errors (δ = 0) both are the same run."""
    run = displaced_runs(two_bodies(), METHOD, h, steps, [delta, 0.0], [0.0, delta / h**2])
    of_rho, of_sigma = angles()
    rho = size(component(run.q[0, 1:], of_rho, window))
    sigma = h**2 * size(component(pulls(run, 1), of_sigma, window))
    return Sizes((np.arange(len(rho)) + 0.5) * window * h, rho, sigma)


def spread_of_square(x: np.ndarray) -> float:
    """How far x² varies, relative to its mean."""
    return float(np.ptp(x**2) / np.mean(x**2))


@experiment(
    PAPER,
    "parasitic",
    "Parasitic components, fitted at the roots of ρ and σ: nearly constant over the time of Theorem 3",
    "section 7, Theorem 3",
)
def parasitic(quick: bool) -> Outcome:
    """Theorem 3. A numerical solution is q_n = y(nh) + Σ ζᵢⁿzᵢ(nh), λ_n = μ(nh) + Σ ζᵢⁿνᵢ(nh), with smooth functions
    y, μ, zᵢ, νᵢ and the roots ζᵢ ≠ 1 of ρ and σ. Where (12) and (13) hold and |zᵢ|, |h²Gᵀνᵢ| ≤ δ/2 at the start, they
    stay below δ for times up to O(h/δ). Here the two bodies on the sphere with order 4, a = .5, whose roots are .32
    radians apart. The starting values get errors of size δ, and the components are fitted in windows of 96 steps."""
    time = 100.0 if quick else 2000.0
    long = sizes(LONG, round(time / LONG), DELTA)
    coarse, fine = (sizes(h, round(16 / h), DELTA, window=64) for h in (0.01, 0.005))
    exact = {h: sizes(h, round(16 / h), 0.0, window=64) for h in (0.01, 0.005)}
    checks = [
        *angle_checks(),
        *bound_checks(long, time),
        *invariant_checks(coarse, fine),
        *start_checks(exact[0.01], exact[0.005]),
    ]
    recommended = [gap_growth(h) for h in (0.02, 0.005)]
    small = "The roots of ρ and σ that are 0.0006 radians apart excite each other; h = 0.02 is not small enough."
    checks += [
        Check(
            "r = 8, h = 0.02: |z| at the root 0.64 of ρ, largest for t ≤ 100", recommended[0], (2e-5, 2e-4),
            verdict="information", note=small, rtol=None,
        ),
        Check(
            "r = 8, h = 0.005: |z| at the root 0.64 of ρ, largest for t ≤ 100", recommended[1], (None, 1e-10),
            paper="O(hʳ⁺²) for small h", where="Theorem 3", rtol=None,
        ),
    ]  # fmt: skip
    return Outcome(
        checks,
        draw_parasitic(long),
        motion=motion(models.sphere_bodies(), SymmetricMultistep(a=EIGHT), 0.02, 20.0),
        parameters={"a": FOUR, "δ": DELTA, "h": LONG, "t ≤": time, "window in steps": WINDOW, "seed": 1},
        left_out=("the bound for t ≤ 2000, which is h/δ and more",),
    )


def angle_checks() -> list[Check]:
    """Where the spectrum of a run has its peaks beyond the motion, from the Fourier transform of 2000 steps."""
    run = displaced_runs(two_bodies(), METHOD, 0.01, 2000, [1e-5, 0.0], [0.0, 0.1])
    checks = []
    found = {"ρ": np.asarray(run.q)[0, 1:], "σ": pulls(run, 1)}
    for (name, x), expected in zip(found.items(), angles(), strict=True):
        weighted = x.reshape(len(x), -1) * np.kaiser(len(x), 20.0)[:, None]
        power = np.sum(np.abs(np.fft.rfft(weighted, 8 * len(x), axis=0)) ** 2, axis=1)
        angle = np.linspace(0, np.pi, len(power))
        peak = angle[angle > 1][np.argmax(power[angle > 1])]
        series, form = ("q_n", "Σ ζⁿz") if name == "ρ" else ("λ_n", "Σ ζⁿν")
        checks.append(
            Check.near(
                f"peak of the spectrum of {series}, in radians a step: that of a root of {name}", peak, expected, 0.005,
                paper=expected, where=f"(31), {form}",
            )
        )  # fmt: skip
    return checks


def bound_checks(long: Sizes, time: float) -> list[Check]:
    """The components over the time of Theorem 3: with |z(0)| = δ/2 they may not exceed twice their start."""
    near: dict[str, Any] = {"paper": "at most 2", "where": "Theorem 3"}
    until = f"t ≤ {time:g}, h = {LONG:g}"
    reach = time * 2 * long.rho[0] / LONG
    said = "T = O(hδ⁻¹), here with δ = 2|z(0)|."
    return [
        Check(f"largest |z| over that at the start, {until}", long.rho.max() / long.rho[0], (0.9, 1.05), **near),
        Check(
            f"largest |h²Gᵀν| over that at the start, {until}", long.sigma.max() / long.sigma[0], (0.9, 1.05), **near
        ),
        Check(f"{until}, in units of h/δ", reach, (0.1, 10.0), where="Theorem 3", verdict="information", note=said),
    ]


def invariant_checks(coarse: Sizes, fine: Sizes) -> list[Check]:
    """Proposition 7: ‖zᵢ‖² + O(h²) and ‖h²Gᵀνᵢ‖² + O(h) are nearly invariant."""
    rho = spread_of_square(coarse.rho), spread_of_square(fine.rho)
    sigma = spread_of_square(coarse.sigma), spread_of_square(fine.sigma)
    order = lambda pair: float(np.log2(pair[0] / pair[1]))
    where = "Proposition 7"
    note = "The proposition allows O(h); here its leading term is smaller."
    return [
        Check("relative variation of |z|², h = 0.01, t ≤ 16", rho[0], (0.002, 0.02), paper="O(h²)", where=where),
        Check("relative variation of |z|²: order in h", order(rho), (1.7, 2.4), paper=2, where=where),
        Check("relative variation of |h²Gᵀν|², h = 0.01, t ≤ 16", sigma[0], (0.004, 0.04), paper="O(h)", where=where),
        Check(
            "relative variation of |h²Gᵀν|²: order in h", order(sigma), (1.6, 2.3),
            paper="at least 1", where=where, note=note,
        ),
    ]  # fmt: skip


def start_checks(coarse: Sizes, fine: Sizes) -> list[Check]:
    """Proposition 5 with accurate starting values, of which s = r + 2."""
    order = lambda a, b: float(np.log2(a[0] / b[0]))
    said: dict[str, Any] = {"paper": 6, "where": "Proposition 5, s = r + 2"}
    return [
        Check("accurate starting values: order of |z| in h", order(coarse.rho, fine.rho), (5.7, 6.3), **said),
        Check("accurate starting values: order of |h²Gᵀν| in h", order(coarse.sigma, fine.sigma), (5.7, 6.3), **said),
    ]


def gap_growth(h: float) -> float:
    """The largest |z| of the recommended method of order 8 at the root of ρ that is closest to one of σ, t ≤ 100."""
    run = moved(models.sphere_bodies(), SymmetricMultistep(a=EIGHT), h, 100.0)
    return float(size(component(run.q[1:], np.arccos(0.8), 160)).max())


def draw_parasitic(long: Sizes) -> Figure:
    """The spectra of q and λ, and the fitted sizes over time."""
    from ...plots.figures import new_figure

    run = displaced_runs(two_bodies(), METHOD, LONG, 2000, [0.0, DELTA, 0.0], [0.0, 0.0, DELTA / LONG**2])
    figure = new_figure(13.0, 4.6)
    position, pull, time = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    of_rho, of_sigma = angles()
    draw_spectrum(position, {"accurate starts": run.q[0, 1:], "errors in q_j": run.q[1, 1:]})
    draw_spectrum(pull, {"accurate starts": pulls(run, 0), "errors in λ_j": pulls(run, 2)})
    position.set_title("Spectrum of q_n", fontsize=11)
    pull.set_title("Spectrum of Gᵀλ_n", fontsize=11)
    for axes in (position, pull):
        axes.axvline(of_rho, color="C2", lw=1, ls="--", label="root of ρ")
        axes.axvline(of_sigma, color="C3", lw=1, ls=":", label="root of σ")
        axes.legend(frameon=False, fontsize=8, loc="upper right")
    time.plot(long.t, long.rho / long.rho[0], lw=0.8, color="C2", label="|z|, errors in q_j")
    time.plot(long.t, long.sigma / long.sigma[0], lw=0.8, color="C3", label="|h²Gᵀν|, errors in λ_j")
    time.axhline(2, color="0.5", lw=0.8, ls="--", label="bound of Theorem 3")
    time.set(xlabel="time", ylabel="size over that at the start", ylim=(0.8, 2.2), xlim=(0, long.t[-1]))
    time.set_title(f"Components over time, h = {LONG:g}", fontsize=11)
    time.legend(frameon=False, fontsize=8, loc="center right")
    for axes in (position, pull, time):
        axes.grid(alpha=0.25)
    figure.suptitle(f"Two bodies on the sphere, order 4, a = 0.5, errors of the starting values {DELTA:g}", fontsize=11)
    return figure


def draw_spectrum(axes: Axes, series: dict[str, Any]) -> None:
    for name, x in series.items():
        x = np.asarray(x)
        weighted = x.reshape(len(x), -1) * np.kaiser(len(x), 20.0)[:, None] / np.kaiser(len(x), 20.0).sum()
        height = np.sqrt(np.sum(np.abs(np.fft.rfft(weighted, axis=0)) ** 2, axis=1))
        axes.semilogy(np.linspace(0, np.pi, len(height)), np.maximum(height, 1e-18), lw=0.9, label=name)
    axes.set(xlim=(0, np.pi), xlabel="radians a step", ylabel="amplitude")
    axes.set_xticks([0, np.pi / 2, np.pi], ["0", "π/2", "π"])
