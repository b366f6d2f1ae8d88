"""Example 1: the triple pendulum with method (A), which keeps the energy, and with method (B), which violates (13)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...errors import RunStopped
from ...manifold.projection import project
from ...methods import SymmetricMultistep
from ...models import Model
from ...run import Trajectory, ensemble
from ..base import Outcome, experiment
from ..checks import Check
from .runs import PAPER, A, B, largest, motion, moved

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Exploding:
    """Method (B) from eight starts that differ in the last digits, until each run stops. Rounding errors grow here,
    so that the step at which a run stops and the |ΔE| that it reaches are random: medians and shares over the
    starts are checked. `error` is |ΔE| after each step from the model's own start."""

    def __init__(self, model: Model, dt: float):
        self.dt = dt
        digits = 1e-12 * np.random.default_rng(1).normal(size=(7, *model.q0.shape))
        runs = [self._until_stopped(model, dt, x) for x in (0 * model.q0, *digits)]
        self.error, self.errors = runs[0][0], [error for error, _ in runs]
        self.stopped = float(np.median([step for _, step in runs]))
        self.spread = float(np.std([step for _, step in runs]))
        self.largest = np.array([error.max() for error in self.errors])
        self.growth = float(np.median([growth(error) for error in self.errors]))

    @staticmethod
    def _until_stopped(model: Model, dt: float, digits: np.ndarray) -> tuple[np.ndarray, float]:
        q, v = project(model.system, model.q0 + digits, model.v0)
        try:
            run, step = (
                moved(dataclasses.replace(model, q0=q, v0=v), SymmetricMultistep(a=B, unsafe=True), dt, 300 * dt),
                np.nan,
            )
        except RunStopped as stop:
            run, step = stop.run, float(stop.step or np.nan)
        return np.abs(run.energy_error), step


def growth(error: np.ndarray) -> float:
    """The factor by which |ΔE|/n grows in a step, while |ΔE| is above round-off and not yet large. ΔE is speed
    times error of the momentum, and the pendulum starts from rest: division by the step number n removes the growth
    of its speed."""
    n = np.arange(len(error))
    used = (error > 1e-11) & (error < 1e-2) & (n > 20)
    return float(np.exp(np.polyfit(n[used], np.log(error[used] / n[used]), 1)[0])) if used.sum() > 2 else np.nan


@experiment(
    PAPER,
    "triple-pendulum",
    "Triple pendulum: (A) keeps the energy to h⁶; (B), which violates (13), explodes",
    "Fig. 2",
)
def triple_pendulum(quick: bool) -> Outcome:
    """Chaotic motion from rest. The multipliers of (B) grow from round-off by a factor of 1.3146 in each step:
    after ln(1e16)/ln(1.3146), about 130 steps of any length, the constraint can't be solved any more. |ΔE| is then
    between .03 and 1e4, depending on the last digits of the start."""
    model, method = models.triple_pendulum(), SymmetricMultistep(a=A)
    good = {dt: moved(model, method, dt, 30.0) for dt in (0.01, 0.005)}
    steps = (0.01, 0.005) if quick else (0.01, 0.005, 0.0025)
    bad = [Exploding(model, dt) for dt in steps]
    checks = [*energy_checks(good), *explosion_checks(good[0.01], bad)]
    if not quick:
        checks += long_time_checks(model)
    return Outcome(
        checks,
        draw_triple_pendulum(good, bad),
        motion=motion(model, method, 0.01, 30.0),
        parameters={"a of (A)": A, "a of (B)": B, "steps of (B)": steps, "starts of (B)": 8, "shift of starts": 1e-12},
        left_out=("(A) on [0, 200,000] from 16 starts", "(B) at h = 0.0025"),
    )


def energy_checks(good: dict[float, Trajectory]) -> list[Check]:
    """The energy of method (A), at the step of Fig. 2 and at half of it."""
    errors = {dt: largest(run.energy_error) for dt, run in good.items()}
    third = np.array_split(np.abs(good[0.01].energy_error), 3)
    growing = third[2].max() / max(x.max() for x in third[:2])
    residual = max(largest(run.constraint_residual) for run in good.values())
    bounded: dict[str, Any] = {"paper": "bounded", "where": "Fig. 2"}
    steady: dict[str, Any] = {"paper": "no drift", "where": "Fig. 2"}
    of_h6 = "example 1: an error of size O(h⁶)"
    read = "The scale of Fig. 2 is not in our copy of the paper; the number is ours."
    return [
        Check("(A), h = 0.01: largest |ΔE|, t ≤ 30", errors[0.01], (2.3e-9, 2.8e-9), **bounded, note=read),
        Check("(A), h = 0.01: largest |ΔE|, t > 20 over t < 20", growing, (0.05, 1.0), **steady),
        Check("(A), h = 0.005: largest |ΔE|, t ≤ 30", errors[0.005], (3.4e-11, 4.2e-11), verdict="information"),
        Check(
            "(A): ratio of the largest |ΔE| at h = 0.01 and at 0.005",
            errors[0.01] / errors[0.005],
            (60.0, 76.0),
            paper=64,
            where=of_h6,
        ),
        Check("(A): largest |g|", residual, (None, 5e-15), paper="g(q) = 0", where="(10)"),
    ]


def explosion_checks(good: Trajectory, bad: list[Exploding]) -> list[Check]:
    """What happens to method (B), as medians and shares over the starts."""
    where = "example 1"
    explodes: dict[str, Any] = {"paper": "the error explodes", "where": where, "rtol": None}
    checks = [
        Check(
            f"(B), h = {x.dt:g}: the run stops at step, median of 8 starts", x.stopped, (120, 140),
            paper=130, where=where, spread=x.spread, rtol=None, note="It stops where the constraint can't be solved.",
        )
        for x in bad
    ]  # fmt: skip
    cause: dict[str, Any] = {
        "paper": "by the zero of σ of modulus larger than 1, which is 1.3146",
        "where": where,
        "rtol": None,
    }
    checks += [
        Check(f"(B), h = {x.dt:g}: growth of |ΔE|/n a step, median", x.growth, (1.295, 1.34), **cause) for x in bad
    ]
    ends = np.concatenate([x.largest for x in bad])
    early = largest(good.energy_error[: len(bad[0].error)])
    by_rounding = "How large |ΔE| is when the run stops depends on the rounding of the start."
    share, least, ratio = float(np.mean(ends > 1)), ends.min(), bad[0].error.max() / early
    ours: dict[str, Any] = {"verdict": "information", "note": by_rounding, "rtol": None}
    chaotic: dict[str, Any] = explodes | {"verdict": "chaotic", "note": by_rounding}
    return [
        *checks,
        Check("(B): share of the starts with |ΔE| > 1 before the run stops", share, (0.1, 0.95), **chaotic),
        Check("(B): smallest of the largest |ΔE| of the starts", least, (1e-3, 1.0), **chaotic),
        Check("(B), h = 0.01: largest |ΔE| over that of (A) in the same steps", ratio, (1e8, None), **explodes),
        Check("(B): largest |ΔE| of a start before its run stops", ends.max(), **ours),
    ]


def long_time_errors(model: Model, t_end: float, members: int = 16, together: int = 4) -> np.ndarray:
    """The largest |ΔE| of (A) at h = .01 until `t_end`, sampled every half unit of time, from the model's start and
    from starts shifted by 1e-13 at random. The motion is chaotic: a single run shows one of several outcomes."""
    shifts = 1e-13 * np.random.default_rng(2).normal(size=(members, *model.q0.shape))
    starts = [project(model.system, model.q0 + (k > 0) * shift, model.v0) for k, shift in enumerate(shifts)]
    found = []
    for k in range(0, members, together):  # a few at a time, to bound the memory
        q, v = (np.stack(x) for x in zip(*starts[k : k + together], strict=True))
        run = ensemble(model.system, q, v, method=SymmetricMultistep(a=A), dt=0.01, t_end=t_end, save_every=50)
        found += list(np.max(np.abs(run.energy_error), axis=1))
    return np.array(found)


def long_time_checks(model: Model) -> list[Check]:
    """The paper reports no drift for t ≤ 200,000. Most starts leave the regular part of phase space before that,
    some do not."""
    errors = long_time_errors(model, 200_000.0)
    wild = errors > 1e-5
    name = "(A), h = 0.01, t ≤ 200,000, 16 starts shifted by 1e-13:"
    where: dict[str, Any] = {"where": "example 1: verified numerically on [0, 200 000]", "rtol": None}
    chaotic: dict[str, Any] = where | {"verdict": "chaotic", "paper": "as small as in Fig. 2"}
    low = errors[wild].min() if wild.any() else np.nan
    return [
        Check(
            f"{name} starts with |ΔE| > 1e-5", wild.sum(), (7, 16), paper="no drift in one run", verdict="chaotic",
            note="the paper's own start is among those that stay below 1e-5; most starts shifted by 1e-13 leave the "
            "regular part of phase space",
            **where,
        ),
        Check(f"{name} smallest of their largest |ΔE|", low, (2e-4, 5e-3), **chaotic),
        Check(f"{name} largest |ΔE|", errors.max(), (1e-3, 1e-2), **chaotic),
        Check(
            f"{name} smallest |ΔE| of a start", errors.min(), (5e-9, 4e-3), **chaotic,
            note="2.6e-8 where a start stays in the regular part.",
        ),
    ]  # fmt: skip


def draw_triple_pendulum(good: dict[float, Trajectory], bad: list[Exploding]) -> Figure:
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    for (dt, run), factor, color in zip(good.items(), (1, 64), ("C0", "C1"), strict=True):
        left.plot(
            run.t,
            1e9 * factor * run.energy_error,
            lw=0.9,
            color=color,
            label=f"h = {dt:g}" + f", {factor} times" * (factor > 1),
        )
    left.set(
        xlim=(0, 30), xlabel="time", ylabel="H − H(0), in units of 1e-9", title="Fig. 2: method (A), a = (−0.7, 0.4)"
    )
    left.legend(frameon=False, fontsize=9)
    for k, x in enumerate(bad):
        n = np.arange(len(x.error))
        for other in x.errors[1:]:
            right.semilogy(
                np.arange(1, len(other)), np.maximum(other[1:], 1e-17), lw=0.5, alpha=0.35, color=f"C{k + 2}"
            )
        right.semilogy(
            n[1:],
            np.maximum(x.error[1:], 1e-17),
            lw=1,
            color=f"C{k + 2}",
            label=f"(B), h = {x.dt:g}: stops at step {len(x.error) - 1}",
        )
    steps = np.arange(20, 136)
    right.semilogy(steps, 1e-16 * 1.3146 ** (steps - 10.0), color="0.4", lw=1, ls="--", label="1.3146ⁿ")
    first = np.abs(good[0.01].energy_error[:161])
    right.semilogy(np.arange(1, 161), np.maximum(first[1:], 1e-17), color="C0", lw=1, label="(A), h = 0.01")
    right.set(
        xlim=(0, 160),
        ylim=(1e-17, 1e5),
        xlabel="step",
        ylabel="|H − H(0)|",
        title="Method (B), a = (−0.1, 0.4), 8 starts each",
    )
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3, frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.suptitle("Triple pendulum from 30°, 45°, 90° at rest", fontsize=11)
    return figure
