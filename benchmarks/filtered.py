"""The linearly implicit family: cost of the third derivative, cost against length, and time at equal error,
compared with RATTLE."""

from __future__ import annotations

import warnings

import numpy as np

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point

from .timing import best_times, table


def _run(system, model, method, dt, steps, save_every=None):
    return gm.simulate(
        system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, save_every=save_every or steps
    )


def third_derivative() -> None:
    rows = []
    chain, dna = gm.models.chain(1000), gm.models.dna()
    for name, model, system, dt, steps in (
        ("chain of 1000", chain, gm.penalize(chain.system, 20.0), 0.005, 200),
        ("DNA", dna, dna.system, 0.5, 2000),
    ):
        go = lambda method, system=system, model=model, dt=dt, steps=steps: (
            lambda: _run(system, model, method, dt, steps)
        )
        times = best_times({"with": go(gm.ZhangSkeel(0.3)), "without": go(gm.SimplifiedZhangSkeel(0.3))}, rounds=25)
        rows.append(
            (
                name,
                f"{1e6 * times['with'] / steps:.1f} µs/step",
                f"{times['with'] / times['without'] - 1:+.1%}, target ≤ 15 %",
            )
        )
    table("the third-derivative term: ZhangSkeel against SimplifiedZhangSkeel", rows)


def length() -> None:
    rows, before = [], None
    for n, steps in ((10, 4000), (100, 2000), (1000, 300), (10_000, 60)):
        model = gm.models.chain(n)
        system = gm.penalize(model.system, 20.0)
        seconds = (
            best_times({"zs": lambda s=system, m=model, k=steps: _run(s, m, gm.ZhangSkeel(0.4), 0.005, k)}, rounds=5)[
                "zs"
            ]
            / steps
        )
        solver = _run(system, model, gm.ZhangSkeel(0.4), 0.005, 1).solver
        grown = "" if before is None else f"×{seconds / before:.1f}, target < 15"
        rows.append((f"{n} links: {solver}", f"{1e6 * seconds:.1f} µs/step", grown))
        before = seconds
    table("ZhangSkeel on chains", rows)


METHODS = {
    "Rattle, no springs": gm.Rattle(), "Verlet": gm.Verlet(), "ZhangSkeel(.4)": gm.ZhangSkeel(0.4),
    "ZhangSkeel(.25)": gm.ZhangSkeel(0.25), "SimplifiedZhangSkeel(.4)": gm.SimplifiedZhangSkeel(0.4),
    "StiffZhangSkeel(.4)": gm.StiffZhangSkeel(0.4), "PushforwardNewmark(.4)": gm.PushforwardNewmark(0.4),
    "Newmark(.4)": gm.Newmark(0.4), "Composition(ZhangSkeel(.4), 4)": gm.Composition(gm.ZhangSkeel(0.4), 4),
}  # fmt: skip


def _largest_step(system, model, method, t_end, error, target) -> tuple[float, int] | None:
    """The largest step of a geometric ladder at which the error is below the target, and a number of steps that it
    survives and that is so large that starting up does not count."""
    for n in (4, 6, 8, 11, *np.geomspace(16, 20_000, 22).astype(int)):
        dt = t_end / (8 * int(n))
        steps = max(3000, round(t_end / dt))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = gm.simulate(system, model.q0, model.v0, method=method, dt=dt, t_end=t_end, save_every=int(n))
                if error(run) < target:
                    _run(system, model, method, dt, steps)
                    return dt, steps
        except gm.RunStopped:
            continue
    return None


def _seen(run) -> np.ndarray:
    """Where the motion is read: at the filtered positions of the methods that have them."""
    return np.asarray(run.columns.get("q_filtered", run.q))


def equal_error() -> None:
    looks = lambda t_end: t_end * np.arange(1, 9) / 8
    pendulum, chain, dna = gm.models.double_pendulum(), gm.models.chain(10), gm.models.dna()
    problems = []
    for name, model, target in (("double pendulum, ω = 20", pendulum, 0.03), ("chain of 10, ω = 20", chain, 0.02)):
        exact = measure.independent_reference(model.system, Point(model.q0, 0 * model.q0), looks(10.0)).q
        error = lambda run, exact=exact: np.max(np.abs(_seen(run)[1:] - exact))
        problems.append((name, model, gm.penalize(model.system, 20.0), 10.0, error, target))
    fine = _run(dna.system, dna, gm.Composition(gm.Verlet(), order=6), 0.05, 800, 100).q
    problems.append(
        (
            "DNA, mean angle",
            dna,
            dna.system,
            40.0,
            lambda run: np.max(np.abs(_seen(run).mean(axis=1) - fine.mean(axis=1))),
            1e-3,
        )
    )
    for name, model, sprung, t_end, error, target in problems:
        rows = []
        for label, method in METHODS.items():
            system = model.system if method.traits.constrained else sprung
            if ("fast" in method.traits.needs and system.fast is None) or (
                method.traits.constrained and system.constraint is None
            ):
                continue
            found = _largest_step(system, model, method, t_end, error, target)
            if found is None:
                rows.append((label, "not reached", ""))
                continue
            dt, steps = found
            seconds = best_times(
                {"go": lambda m=method, h=dt, k=steps, s=system, o=model: _run(s, o, m, h, k)}, rounds=9
            )["go"]
            rows.append((label, f"{1e6 * seconds / (steps * dt):.1f} µs", f"a unit of time, dt = {dt:.3g}"))
        table(f"time at equal error: {name}, error < {target:g}", rows)


def main() -> None:
    third_derivative()
    length()
    equal_error()
