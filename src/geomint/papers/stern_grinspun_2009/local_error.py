"""The errors of IMEX in one step and over a fixed time, against a converged reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.integrate

from ... import models
from ...methods import IMEX, Composition, Verlet
from ...models import Model
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import PAPER, chain_motion, stiff_springs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 8  # steps of the reference in a step of IMEX


class Errors(NamedTuple):
    """For each step: of q and p after one step, of the discrete Lagrangian, and of q and p at a fixed time."""

    local: np.ndarray
    action: np.ndarray
    reached: np.ndarray


def apart(run: Trajectory, exact: Trajectory, sizes: dict[str, float]) -> float:
    """The largest difference of q and of p at the end, relative to these sizes."""
    ends = {x: np.asarray(getattr(run, x))[-1] - np.asarray(getattr(exact, x))[-1] for x in sizes}
    return max(float(np.abs(ends[x]).max() / size) for x, size in sizes.items())


def errors(model: Model, steps: np.ndarray, t_end: float) -> Errors:
    """Of IMEX on the model. The reference is a composition of order 8 with eight steps for one of IMEX."""
    reference, mech = Composition(Verlet(), order=8), derive(model.system, model.q0.shape)
    start, found = (model.system, model.q0, model.v0), []
    weights = scipy.integrate.newton_cotes(NODES, 1)[0] / NODES
    for h in map(float, steps):
        one = simulate(*start, method=IMEX(), dt=h, t_end=h)
        fine = simulate(*start, method=reference, dt=h / NODES, t_end=h)
        moving, at = np.asarray(fine.p), np.asarray(fine.q)  # unit masses
        whole = lambda x: float(mech.potential(x))
        fast = lambda x: float(mech.fast_potential(x))
        exact = h * weights @ [0.5 * np.sum(p**2) - whole(q) for q, p in zip(at, moving, strict=True)]
        a, b = at[0], at[-1]
        slow = 0.5 * (whole(a) - fast(a) + whole(b) - fast(b))
        discrete = 0.5 * np.sum((b - a) ** 2) / h - h * (slow + fast(0.5 * (a + b)))
        end = simulate(*start, method=IMEX(), dt=h, t_end=t_end)
        close = simulate(*start, method=reference, dt=h, t_end=t_end)
        sizes = {"q": float(np.abs(close.q).max()), "p": float(np.abs(close.p).max())}
        found.append((apart(one, fine, sizes), abs(discrete - exact), apart(end, close, sizes)))
    return Errors(*np.array(found).T)


def order(x: np.ndarray) -> float:
    """From the last two steps, which differ by a factor of 2."""
    return float(np.log2(x[-2] / x[-1]))


@experiment(
    PAPER,
    "local-error",
    "One step of IMEX has an error of O(h³), and so has its discrete Lagrangian; over a fixed time O(h²)",
    "Review: the Discrete Lagrangian and Action Sum",
)
def local_error(quick: bool) -> Outcome:
    """L_h(q_n, q_{n+1}) approximates the action ∫L dt over a step. Trapezoidal and midpoint rule have an error of
    O(h³), and the error of a step of a variational method is of the order of that of L_h. Measured where hω is small,
    for a quadratic W (the Fermi–Pasta–Ulam chain) and for one that is not (the stiff double pendulum)."""
    steps = np.array([0.002, 0.001, 0.0005]) if quick else 0.004 * 0.5 ** np.arange(5)
    problems = {"FPU": stiff_springs()} | ({} if quick else {"stiff double pendulum": models.stiff_double_pendulum()})
    found = {label: errors(model, steps, 0.4) for label, model in problems.items()}
    checks = []
    said: dict[str, Any] = {"paper": "L_h ≈ ∫L dt", "where": "Review: the Discrete Lagrangian and Action Sum"}
    ours: dict[str, Any] = {"verdict": "information", "note": "The slides do not state the order."}
    last = f"h = {steps[-2]:g} to {steps[-1]:g}"
    for label, x in found.items():
        checks += [
            Check(f"{label}: order of L_h − ∫L dt over a step, {last}", order(x.action), (2.85, 3.15), **said),
            Check(f"{label}: order of the error of q and p after one step, {last}", order(x.local), (2.9, 3.1), **ours),
            Check(f"{label}: order of the error of q and p at t = 0.4, {last}", order(x.reached), (1.9, 2.1), **ours),
        ]
    return Outcome(
        checks,
        draw_errors(steps, found),
        motion=chain_motion(IMEX(), 0.002, 2.0),
        parameters={"ω": 50.0, "steps": tuple(float(h) for h in steps), "steps of the reference in one": NODES},
        left_out=("a fast part that is not quadratic", "five steps instead of three"),
    )


def draw_errors(steps: np.ndarray, found: dict[str, Errors]) -> Figure:
    """All errors against the step."""
    from ...plots.figures import new_figure

    figure = new_figure(7.5, 4.8)
    axes = figure.subplots()
    for label, marker in zip(found, ("o", "s"), strict=False):
        for name, values, slope, color in (
            ("q and p after one step", found[label].local, 3, "C0"),
            ("L_h over a step", found[label].action, 3, "C2"),
            ("q and p at t = 0.4", found[label].reached, 2, "C3"),
        ):
            axes.loglog(steps, values, marker, ms=6, mfc="none", color=color, label=f"{label}: {name}")
            axes.loglog(steps, values[-1] * (steps / steps[-1]) ** slope, "--", lw=0.8, color=color)
    axes.set(xlabel="step h", ylabel="error", title="Errors of IMEX, ω = 50 (dashed: slopes 3, 3 and 2)")
    axes.set_xticks(steps, [f"{h:g}" for h in steps])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure
