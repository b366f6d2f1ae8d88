"""Section 3 of Tao and Owhadi's paper: in which sense springs converge to multipliers, on an example with an exact
solution.

    V = ½(q₂ − q₁)²,   g = q₁,   q(0) = (0, 1), p(0) = 0.

With the multiplier, q₁ = 0, q₂ = cos t and λ = cos t in geomint's sign, M q̈ = −∇V − Gᵀλ; the paper, which writes
+Gᵀλ, has −cos t. With a spring the system is linear,

    q̈ = −K q,  K = (1 + ω²  −1; −1  1),     q₁ = (cos ω₁t − cos ω₂t)/√(4 + ω⁴),  ω₁,₂² = ½(2 + ω² ∓ √(4 + ω⁴)),

so that ω²g tends to cos t − cos ω₂t with ω₂ ≈ ω: it has no limit, only its average has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.penalty import penalize, recover_multipliers
from ...methods import Rattle, Verlet
from ...run import simulate
from ...system.system import System
from ...view import Scene
from ..base import Outcome, experiment
from ..checks import Check
from .common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T_END = 10.0
Q0, V0 = np.array([0.0, 1.0]), np.zeros(2)
HELD = System(lambda q: 0.5 * (q[1] - q[0]) ** 2, constraint=lambda q: q[:1])


def as_printed(omega: float, t: np.ndarray) -> np.ndarray:
    """q₁ of the penalised system by the paper's formula."""
    root = np.sqrt(4 + omega**4)
    slow, fast = (np.sqrt((2 + omega**2 + sign * root) / 2) for sign in (-1, 1))
    return (np.cos(slow * t) - np.cos(fast * t)) / root


def by_eigenvectors(omega: float, t: np.ndarray) -> np.ndarray:
    """(q₁, q₂) of the penalised system: q = Σ v vᵀq₀ cos(√κ t) over the eigenpairs of K."""
    values, vectors = np.linalg.eigh(np.array([[1 + omega**2, -1.0], [-1.0, 1.0]]))
    return np.cos(np.sqrt(values) * t[:, None]) * (vectors.T @ Q0) @ vectors.T


class Sprung:
    """Verlet on the penalised system at h = 1/(400 ω), saved 10 ω times in a unit of time."""

    def __init__(self, omega: float):
        self.omega, dt = omega, 1 / (400 * omega)
        run = simulate(penalize(HELD, omega), Q0, V0, method=Verlet(), dt=dt, t_end=T_END, save_every=40)
        self.t, self.q = np.asarray(run.t), np.asarray(run.q)
        self.raw = omega**2 * self.q[:, 0]
        # The error of an average over w is w²/24 λ'' plus 2/(ωw) from the oscillation: equal at this width.
        self.window = (48 / omega) ** (1 / 3)
        self.bound = self.window**2 / 24 + 2 / (omega * self.window)
        self.average = recover_multipliers(run, self.window)[:, 0]
        self.exact = by_eigenvectors(omega, self.t)
        self.printed = as_printed(omega, self.t)

    @property
    def whole(self) -> np.ndarray:
        """Times whose window lies within the run."""
        return (self.t > 0.5 * self.window) & (self.t < T_END - 0.5 * self.window)

    def off(self, multiplier: np.ndarray) -> float:
        """Root mean square distance from λ = cos t."""
        return float(np.sqrt(np.mean((multiplier - np.cos(self.t))[self.whole] ** 2)))

    @property
    def slow_error(self) -> float:
        return float(np.max(np.abs(self.q[:, 1] - np.cos(self.t))))

    def checks(self) -> list[Check]:
        """What is expected at this ω."""
        x, omega = self, self.omega
        return [
            Check(
                f"ω = {omega:g}: ω²q₁ as printed against eigenvectors",
                omega**2 * np.max(np.abs(x.printed - x.exact[:, 0])),
                (None, 1e-8),
                paper="q₁ = (cos ω₁t − cos ω₂t)/√(4 + ω⁴)",
                note="right as printed; ω₁ is a difference of large numbers, hence the rounding error",
            ),
            Check.near(
                f"ω = {omega:g}: ω²q₁ of Verlet against it",
                np.max(np.abs(x.raw - omega**2 * x.printed)),
                2.6e-6 * omega,
                0.05,
                verdict="information",
                note="the error of Verlet's frequency, (hω)²ωt/24",
            ),
            Check(
                f"ω = {omega:g}: rms of ω²g − λ",
                x.off(x.raw),
                (0.7, 0.72),
                paper="ω²g has no limit",
                where="(3.1)",
                note="√½, that of cos ωt",
            ),
            Check.near(
                f"ω = {omega:g}: largest error of q₂",
                x.slow_error,
                3.957 / omega**2,
                0.02,
                paper="slow variables converge strongly",
                where="section 3, Lemma A.2",
                note="max ½t |sin t|/ω² = 3.957/ω²",
            ),
            Check(
                f"ω = {omega:g}: rms of the average − λ",
                x.off(x.average),
                (0.3 * x.bound, 0.5 * x.bound),
                paper="the average of ω²g converges to λ",
                where="Theorem 1.3, (1.8)",
                note="0.3 to 0.5 of the bound w²/24 + 2/(ωw) for a window w about t",
            ),
        ]


@experiment(
    PAPER,
    "penalty-against-multipliers",
    "Springs against multipliers: q converges like ω⁻², ω²g only on average",
    "section 3, (3.1); theorem 1.3",
)
def penalty_against_multipliers(quick: bool) -> Outcome:
    """The two exact solutions, each compared with the method for it, and the limit of ω²g. The paper's formula for
    q₁ is right as printed."""
    sprung = {omega: Sprung(omega) for omega in ((10.0, 50.0, 250.0) if quick else (10.0, 20.0, 50.0, 100.0, 250.0))}
    held = simulate(HELD, Q0, V0, method=Rattle(), dt=0.001, t_end=T_END, save_every=10)
    checks = held_checks(held)
    for omega in (10.0, 50.0, 250.0):
        checks += sprung[omega].checks()
    checks += rate_checks(sprung)
    return Outcome(
        checks,
        draw_penalty(sprung, held),
        motion=lambda: motion(sprung[10.0], held),
        parameters={"ω": str([*sprung]), "h of Verlet": "1/(400 ω)", "h of Rattle": 0.001, "t_end": T_END},
        left_out=["the rates from ω = 20 and 100 too"] if quick else (),
    )


def held_checks(held: Any) -> list[Check]:
    """Rattle on the constrained system, against cos t."""
    note = "h²/24 max t |sin t| = 3.3e-7 at h = 0.001"
    apart = lambda x: np.max(np.abs(x - np.cos(held.t)))
    return [
        Check("Rattle, h = 0.001: largest |q₁|", np.max(np.abs(held.q[:, 0])), (None, 1e-15), paper="q₁ = 0"),
        Check.near("Rattle: q₂ against cos t", apart(held.q[:, 1]), 3.30e-7, 0.03, paper="q₂ = cos t", note=note),
        Check.near(
            "Rattle: λ against cos t (the paper's is −cos t)",
            apart(held.multipliers[:, 0]),
            3.30e-7,
            0.03,
            paper="λ = −cos t with +λᵀ∇g",
            note="geomint has −Gᵀλ in the equations of motion, and so the other sign",
        ),
    ]


def rate_checks(sprung: dict[float, Sprung]) -> list[Check]:
    """All ω together."""
    slope = float(np.polyfit(np.log([*sprung]), np.log([x.slow_error for x in sprung.values()]), 1)[0])
    return [
        Check(
            "rms of the average − λ over w²/24 + 2/(ωw), the largest",
            max(x.off(x.average) / x.bound for x in sprung.values()),
            (0.4, 0.55),
            paper="the average of ω²g converges to λ",
            where="Theorem 1.3, (1.8)",
            note="the window must be long compared with 1/ω and short compared with the motion",
        ),
        Check(
            "error of q₂ as a power of ω",
            slope,
            (-2.01, -1.99),
            paper=-2,
            where="section 4.1, Remark A.3",
        ),
    ]


def motion(x: Sprung, held: Any) -> Scene:
    """The point (q₁, q₂) held by springs of ω = 10, and the one on the constraint q₁ = 0; with the multiplier."""
    chosen = np.arange(0, len(x.t), 4)
    on_line = np.stack([0 * x.t, np.interp(x.t, held.t, held.q[:, 1])], axis=1)
    return Scene(
        x.t[chosen],
        np.stack([x.q, on_line], axis=1)[chosen],
        colors=(0, 1),
        names={f"springs, ω = {x.omega:g}": 0, "constraint q₁ = 0": 1},
        series={"ω²g": (x.t, x.raw), "its average": (x.t[x.whole], x.average[x.whole]), "λ": (x.t, np.cos(x.t))},
        radii=0.04 / x.omega**2,  # in the unit of q₁, which is drawn larger than q₂
        trail=40,
        title="A spring for the constraint q₁ = 0",
        subtitle="q₁ to the right, q₂ upwards",
    )


def draw_penalty(sprung: dict[float, Sprung], held: Any) -> Figure:
    """ω²g and its average for three ω on the left, rates on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 6.0)
    left, right = figure.add_gridspec(1, 2, width_ratios=(1.7, 1))
    strips = left.subgridspec(3, 1, hspace=0.05)
    panels = [figure.add_subplot(strips[k]) for k in range(3)]
    for k, (axes, omega) in enumerate(zip(panels, (10.0, 50.0, 250.0), strict=True)):
        x = sprung[omega]
        axes.plot(x.t, x.raw, lw=0.6 if omega < 100 else 0.3, color="C0", alpha=0.6, label="ω²g")
        axes.plot(x.t[x.whole], x.average[x.whole], lw=1.6, color="C3", label="averaged over (48/ω)^⅓")
        axes.plot(held.t, held.multipliers[:, 0], "k--", lw=1.2, label="λ by Rattle = cos t")
        axes.set(xlim=(0, T_END), ylim=(-2.6, 2.6), ylabel=f"ω = {omega:g}")
        axes.tick_params(labelbottom=k == 2)
        axes.grid(alpha=0.25)
    panels[0].set_title("The multiplier of q₁ = 0: ω²g has no limit, its average has")
    panels[-1].set_xlabel("time")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    rates = figure.add_subplot(right)
    omega = np.array(list(sprung))
    rates.loglog(omega, [x.off(x.raw) for x in sprung.values()], "o-", ms=4, color="C0", label="ω²g − λ, rms")
    rates.loglog(omega, [x.off(x.average) for x in sprung.values()], "s-", ms=4, color="C3", label="average − λ, rms")
    rates.loglog(omega, [x.slow_error for x in sprung.values()], "^-", ms=4, color="C2", label="q₂ − cos t, largest")
    rates.loglog(omega, [x.bound / np.sqrt(2) for x in sprung.values()], ":", lw=1, color="C3", label="bound ∝ ω^(−⅔)")
    rates.loglog(omega, 2 * omega**-2.0, "k:", lw=1, label="ω⁻²")
    rates.set(xlabel="ω", ylabel="error, t ≤ 10", title="Springs against multipliers")
    rates.set_xticks(omega, [f"{x:g}" for x in omega])
    rates.set_xticks([], minor=True)
    rates.legend(frameon=False, fontsize=9, loc="lower left")
    rates.grid(alpha=0.25)
    return figure
