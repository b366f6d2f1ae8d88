"""Draw the figures of the documentation:

python docs/figures.py [first] [work-precision] [stability] [console] [fernandez] [gonzalez] [stern] [tao]

They are committed; run this again when a method changes what they show. `work-precision` takes a minute or two, since
it measures times. `stability` also writes the tables of docs/stability.md; it takes half a minute. The others are the
experiments of the papers; `tao/chain` is one of them. Each is run at full and at reduced size (all of them: about 15
minutes), and its numbers are written to docs/results/, from which docs/generate.py writes the numbers in the
pages. `python docs/figures.py out/results.json` writes the numbers of a run of `geomint reproduce` without drawing.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import geomint as gm
from geomint import papers

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from recording import record, record_all  # noqa: E402

IMAGES = Path(__file__).parent / "images"


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
    left.set(
        xlabel="force evaluations a revolution",
        ylabel=f"error in q after {PERIODS} revolutions",
        title="effort counted",
    )
    right.set(xlabel="seconds (one core, best of three)", title="effort measured")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle("Kepler, e = 0.6")
    figure.savefig(IMAGES / "work-precision.png", dpi=100)


# --- stability --------------------------------------------------------------------------------------------------------
def splitting_half_trace(stages):
    """Half the trace of kicks and drifts on q̈ = −q, as a function of the step."""

    def half_trace(x):
        q, p = np.array([np.ones_like(x), np.zeros_like(x)]), np.array([np.zeros_like(x), np.ones_like(x)])
        for kind, c in stages:
            q, p = (q, p - c * x * q) if kind == "kick" else (q + c * x * p, p)
        return (q[0] + p[1]) / 2

    return half_trace


def respa(inner, h):
    """Half the trace of RESPA: by hand, since kicks by V and W differ."""

    def half_trace(x):
        small, omega = h / inner, x / h
        q, p = np.array([np.ones_like(x), np.zeros_like(x)]), np.array([np.zeros_like(x), np.ones_like(x)])
        p = p - h / 2 * q
        for _ in range(inner):
            q = q + small / 2 * p
            p = p - small * omega**2 * q
            q = q + small / 2 * p
        p = p - h / 2 * q
        return (q[0] + p[1]) / 2

    return half_trace


LOBATTO = {
    2: ("2", lambda x: 1 - x**2 / 2),
    3: ("2√2", lambda x: (1 - 11 * x**2 / 24 + x**4 / 48) / (1 + x**2 / 24)),
    4: ("√(42 − √1044)", None),
}


def along(method):
    """What a method on a manifold is for the motion along a straight one: the splitting it is built on."""
    if isinstance(method, gm.Composition):
        return gm.Composition(along(method.base), method.order, method.scheme)
    if isinstance(method, gm.Boris | gm.MagneticSplitting):  # without a magnetic field
        return gm.Verlet(form="drift")
    return gm.Verlet() if isinstance(method, gm.Shake) else method.base if isinstance(method, gm.Rattle) else method


def theory(method, h=0.1):
    """What is known in theory, and half the trace as a function of hω, or else the limit; (None, None) where there
    is no formula here."""
    method = along(method)
    name = type(method).__name__
    if isinstance(method, gm.methods.KickDrift):
        known = {"Verlet": "2", "SymplecticEuler": "2"}
        return known.get(name, "trace polynomial"), splitting_half_trace(method.stages)
    if name == "Composition" and isinstance(method.base, gm.methods.KickDrift):
        return "trace polynomial", splitting_half_trace(
            [(kind, c * gamma) for gamma in method.coefficients for kind, c in method.base.stages]
        )
    if name == "StiffZhangSkeel":
        # Verlet with the force divided by 1 + βh²ω²
        return "1 − (h² + x²)/(2 + 2βx²)", lambda x: 1 - 0.5 * (h**2 + x**2) / (1 + method.beta * x**2)
    if isinstance(method, gm.methods.Filtered):
        return "2/√(1 − 4β), none from β = ¼ on", lambda x: 1 - 0.5 * x**2 / (1 + method.beta * x**2)
    if name == "IMEX":
        return "1 − (h² + x²)/(2 + x²/2)", lambda x: 1 - 0.5 * (h**2 + x**2) / (1 + x**2 / 4)
    if isinstance(method, gm.Trigonometric):
        filters = gm.methods.FILTERS[method.filter]
        product = lambda x: np.asarray(filters.psi(x**2)) * np.asarray(filters.phi(x**2))
        return "cos x − ½h²ψ(x)φ(x)", lambda x: np.cos(x) - 0.5 * h**2 * product(x)
    if name == "RESPA":
        return "product of 2×2 matrices", respa(method.inner, h)
    if name == "LobattoIIIAB":
        text, function = LOBATTO[method.stages]
        return text, function or float(np.sqrt(42 - np.sqrt(1044)))
    if name == "Variational":
        return ("2", LOBATTO[2][1]) if method.quadrature == "trapezoid" else ("none: a Gauss method", np.inf)
    if isinstance(method, gm.Gauss):
        return "none: A-stable", np.inf
    if name == "SymmetricMultistep":
        return "interval of periodicity", method.periodicity
    return ("2√2", float(np.sqrt(8))) if name == "RungeKutta4" else (None, None)


def windows(half_trace, largest, points=1_000_000):
    """Where |half_trace| > 1, by brute force on a fine grid; the ends by bisection."""
    x = np.linspace(0, largest, points + 1)[1:]
    grows = lambda y: np.abs(half_trace(y)) > 1 + 1e-12
    state = grows(x)
    change = np.flatnonzero(state[1:] != state[:-1])
    low, high, before = x[change], x[change + 1], state[change]
    for _ in range(60):
        middle = (low + high) / 2
        same = grows(middle) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = [0.0] * bool(state[0]) + [float(e) for e in low] + [float(x[-1])] * bool(state[-1])
    return list(zip(ends[::2], ends[1::2], strict=True))


def expected(method, diagram):
    """(text, limit) of theory."""
    text, known = theory(method)
    if callable(known):
        found = windows(known, diagram.frequencies[-1])
        known = found[0][0] if found else np.inf
    return text, known


def stability_tables(diagrams):
    """Two Markdown tables: limits beside theory, and the resonances of the methods with a fast part."""
    from generate import table

    number = lambda x: "?" if x is None else "none" if np.isinf(x) else f"{x:.5f}"
    rows, resonant = [], []
    for method, d in diagrams:
        text, known = expected(method, d)
        gaps = [f"{a:.4f} … {b:.4f}" for a, b in d.resonances]
        gaps = ", ".join(gaps[:3] + ["…"] * (len(gaps) > 3)) or "–"
        again = f"{d.last:.4f}" if np.isfinite(d.last) else "–"
        if d.h is None:
            share = f"{d.limit / method.traits.forces:.3f}" if method.traits.forces and np.isfinite(d.limit) else "–"
            rows.append(
                (
                    f"`{method.name}`",
                    number(d.limit),
                    number(known),
                    text or "–",
                    share,
                    gaps if d.resonances else "–",
                    again if d.resonances else "–",
                )
            )
        else:
            resonant.append((f"`{method.name}`", number(d.limit), number(known), text or "–", gaps, again))
    limits = ("method", "stable up to hω", "theory", "which is", "hω a force", "unstable windows", "unstable from")
    windows = ("method", "stable up to hω", "theory", "half the trace", "resonances", "unstable from")
    return table(limits, rows), table(windows, resonant)


def stability_figure(diagrams, fast):
    """Stable stretches as bars; growth over hω of the methods with a fast part."""
    figure = Figure(figsize=(13, 12), layout="constrained")
    left, right = figure.add_gridspec(1, 2, width_ratios=(1.25, 1))
    axes, wide = figure.add_subplot(left), 8.2
    for row, (_, d) in enumerate(diagrams):
        edges = [0.0, *(e for pair in d.unstable for e in pair)]
        stretches = [
            (a, min(b, wide)) for a, b in zip(edges[::2], [*edges[1::2], d.frequencies[-1]], strict=False) if a < wide
        ]
        for k, (a, b) in enumerate(stretches):
            axes.barh(row, b - a, left=a, height=0.68, color="C0" if k == 0 else "#a9cbe3")
        if np.isinf(d.limit):
            axes.text(wide - 0.1, row, "every hω →", ha="right", va="center", color="white", fontsize=7)
        else:
            inside = d.limit > 0.5
            axes.text(
                d.limit - 0.05 if inside else d.limit + 0.08,
                row,
                f"{d.limit:.3f}",
                ha="right" if inside else "left",
                va="center",
                color="white" if inside else "black",
                fontsize=7,
            )
    axes.set(xlim=(0, wide), ylim=(len(diagrams) - 0.4, -0.6), xlabel="hω")
    axes.set_title("stable from 0 on (dark), stable again (light)", fontsize=10, pad=14)
    axes.set_yticks(range(len(diagrams)), [short(m) for m, _ in diagrams], fontsize=7.5)
    axes.axvline(2, color="0.3", lw=0.7, ls=":")
    axes.axvline(np.pi, color="C3", lw=0.7, ls=":")
    axes.text(2, -0.6, "2", fontsize=8, ha="center", va="bottom", color="0.3")
    axes.text(np.pi, -0.6, "π", fontsize=8, ha="center", va="bottom", color="C3")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    strips = right.subgridspec(len(fast), 1, hspace=0.12).subplots(sharex=True)
    for strip, (method, d) in zip(strips, fast, strict=True):
        for a, b in d.unstable:
            strip.axvspan(a / np.pi, b / np.pi, color="C3", alpha=0.22, lw=0)
        strip.plot(d.frequencies / np.pi, np.minimum(d.growth, 3), color="C0", lw=1.2)
        top = max((d._worst(*window) - 1 for window in d.resonances), default=0.0) or 0.01
        strip.set(xlim=(0, d.frequencies[-1] / np.pi), ylim=(1 - 0.15 * top, 1 + 1.9 * top))
        strip.set_title(short(method), loc="left", fontsize=8, y=0.68, x=0.008, pad=0)
        strip.set_yticks(
            [1, 1 + top] if d.resonances else [1], ["1", f"{1 + top:.3f}"] if d.resonances else ["1"], fontsize=7
        )
        strip.grid(axis="x", alpha=0.3)
        if not d.unstable:
            strip.text(0.992, 0.68, "no resonance", transform=strip.transAxes, ha="right", fontsize=8, color="0.4")
    strips[0].text(
        0.5,
        1.1,
        f"growth a step at h = {fast[0][1].h:g} (shaded: unstable)",
        transform=strips[0].transAxes,
        ha="center",
        fontsize=10,
    )
    strips[-1].set_xticks(range(5), ["0", "π", "2π", "3π", "4π"])
    strips[-1].set_xlabel("hω of the fast part")
    return figure


def short(method):
    """A name that fits beside a bar."""
    if isinstance(method, gm.Composition) and isinstance(method.base, gm.Rattle):
        return f"Composition({short(method.base)}, order={method.order}, '{method.scheme}')"
    if isinstance(method, gm.Rattle):
        return f"Rattle({'' if method.base == gm.Verlet() else short(method.base)})"
    name = (
        method.name.replace("base=Verlet(form='drift'), ", "")
        .replace("scheme=", "")
        .replace("stages=", "")
        .replace("quadrature=", "")
        .replace("filter=", "")
    )
    named = {
        "Splitting()": "Splitting('two-stage')",
        "Gauss()": "Gauss(2)",
        "LobattoIIIAB()": "LobattoIIIAB(3)",
        "SymmetricMultistep()": "SymmetricMultistep(order=8)",
        "Variational()": "Variational('midpoint')",
        "Trigonometric()": "Trigonometric('hairer-lubich')",
    }
    named |= {
        "Composition('yoshida')": "Composition(order=4, 'yoshida')",
        "Composition('suzuki')": "Composition(order=4, 'suzuki')",
    }
    return named.get(name, name)


def stability():
    """The picture and the tables of docs/stability.md."""
    on_groups = lambda m: "lie group" in m.traits.needs
    able = [m for m in gm.methods.all() if not (m.traits.event_driven or m.traits.stochastic or on_groups(m))]
    diagrams = [(m, gm.stability_diagram(m)) for m in able]
    limits, resonances = stability_tables(diagrams)
    page = Path(__file__).parent / "stability.md"
    text = page.read_text()
    for mark, content in (("limits", limits), ("resonances", resonances)):
        begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{content}{end}{rest.partition(end)[2]}"
    page.write_text(text)
    wide = [(m, gm.stability_diagram(m, h=0.5)) for m in able if "fast" in m.traits.needs]
    path = IMAGES / "stability.png"
    stability_figure([pair for pair in diagrams if pair[1].h is None], wide).savefig(path, dpi=100)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


PAPERS = {
    "console": "console-hairer-lubich-2013",
    "fernandez": "fernandez-pendas-2019",
    "gonzalez": "gonzalez-schmidt-ortiz-2010",
    "stern": "stern-grinspun-2009",
    "tao": "tao-owhadi-2015",
}


def experiments(prefix, one=""):
    """The experiments of a paper at both sizes, or one of them. The figure is that of the full size."""
    for experiment in papers.find(f"{PAPERS[prefix]}/{one}" if one else PAPERS[prefix]):
        for quick in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                done, outcome = papers.reproduced(experiment, quick, Path(folder))
            if outcome is None:
                raise SystemExit(f"{experiment.id}: {done.error}")
            record(done.to_dict(), papers.machine())
            for check in done.checks:
                print(f"{'quick' if quick else 'full':6s}{check.claim:85s} {check.measured_text:<12s} {check.outcome}")
        path = IMAGES / f"{prefix}-{experiment.name}.png"
        outcome.figure.savefig(path, dpi=1400 / outcome.figure.get_figwidth())
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    drawn = {"first": first, "work-precision": work_precision, "stability": stability}
    for name in sys.argv[1:] or (*drawn, *PAPERS):
        prefix, _, one = name.partition("/")
        if name.endswith(".json"):
            record_all(name)
        else:
            drawn[name]() if name in drawn else experiments(prefix, one)
