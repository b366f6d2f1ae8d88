"""IMEX with a quadratic fast part is Verlet with the mass M + (hΩ/2)²."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...methods import IMEX, Verlet
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from ...system.mechanics import Mechanics
from ...system.system import System
from ...view.of_run import scene_of
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import FRAMES, PAPER, stiff_springs


def dense_oscillator() -> tuple[System, np.ndarray, np.ndarray]:
    """Five coordinates with full matrices of mass and stiffness, a rest position of W away from 0, and a quartic V."""
    random = np.random.default_rng(3)
    first, second = random.normal(size=(2, 5, 5))
    mass, stiff = np.eye(5) + 0.2 * first @ first.T, 100.0 * second @ second.T
    place = random.normal(size=5)
    fast = lambda q: 0.5 * (q - place) @ (jnp.asarray(stiff) @ (q - place))
    return (
        System(lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1] ** 2, mass=mass, fast=fast),
        place + 0.1 * random.normal(size=5),
        0.3 * random.normal(size=5),
    )


def heavier(system: System, q: np.ndarray, h: float) -> System:
    """The mass M + (h²/4) Hess W, and V + W as one potential."""
    mech, zero = Mechanics(system, q.shape), jnp.asarray(q)
    row = lambda e: (
        mech.momentum(e.reshape(q.shape)) + 0.25 * h**2 * mech.fast_hessian_product(zero, e.reshape(q.shape))
    ).ravel()
    return System(mech.potential, mass=jit(jax.vmap(row))(jnp.eye(q.size)))


def apart(a: Any, b: Any) -> np.ndarray:
    """Over time: the largest difference of q and p, each relative to its largest value."""
    return np.max(
        [
            np.abs(x - y).reshape(len(x), -1).max(axis=1) / np.abs(x).max()
            for x, y in ((np.asarray(a.q), np.asarray(b.q)), (np.asarray(a.p), np.asarray(b.p)))
        ],
        axis=0,
    )


@jit
def action_residual(system: System, a: Any, b: Any, c: Any, h: Any, factor: Any) -> Any:
    """D₂L_h(a, b) + D₁L_h(b, c) at many points, with `factor` before the term of W in

    L_h(a, b) = (h/2)|(b − a)/h|² − (h/2)(U(a) + U(b)) − factor · h mᵀΩ²m,    m = (a + b)/2.
    """
    mech = derive(system, a.shape[1:])
    slow = lambda q: mech.potential(q) - mech.fast_potential(q)

    def action(x: Any, y: Any) -> Any:
        kinetic = 0.5 * jnp.sum((y - x) ** 2) / h
        return kinetic - 0.5 * h * (slow(x) + slow(y)) - 2 * factor * h * mech.fast_potential(0.5 * (x + y))

    residual = lambda x, y, z: jax.grad(action, argnums=1)(x, y) + jax.grad(action)(y, z)
    return jax.vmap(residual)(a, b, c)


def lagrangian_checks() -> list[Check]:
    """The discrete Lagrangian as corrected and as printed, on positions of IMEX: stationary, or not."""
    springs, h = stiff_springs(), 0.1
    q = np.asarray(simulate(springs.system, springs.q0, springs.v0, method=IMEX(), dt=h, t_end=100 * h).q)
    of = lambda factor: float(np.max(np.abs(action_residual(springs.system, q[:-2], q[1:-1], q[2:], h, factor))))
    slide = "IMEX as Störmer/Verlet with a Modified Mass Matrix"
    name = "FPU: largest residual of the discrete Euler–Lagrange equations of L_h"
    half = "The last term of L_h needs the factor ½ of W; the slides' next equations have it."
    return [
        Check(
            f"{name} with ½ before W",
            of(0.5),
            (None, 1e-12),
            paper="missing ½",
            where=slide,
            verdict="corrected",
            note=half,
        ),
        Check(
            f"{name} as printed",
            of(1.0),
            (0.1, None),
            verdict="information",
            rtol=None,
            note="the printed form, as a control",
        ),
    ]


@experiment(
    PAPER,
    "modified-mass",
    "IMEX with a quadratic fast part is Verlet with the mass M + (hΩ/2)²",
    "IMEX as Störmer/Verlet with a modified mass matrix",
)
def modified_mass(quick: bool) -> Outcome:
    """The proposition and its corollary: L_h of the midpoint rule equals L_h of the trapezoidal rule with another mass.
    The same 100 steps in three ways: IMEX as it runs for a quadratic W, Newton's method for the midpoint, and Verlet
    with the modified mass."""
    from ...plots.figures import new_figure

    chain, springs = models.elastic_chain(20, stiff=10.0), stiff_springs()
    problems = {"FPU": (springs.system, springs.q0, springs.v0), "full matrices": dense_oscillator()}
    if not quick:
        problems["elastic chain"] = (chain.system, chain.q0, chain.v0)
    same: dict[str, Any] = {"paper": "equal", "where": "The Discrete Lagrangian and Modified Mass Matrix, corollary"}
    ours: dict[str, Any] = {"verdict": "information"}
    figure, checks, h = new_figure(8.0, 4.2), [], 0.1
    axes = figure.subplots()
    for k, (label, (system, q0, v0)) in enumerate(problems.items()):
        run = simulate(system, q0, v0, method=IMEX(), dt=h, t_end=100 * h)
        plan = run.method.plan  # pyright: ignore[reportAttributeAccessIssue]
        newton = simulate(system, q0, v0, method=IMEX(plan=plan, quadratic=False), dt=h, t_end=100 * h)
        verlet = simulate(heavier(system, q0, h), q0, p0=np.asarray(run.p)[0], method=Verlet(), dt=h, t_end=100 * h)
        ways = (("Verlet with the modified mass", verlet, "-", same), ("Newton's method", newton, ":", ours))
        for name, other, style, said in ways:
            difference = apart(run, other)
            checks.append(Check(f"{label}: from {name}", difference.max(), (None, 1e-13), **said))
            axes.semilogy(
                np.arange(101), np.maximum(difference, 1e-17), style, lw=1.3, color=f"C{k}", label=f"{label}: {name}"
            )
    axes.axhline(1e-13, color="0.5", lw=0.8, ls="--")
    axes.set(
        xlabel="step",
        ylabel="relative difference of q and p",
        title="IMEX for a quadratic W against the same method done in two other ways, h = 0.1",
        xlim=(0, 100),
        ylim=(1e-17, 1e-12),
    )
    axes.grid(alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    wave = lambda: scene_of(simulate(chain.system, chain.q0, chain.v0, method=IMEX(), dt=h, t_end=24.0), frames=FRAMES)
    parameters = {"h": h, "steps": 100, "seed of the full matrices": 3}
    left_out = ("the elastic chain",)
    return Outcome([*checks, *lagrangian_checks()], figure, motion=wave, parameters=parameters, left_out=left_out)
