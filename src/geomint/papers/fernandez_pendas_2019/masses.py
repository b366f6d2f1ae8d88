"""The slides' formulas with masses: where M⁻¹ is missing, and (7).

The slides define Gᵀ = −∂g/∂q and drop M in the definition of SHAKE's momenta, in RATTLE's tangency, in (5), and in the
first step of the SHAKE iteration. With G = ∂g/∂q they are

    p_n = M(q_{n+1} − q_{n−1})/2h,   G M⁻¹p = 0,   (G M⁻¹Gᵀ) λᵛ = G M⁻¹(2p_{n−½}/h + F),   Q = q + hM⁻¹p + h²M⁻¹F.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...methods import Rattle, Shake
from ...models import Model
from ...models.pendula import links
from ...run import simulate
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .problems import PAPER, animated, pendula

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASSES = np.array([1.0, 2.0, 3.0])
STEP, STEPS = 0.02, 100


@functools.cache
def heavy_pendulum() -> Model:
    """The triple pendulum with the masses 1, 2, 3."""
    equal = pendula()["triple pendulum"]
    potential = lambda q: jnp.sum(MASSES * q[:, 1])
    system = System(potential, mass=MASSES[:, None], constraint=links(np.ones(3)))
    return Model(system, equal.q0, equal.v0, "heavy_pendulum", "three links, masses 1, 2, 3", dt=STEP, t_end=20.0)


def gradient(q: np.ndarray) -> np.ndarray:
    """∂g/∂q of g_i = |x_i − x_{i−1}|² − 1, the first link from the origin, (3, 6)."""
    incidence = np.eye(3) - np.eye(3, k=-1)
    return (2 * incidence[:, :, None] * np.diff(q, axis=0, prepend=0.0)[:, None, :]).reshape(3, 6)


def residual(q: np.ndarray) -> np.ndarray:
    return np.sum(np.diff(q, axis=0, prepend=0.0) ** 2, axis=1) - 1


def placed(q: np.ndarray, free: np.ndarray, weights: np.ndarray, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The position with g = 0, and λ, from g(free − share · h² M⁻¹G(q)ᵀλ) = 0, by Newton's method."""
    G, multipliers = gradient(q), np.zeros(3)
    pull = lambda x: (weights * (G.T @ x)).reshape(3, 2)
    for _ in range(12):
        there = free - share * STEP**2 * pull(multipliers)
        slope = share * STEP**2 * gradient(there) @ (weights[:, None] * G.T)
        multipliers = multipliers + np.linalg.solve(slope, residual(there))
    return free - share * STEP**2 * pull(multipliers), multipliers


class Motion(NamedTuple):
    q: np.ndarray
    p: np.ndarray
    off: np.ndarray  # max |G M⁻¹p|
    energy: np.ndarray


def rattle(printed: bool) -> Motion:
    """RATTLE in NumPy for the heavy pendulum; `printed`: with G p = 0 and (5) without masses, as on the slides."""
    model, M = heavy_pendulum(), np.repeat(MASSES, 2)
    q, p = np.array(model.q0, float), np.array(model.v0, float)
    force, weights, ends = np.stack([0 * MASSES, -MASSES], axis=1), 1 / M, (1.0 if printed else 1 / M) * np.ones(6)
    rows = []
    for _ in range(STEPS + 1):
        energy = 0.5 * np.sum(np.ravel(p) ** 2 / M) + np.sum(MASSES * q[:, 1])
        rows.append((q, p, np.max(np.abs(gradient(q) @ (weights * np.ravel(p)))), energy))
        free = q + STEP * (p + 0.5 * STEP * force) / MASSES[:, None]
        there, multipliers = placed(q, free, weights, 0.5)
        half = p + 0.5 * STEP * (force - (gradient(q).T @ multipliers).reshape(3, 2))
        q, G = there, gradient(there)
        velocity = np.linalg.solve(G @ (ends[:, None] * G.T), G @ (ends * np.ravel(2 / STEP * half + force)))
        p = half + 0.5 * STEP * (force - (G.T @ velocity).reshape(3, 2))
    return Motion(*(np.array(x) for x in zip(*rows, strict=True)))


@experiment(
    PAPER,
    "masses",
    "The slides' formulas with masses: M⁻¹ is missing in the tangency, in (5), in p_n and in the first guess",
    "slides on SHAKE and RATTLE, (2) to (7)",
)
def with_masses(quick: bool) -> Outcome:
    """A hundred steps of a pendulum with the masses 1, 2, 3, by RATTLE with the slides' formulas as printed and with
    the masses in place. The full and the quick form are the same."""
    model = heavy_pendulum()
    go = lambda method: simulate(
        model.system, model.q0, model.v0, method=method, dt=STEP, t_end=STEPS * STEP, compensated=False
    )
    right, printed, library, shake = rattle(False), rattle(True), go(Rattle()), go(Shake())
    checks = [*tangency_checks(right, printed, np.asarray(library.q)), *shake_checks(np.asarray(shake.q), shake.p)]
    return Outcome(
        checks,
        draw_masses(right, printed),
        motion=lambda: animated(model, Rattle(), STEP, 20.0, "A triple pendulum with the masses 1, 2, 3"),
        parameters={"masses": MASSES.tolist(), "h": STEP, "steps": STEPS},
    )


def tangency_checks(right: Motion, printed: Motion, library: np.ndarray) -> list[Check]:
    return [
        Check(
            "positions by (5) with M⁻¹, against Rattle",
            np.max(np.abs(right.q - library)),
            (None, 1e-12),
            paper="(GGᵀ)λᵛ = G(−2p/h − F)",
            where="(5)",
            verdict="corrected",
            note="(G M⁻¹Gᵀ)λᵛ = G M⁻¹(−2p/h − F)",
        ),
        Check(
            "largest |G M⁻¹p|, tangency with M⁻¹",
            right.off.max(),
            (None, 1e-13),
            paper="G p = 0",
            where="RATTLE",
            verdict="corrected",
            note="G M⁻¹p = 0, as in (2)",
        ),
        Check(
            "largest |G M⁻¹p|, G p = 0 as printed",
            printed.off.max(),
            (0.05, None),
            paper="G p = 0",
            where="RATTLE, (5)",
            verdict="information",
            note="the printed form, as a control; G p = 0 is the tangency (2) for equal masses only",
        ),
        Check(
            "largest energy error, G p = 0 as printed, over that of RATTLE",
            np.max(np.abs(printed.energy - printed.energy[0])) / np.max(np.abs(right.energy - right.energy[0])),
            (10.0, None),
            paper="G p = 0",
            where="RATTLE, (5)",
            verdict="information",
            note="the printed form, as a control; G p = 0 is the tangency (2) for equal masses only",
        ),
    ]


def shake_checks(q: np.ndarray, p: np.ndarray) -> list[Check]:
    """SHAKE's momenta, its first guess, and (7)."""
    velocity = (q[2:] - q[:-2]) / (2 * STEP)
    force, weights = np.array([0.0, -1.0]), np.repeat(1 / MASSES, 2)  # F = M (0, −1)
    free = q[9] + (q[9] - q[8]) + STEP**2 * force
    without = q[9] + (q[9] - q[8]) + STEP**2 * MASSES[:, None] * force
    next_q, multipliers = placed(q[9], free, weights)
    wrong_q, _ = placed(q[9], without, weights)
    pull = (weights * gradient(q[9])).T  # q_{n+1} = free − h² M⁻¹G(q_n)ᵀλ
    of_shake = np.linalg.lstsq(pull, np.ravel(free - q[10]) / STEP**2)[0]
    return [
        Check(
            "SHAKE: momenta against M(q_{n+1} − q_{n−1})/2h",
            np.max(np.abs(p[1:-1] - MASSES[:, None] * velocity)),
            (None, 1e-11),
            paper="p_n = (q_{n+1} − q_{n−1})/2h",
            where="SHAKE, before (4)",
            verdict="corrected",
            note="the momenta of the masses 2 and 3 are twice and three times that",
        ),
        Check(
            "SHAKE from the guess with h²M⁻¹F, against Shake",
            np.max(np.abs(next_q - q[10])),
            (None, 1e-13),
            paper="Q = q + hM⁻¹p + h²F",
            where="SHAKE iteration",
            verdict="corrected",
        ),
        Check(
            "SHAKE from the guess with h²F as printed, against Shake, over h²",
            np.max(np.abs(wrong_q - q[10])) / STEP**2,
            (0.05, None),
            paper="Q = q + hM⁻¹p + h²F",
            where="SHAKE iteration",
            verdict="information",
            note="the printed form, as a control; another acceleration, whatever h",
        ),
        Check.near(
            "SHAKE's λ over that of (7) with the indices of Σᵢ Gᵢᵀλᵢ",
            np.max(np.abs(of_shake)) / np.max(np.abs(multipliers)),
            1.0,
            1e-9,
            paper="Σᵢ G(q)ᵀλ",
            where="(7)",
            verdict="corrected",
            note="Gᵢ and λᵢ lack their index i, and M⁻¹ is missing",
        ),
    ]


def draw_masses(right: Motion, printed: Motion) -> Figure:
    """Tangency and energy over time."""
    from ...plots.figures import new_figure

    figure = new_figure(11.0, 4.2)
    tangency, energy = figure.subplots(1, 2)
    t = STEP * np.arange(STEPS + 1)
    for motion, color, label in ((right, "C0", "with M⁻¹"), (printed, "C3", "as printed")):
        tangency.semilogy(t, np.maximum(motion.off, 1e-17), color=color, lw=1.3, label=label)
        energy.plot(t, motion.energy - motion.energy[0], color=color, lw=1.3, label=label)
    tangency.set(xlabel="time", ylabel="largest |G M⁻¹p|", ylim=(1e-17, 1e2), title="Tangency")
    energy.set(xlabel="time", ylabel="H − H(0)", title="Energy")
    for axes in (tangency, energy):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=9, loc="center right")
    figure.suptitle("RATTLE, masses 1, 2, 3, h = 0.02", fontsize=11)
    return figure
