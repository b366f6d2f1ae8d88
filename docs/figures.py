"""Draws the figures of the documentation: python docs/figures.py [first] [work-precision] [console] [fernandez] [tao].

They are committed; run this again when a method changes what they show. The second one takes a minute or two, since it
measures times; so do the others, the experiments of the papers, since they compile much. `tao/chain` draws one of them.
"""

import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import geomint as gm

IMAGES = Path(__file__).parent / "images"
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def first():
    """The Kepler part of the demo, for the front page."""
    import demo

    figure = Figure(figsize=(11, 3.5), layout="constrained")
    demo.draw_kepler(figure, demo.kepler_runs())
    figure.savefig(IMAGES / "first.png", dpi=100)


COMPARED = (
    ("Verlet", gm.Verlet(), "C0", "o-"),
    ("Splitting(two-stage)", gm.Splitting("two-stage"), "C1", "s-"),
    ("Splitting(two-stage-minimum-error)", gm.Splitting("two-stage-minimum-error"), "C1", "s--"),
    ("Composition, order 4 (Suzuki)", gm.Composition(gm.Verlet(), order=4), "C2", "^-"),
    ("Splitting(blanes-moan-nystrom), order 4", gm.Splitting("blanes-moan-nystrom"), "C2", "^--"),
    ("Composition, order 6 (Kahan–Li)", gm.Composition(gm.Verlet(), order=6), "C4", "v-"),
    ("Composition, order 8 (Kahan–Li)", gm.Composition(gm.Verlet(), order=8), "C3", "D-"),
    ("Gauss(2), order 4", gm.Gauss(2), "0.45", "x-"),
    ("Gauss(4), order 8", gm.Gauss(4), "0.0", "x--"),
    ("Runge–Kutta 4", gm.RungeKutta4(), "C5", "P:"),
)
PERIODS = 100


def measured(method, steps_a_period):
    """(distance from the start after whole periods, where the exact planet is back; best time of three; forces)."""
    model = gm.models.kepler(eccentricity=0.6)
    steps = PERIODS * steps_a_period
    dt = 2 * np.pi / steps_a_period
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run = gm.simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, save_every=steps)
        times.append(time.perf_counter() - began)
    error = np.linalg.norm(run.q[-1] - model.q0)
    return error, min(times), method.traits.forces and method.traits.forces * steps


def work_precision():
    """Error against effort: counted in force evaluations, and as measured time."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for label, method, color, style in COMPARED:
        stages = method.traits.forces or 8 * method.stages
        measured(method, 16)  # compiles
        steps = [n for n in np.unique(np.geomspace(100, 51_200, 19) / stages).astype(int) if n >= 16]
        points = [measured(method, int(n)) for n in steps]
        # From the last step that is too long to show anything down to where rounding takes over.
        coarse = max((i for i, p in enumerate(points) if not p[0] < 0.3), default=-1)
        points = [p for p in points[coarse + 1 :] if p[0] > 1e-9]
        for error, seconds, forces in points:
            print(f"{label:42s} error {error:.1e}  time {seconds:.4f} s  forces {forces}")
        errors, seconds, forces = zip(*points, strict=True)
        if forces[0]:
            left.loglog(np.array(forces) / PERIODS, errors, style, color=color, ms=4, lw=1.2, label=label)
        right.loglog(seconds, errors, style, color=color, ms=4, lw=1.2, label=label)
    left.set(xlabel="force evaluations a revolution", ylabel=f"error in q after {PERIODS} revolutions", title="effort counted")
    right.set(xlabel="seconds (one core, best of three)", title="effort measured")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle("Kepler, e = 0.6")
    figure.savefig(IMAGES / "work-precision.png", dpi=100)


PAPERS = {"console": "console-hairer-lubich-2013", "fernandez": "fernandez-pendas-2019", "tao": "tao-owhadi-2015"}


def experiments(prefix, one=""):
    """The experiments of a paper at full size, or one of them."""
    from geomint import papers

    for experiment in papers.find(f"{PAPERS[prefix]}/{one}" if one else PAPERS[prefix]):
        outcome = experiment()
        for check in outcome.checks:
            print(f"{check.name:85s} {check.measured:<12.6g} {'ok' if check.ok else 'OUT OF RANGE'}")
        path = IMAGES / f"{prefix}-{experiment.name}.png"
        outcome.figure.savefig(path, dpi=1400 / outcome.figure.get_figwidth())
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    drawn = {"first": first, "work-precision": work_precision}
    for name in sys.argv[1:] or (*drawn, *PAPERS):
        prefix, _, one = name.partition("/")
        drawn[name]() if name in drawn else experiments(prefix, one)
