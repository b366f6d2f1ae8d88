"""IMEX with a quadratic fast part is Verlet with the mass M + (hΩ/2)²."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...methods import (
    IMEX,
    Verlet,
)
from ...run import simulate
from ...system.mechanics import Mechanics
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import PAPER, stiff_springs


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
    return System(mech.potential, mass=jax.vmap(row)(jnp.eye(q.size)))


def apart(a: Any, b: Any) -> np.ndarray:
    """Over time: the largest difference of q and p, each relative to its largest value."""
    return np.max(
        [
            np.abs(x - y).reshape(len(x), -1).max(axis=1) / np.abs(x).max()
            for x, y in ((np.asarray(a.q), np.asarray(b.q)), (np.asarray(a.p), np.asarray(b.p)))
        ],
        axis=0,
    )


@experiment(
    PAPER,
    "modified-mass",
    "IMEX with a quadratic fast part is Verlet with the mass M + (hΩ/2)²",
    "IMEX as Störmer/Verlet with a modified mass matrix",
)
def modified_mass(quick: bool) -> Outcome:
    """The same 100 steps in three ways: IMEX as it runs for a quadratic W, Newton's method for the midpoint, and
    Verlet with the modified mass."""
    from ...plots.figures import new_figure

    chain, springs = models.elastic_chain(20, stiff=10.0), stiff_springs()
    problems = {"FPU": (springs.system, springs.q0, springs.v0), "full matrices": dense_oscillator()}
    if not quick:
        problems["elastic chain"] = (chain.system, chain.q0, chain.v0)
    figure, checks, h = new_figure(8.0, 4.2), [], 0.1
    axes = figure.subplots()
    for k, (label, (system, q0, v0)) in enumerate(problems.items()):
        run = simulate(system, q0, v0, method=IMEX(), dt=h, t_end=100 * h)
        plan = run.method.plan  # pyright: ignore[reportAttributeAccessIssue]
        newton = simulate(system, q0, v0, method=IMEX(plan=plan, quadratic=False), dt=h, t_end=100 * h)
        verlet = simulate(heavier(system, q0, h), q0, p0=np.asarray(run.p)[0], method=Verlet(), dt=h, t_end=100 * h)
        for name, other, style in (("Verlet with the modified mass", verlet, "-"), ("Newton's method", newton, ":")):
            difference = apart(run, other)
            checks.append(Check(f"{label}: from {name}", difference.max(), (None, 1e-13)))
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
    return Outcome(checks, figure)
