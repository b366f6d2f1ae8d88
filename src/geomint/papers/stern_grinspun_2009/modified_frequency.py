"""IMEX turns fast oscillations by a modified frequency ω̃, hω/2 = tan(hω̃/2): it is an impulse method with ω̃."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...methods import IMEX, Impulse
from ...run import ensemble, simulate
from ...system.lagrangian import derive
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import OMEGA, PAPER, chain_motion, stiff_springs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLIDE = "Implicit Midpoint and Modified Frequency"
STEP = 0.1


def phases(products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By how much a step of IMEX turns (ωq, p) for W = ½ω²q² alone, and the largest change of |(ωq, p)|² over that at
    the start in 100 steps, for each hω."""
    omega = products / STEP
    free = System(
        lambda q, k: 0.0 * jnp.sum(q), fast=lambda q, k: 0.5 * k["omega"] ** 2 * jnp.sum(q**2), params={"omega": 1.0}
    )
    starts = np.ones((len(omega), 1)), np.zeros((len(omega), 1))
    run = ensemble(free, *starts, params={"omega": omega}, method=IMEX(), dt=STEP, t_end=100 * STEP)
    q, p = omega[:, None] * np.asarray(run.q)[:, :, 0], np.asarray(run.p)[:, :, 0]
    turned = np.arctan2(-p[:, 1], q[:, 1])
    square = (q**2 + p**2) / omega[:, None] ** 2
    return turned, np.max(np.abs(square - 1), axis=1)


def impulse_steps(steps: int, tilde: bool) -> tuple[np.ndarray, np.ndarray]:
    """q and p of the chain by the slides' modified impulse scheme, with ω̃, or with ω itself: kicks by −½h∇U, and
    between them a rotation of (ωq, p) by hω̃; the coordinates without a stiff spring (ω = 0) drift."""
    chain = stiff_springs()
    mech = derive(chain.system, chain.q0.shape)
    slow = jax.jit(jax.grad(lambda q: mech.potential(q) - mech.fast_potential(q)))
    angle = 2 * np.arctan(STEP * OMEGA / 2) if tilde else STEP * OMEGA
    cos, sin = np.cos(angle), np.sin(angle)
    q, p = chain.q0.copy(), chain.v0.copy()
    path = [(q, p)]
    for _ in range(steps):
        p = p - 0.5 * STEP * np.asarray(slow(q))
        fast, free = (cos * q[1] + sin / OMEGA * p[1], cos * p[1] - OMEGA * sin * q[1]), (q[0] + STEP * p[0], p[0])
        q, p = (np.stack(pair) for pair in zip(free, fast, strict=True))
        p = p - 0.5 * STEP * np.asarray(slow(q))
        path.append((q, p))
    return np.array([x for x, _ in path]), np.array([y for _, y in path])


@experiment(
    PAPER,
    "modified-frequency",
    "IMEX is the impulse method with a modified frequency, hω/2 = tan(hω̃/2), and hω̃ never reaches π",
    SLIDE,
)
def modified_frequency(quick: bool) -> Outcome:
    """The implicit midpoint step is a Cayley transform: an exact rotation of (Ωq, p) by hΩ̃ with hΩ/2 = tan(hΩ̃/2). So
    IMEX is the impulse method with Ω̃ for Ω, and since hω̃ < π it never meets a resonance. Measured from steps of IMEX,
    and along 100 steps of the Fermi–Pasta–Ulam chain."""
    products, huge = np.geomspace(0.01, 100.0, 41), np.geomspace(1e3, 1e6, 4)
    turned, changed = phases(products)
    chain = stiff_springs()
    run = simulate(chain.system, chain.q0, chain.v0, method=IMEX(), dt=STEP, t_end=100 * STEP)
    exact = simulate(chain.system, chain.q0, chain.v0, method=Impulse(), dt=STEP, t_end=100 * STEP)
    size = (np.abs(np.asarray(run.q)).max(), np.abs(np.asarray(run.p)).max())
    apart = lambda q, p, x: max(
        float(np.abs(q - np.asarray(x.q)).max() / size[0]), float(np.abs(p - np.asarray(x.p)).max() / size[1])
    )
    same: dict[str, Any] = {"where": SLIDE}
    control: dict[str, Any] = {"verdict": "information"}
    checks = [
        Check(
            "largest |phase of a step − 2 arctan(hω/2)|, hω from 0.01 to 100",
            np.abs(turned - 2 * np.arctan(products / 2)).max(), (None, 1e-13), paper="hω/2 = tan(hω̃/2)", **same,
        ),
        Check("π − largest hω̃, hω up to 1e6", np.pi - phases(huge)[0].max(), (1e-7, 1e-4), paper="hω̃ < π", **same),
        Check(
            "largest change of |(ωq, p)|² in 100 steps, relative", changed.max(), (None, 1e-12),
            paper="does not affect the fast energy", **same,
        ),
        Check(
            "FPU, 100 steps: IMEX from the impulse scheme with Ω̃",
            apart(*impulse_steps(100, True), run), (None, 1e-12),
            paper="equal", **same,
        ),
        Check(
            "FPU, 100 steps: IMEX from the impulse method with Ω", apart(exact.q, exact.p, run), (0.1, None),
            rtol=None, **control,
        ),
        Check(
            "FPU, 100 steps: the same scheme with Ω from the impulse method", apart(*impulse_steps(100, False), exact),
            (None, 1e-12), **control,
        ),
    ]  # fmt: skip
    figure = draw_phases(products, turned)
    parameters = {"h": STEP, "ω of the chain": OMEGA, "steps": 100, "hω": "0.01 to 100"}
    return Outcome(checks, figure, motion=chain_motion(Impulse(), STEP), parameters=parameters)


def draw_phases(products: np.ndarray, turned: np.ndarray) -> Figure:
    """The phase of a step against hω."""
    from ...plots.figures import new_figure

    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.geomspace(0.1, 1000, 400)
    axes.semilogx(x, np.minimum(x, 4.2), color="0.6", lw=1, label="exact flow: hω")
    axes.semilogx(x, 2 * np.arctan(x / 2), color="C0", lw=1.2, label="2 arctan(hω/2)")
    axes.semilogx(products, turned, "o", ms=5, mfc="none", color="C3", label="measured from a step of IMEX")
    axes.axhline(np.pi, color="0.4", lw=0.8, ls="--", label="π: first resonance")
    axes.set(xlim=(0.1, 1000), ylim=(0, 4), xlabel="hω", ylabel="phase of a step", title="IMEX turns by hω̃ < π")
    axes.set_yticks([0, np.pi / 2, np.pi], ["0", "π/2", "π"])
    axes.legend(frameon=False, fontsize=9, loc="center right")
    axes.grid(alpha=0.25)
    return figure
