"""SHAKE and RATTLE give the same positions; their multipliers and their momenta differ.

The slides write G = −∂g/∂q and leave masses out; here G = ∂g/∂q and

    M q̈ = −∇U − Gᵀλ,   g(q) = 0,   G M⁻¹p = 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...analysis import measure
from ...analysis.measure import Point
from ...methods import Rattle, Shake
from ...models import Model
from ...run import simulate
from ..base import Outcome, experiment
from ..checks import Check
from .problems import EPS, PAPER, animated, pendula

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Textbook(NamedTuple):
    """RATTLE as the slides write it; row k of λʳ and λᵛ belongs to the step from k to k + 1."""

    q: np.ndarray
    p: np.ndarray
    positional: np.ndarray  # λʳ, at q_k
    velocity: np.ndarray  # λᵛ, at q_{k+1}


def textbook_rattle(model: Model, h: float, steps: int) -> Textbook:
    """RATTLE in NumPy for links between unit masses in unit gravity. It uses only the initial data of geomint."""
    q, p, n = np.array(model.q0, float), np.array(model.v0, float), len(model.q0)
    links = lambda q: np.diff(q, axis=0, prepend=0.0)
    squares, force = np.sum(links(q) ** 2, axis=1), np.tile([0.0, -1.0], (n, 1))
    incidence = np.eye(n) - np.eye(n, k=-1)
    gradient = lambda q: (2 * incidence[:, :, None] * links(q)[:, None, :]).reshape(n, -1)
    pull = lambda G, multipliers: (G.T @ multipliers).reshape(q.shape)
    rows = []
    for _ in range(steps):
        G, positional = gradient(q), np.zeros(n)
        for _ in range(8):  # Newton's method for g(q_{k+1}) = 0
            half = p + 0.5 * h * (force - pull(G, positional))
            there = q + h * half
            positional = positional + np.linalg.solve(
                0.5 * h**2 * gradient(there) @ G.T, np.sum(links(there) ** 2, axis=1) - squares
            )
        half = p + 0.5 * h * (force - pull(G, positional))
        rows.append((q, p, positional))
        q, G = q + h * half, gradient(q + h * half)
        velocity = np.linalg.solve(G @ G.T, G @ np.ravel(2 / h * half + force))  # G p_{k+1} = 0
        p = half + 0.5 * h * (force - pull(G, velocity))
        rows[-1] = (*rows[-1], velocity)
    before, momenta, positional, velocity = (np.array(x) for x in zip(*rows, strict=True))
    return Textbook(np.append(before, q[None], axis=0), np.append(momenta, p[None], axis=0), positional, velocity)


class Compared:
    """The same steps by SHAKE, by RATTLE and by the NumPy program."""

    def __init__(self, name: str, h: float, steps: int):
        self.model = model = pendula()[name]
        go = lambda method: simulate(model.system, model.q0, model.v0, method=method, dt=h, t_end=steps * h)
        self.name, self.h = name, h
        self.rattle, self.shake, self.textbook = go(Rattle()), go(Shake()), textbook_rattle(model, h, steps)
        apart = lambda a, b: np.max(np.abs(a - b), axis=(1, 2))
        self.between, self.from_textbook = apart(self.shake.q, self.rattle.q), apart(self.rattle.q, self.textbook.q)
        self.momenta = float(np.max(apart(self.rattle.p, self.textbook.p)))
        # λʳ of the step that begins at q_k, λᵛ of the one that ends there.
        self.mean = 0.5 * (self.textbook.positional[1:] + self.textbook.velocity[:-1])
        self.multipliers = np.asarray(self.shake.multipliers)[1:-1]


def off_tangent(model: Model, steps: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """max |G M⁻¹p| until t = 2 by SHAKE and by RATTLE, for each step size."""
    go = lambda method, h: np.max(
        np.abs(simulate(model.system, model.q0, model.v0, method=method, dt=h, t_end=2.0).velocity_residual)
    )
    shake, rattle = (np.array([go(method, h) for h in steps]) for method in (Shake(), Rattle()))
    return shake, rattle


def local_error(model: Model) -> float:
    """The power of h of the error of the positions after one step of RATTLE, which are those of SHAKE, from a point of
    the motion."""
    at = measure.flow(Rattle(), model.system, Point(model.q0, model.v0), 0.02, 37)
    steps = 0.1 / 2.0 ** np.arange(4)
    exact = [measure.independent_reference(model.system, at, np.array([h])).q[-1] for h in steps]
    ends = [measure.flow(Rattle(), model.system, at, h, 1).q for h in steps]
    errors = [np.max(np.abs(a - b)) for a, b in zip(ends, exact, strict=True)]
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


@experiment(
    PAPER,
    "shake-equals-rattle",
    "SHAKE and RATTLE: the same positions, λ = ½(λʳ + λᵛ), other momenta",
    "slides on SHAKE and RATTLE, (4) to (6)",
)
def shake_equals_rattle(quick: bool) -> Outcome:
    """A hundred steps of .02, compared with RATTLE written in NumPy from the slides. A multiplier is a position
    divided by h², so that its rounding error is ε/h² = 6e-13."""
    both = [Compared(name, 0.02, 100) for name in pendula()]
    steps = (0.04, 0.02, 0.01) if quick else (0.04, 0.02, 0.01, 0.005, 0.0025)
    shake, rattle = off_tangent(pendula()["triple pendulum"], steps)
    checks = [row for x in both for row in compared_checks(x)]
    order, local = np.polyfit(np.log(steps), np.log(shake), 1)[0], local_error(pendula()["triple pendulum"])
    checks += [
        Check(
            "RATTLE: largest |G M⁻¹p|",
            rattle.max(),
            (None, 1e-14),
            paper="a mapping of the tangent bundle TM",
            where="RATTLE",
        ),
        Check.near(
            "SHAKE: largest |G M⁻¹p|, h = 0.01",
            shake[2],
            7.69e-5,
            0.05,
            paper="does not define a mapping of the tangent bundle TM",
            where="SHAKE, (4)",
        ),
        Check(
            "SHAKE: |G M⁻¹p| as a power of h",
            order,
            (1.99, 2.01),
            paper="second-order accurate",
            where="local error",
        ),
        Check(
            "SHAKE and RATTLE: local error of the positions as a power of h",
            local,
            (2.9, 3.1),
            paper="the local error is O(h³)",
            where="local error",
            note="one step from TM against the exact motion",
        ),
    ]
    return Outcome(
        checks,
        draw_shake(both, steps, shake, rattle),
        motion=lambda: animated(both[0].model, Rattle(), 0.02, 20.0, "A triple pendulum by RATTLE"),
        parameters={"h": 0.02, "steps": 100, "h of the tangency": list(steps), "t_end of the tangency": 2.0},
        left_out=("steps down to 0.0025",),
    )


def compared_checks(x: Compared) -> list[Check]:
    same: dict[str, Any] = {"paper": "identical sequences of positions", "where": "(6)"}
    written: dict[str, Any] = {"verdict": "information", "note": "RATTLE written from the slides in NumPy"}
    return [
        Check(f"{x.name}: positions, SHAKE against RATTLE", x.between.max(), (None, 1e-13), **same),
        Check(f"{x.name}: positions, RATTLE against the textbook", x.from_textbook.max(), (None, 1e-13), **written),
        Check(f"{x.name}: momenta, RATTLE against the textbook", x.momenta, (None, 1e-13), **written),
        Check(
            f"{x.name}: λ of SHAKE against ½(λʳ + λᵛ)",
            np.max(np.abs(x.multipliers - x.mean)),
            (None, 50 * EPS / x.h**2),
            paper="λ = ½(λʳ + λᵛ)",
            where="(6)",
            note="λ is a position divided by h²: its rounding error is of the order of ε/h² = 6e-13",
        ),
        Check.near(
            f"{x.name}: λʳ against λᵛ",
            np.max(np.abs(x.textbook.positional[1:] - x.textbook.velocity[:-1])),
            0.014,
            0.05,
            paper="the two solutions differ in the momenta",
            where="(5), (6)",
        ),
    ]


def draw_shake(both: list[Compared], steps: tuple[float, ...], shake: np.ndarray, rattle: np.ndarray) -> Figure:
    """Positions, multipliers, and the residual of the hidden constraint G M⁻¹p = 0."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 4.2)
    same, multipliers, tangent = figure.subplots(1, 3)
    for k, x in enumerate(both):
        seen = lambda y: np.where(y > 0, y, np.nan)
        same.semilogy(seen(x.between), "o", ms=3.5, color=f"C{k}", label=f"{x.name}: SHAKE − RATTLE")
        same.semilogy(seen(x.from_textbook), "x", ms=4, color=f"C{k}", alpha=0.6, label=f"{x.name}: RATTLE − textbook")
    same.axhline(1e-13, color="0.5", lw=0.8, ls="--")
    same.set(
        ylim=(1e-17, 1e-11),
        xlabel="step",
        ylabel="largest difference of a coordinate",
        title=f"The same positions, h = {both[0].h:g}",
    )
    same.legend(frameon=False, fontsize=8, loc="upper left")
    x = both[0]
    t = x.h * np.arange(1, len(x.mean) + 1)
    exact = x.mean[:, 0]
    multipliers.plot(t, x.textbook.positional[1:, 0] - exact, lw=1.3, color="C2", label="RATTLE's λʳ")
    multipliers.plot(t, x.textbook.velocity[:-1, 0] - exact, lw=1.3, color="C4", label="RATTLE's λᵛ")
    multipliers.plot(t[::4], x.multipliers[::4, 0] - exact[::4], "k.", ms=4, label="SHAKE's λ")
    multipliers.set(
        xlabel="time", ylabel="distance from ½(λʳ + λᵛ)", title=f"Multipliers of the first link, h = {x.h:g}"
    )
    multipliers.legend(frameon=False, fontsize=8)
    tangent.loglog(steps, shake, "o-", ms=4, color="C0", label="SHAKE")
    tangent.loglog(steps, np.maximum(rattle, 1e-17), "s-", ms=4, color="C1", label="RATTLE")
    guide = np.array(steps)
    tangent.loglog(guide, 0.3 * shake[0] * (guide / guide[0]) ** 2, "k:", lw=1, label="h²")
    tangent.set(
        ylim=(1e-17, 1e-1),
        xlabel="step h",
        ylabel="largest |G M⁻¹p|, t ≤ 2",
        title="Momenta: off the tangent space or not",
    )
    tangent.set_xticks(steps, [f"{h:g}" for h in steps])
    tangent.set_xticks([], minor=True)
    tangent.legend(frameon=False, fontsize=8, loc="center right")
    for axes in (same, multipliers, tangent):
        axes.grid(alpha=0.25)
    figure.suptitle("SHAKE and RATTLE; middle and right: triple pendulum", fontsize=11)
    return figure
