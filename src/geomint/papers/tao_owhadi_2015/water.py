"""Clusters of TIP3P water at constant temperature (section 4.3): distances of oxygens (Figs. 4 and 7).

The paper does not state its units. With electronvolts, ångströms and atomic mass units h = .05 is .51 fs and β = 50 is
232 K, at which the cluster equilibrates; with kcal/mol β = 50 would be 10 K. The paper's SHAKE is RATTLE here, whose
positions are the same, and its molecules are rigid; those of stiff Z&Ss, which filters the springs alone, are held by
springs of ω = 20. Observables of the latter are read at q = x + c a(x).
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis.averages import average
from ...methods import GeometricLangevin, Method, Rattle, StiffZhangSkeel, protocols
from ...models import Model
from ...models.water_kinds import KINDS
from ...numerics.compilation import jit
from ...run import Trajectory, simulate
from ...run.inputs import initial_state
from ...system.lagrangian import derive
from ...system.units import EV, KCAL
from ...view import Scene
from ...view.of_run import scene_of
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, PAPER, positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

H, OMEGA, FRICTION, KT = 0.05, 20.0, 0.01, 1 / 50
PARAMETERS = {"h": H, "ω": OMEGA, "β of the filter": BETA, "γ": FRICTION, "β": 1 / KT, "units": "eV, Å, amu"}
STEPS = 500  # in a measurement of time
EVERY, RELAXATION = 20, 300.0  # steps between two saves; time that the thermostat takes to equilibrate, 3/γ
LOST = 6.0  # ångströms to the nearest neighbour, beyond which a molecule has left the cluster
EDGES = np.append(np.arange(2.2, 8.01, 0.2), np.inf)  # ångströms


@functools.cache
def cluster(n: int, rigid: bool, omega: float = OMEGA) -> Model:
    return models.water(n, rigid=rigid, omega=omega, temperature=EV.temperature(KT))


BASES: dict[str, tuple[bool, Method]] = {"RATTLE": (True, Rattle()), "stiff Z&Ss": (False, StiffZhangSkeel(beta=BETA))}


# --- constant temperature ---------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Sample:
    """Saved points of runs with a thermostat, each without its beginning."""

    # Of the distances between oxygens, as shares; distances beyond the last edge in the last bin. A cluster in free
    # space evaporates in the end: saved points at which a molecule has left it do not count.
    histogram: np.ndarray
    left: float  # the share of these saved points
    kinetic: Any  # temperature over that of the thermostat, by ½kT for each degree of freedom
    configurational: float  # the same by the forces on molecules
    seconds: float  # of the fastest run, which compiles nothing where there is more than one


def sample(n: int, label: str, t_end: float, seeds: int, begin: float) -> Sample:
    """The base with the geometric Langevin algorithm, half a random kick before and after each step."""
    rigid, base = BASES[label]
    model = cluster(n, rigid)
    method = GeometricLangevin(base, friction=FRICTION, temperature=KT, ordering="OBABO")
    degrees = 6 * n if rigid else 9 * n
    counts, kinetic, force, curvature, seconds, left = np.zeros(len(EDGES) - 1), [], 0.0, 0.0, np.inf, []
    for seed in range(seeds):
        began = time.perf_counter()
        run = simulate(model, method=method, dt=H, t_end=t_end, save_every=EVERY, seed=seed)
        seconds = min(seconds, time.perf_counter() - began)
        first = round(begin / H / EVERY)
        kinetic.append(2 * np.asarray(run.kinetic)[first:] / (degrees * KT))
        for q in np.array_split(positions(run)[first:], -(-len(run) // 500)):
            more = _statistics(cluster(n, True).system, jnp.asarray(q))
            apart, loosest, pushed, bent = (np.asarray(x) for x in more)
            counts += np.histogram(apart[loosest < LOST], EDGES)[0]
            left.append(loosest >= LOST)
            force, curvature = force + pushed.sum(), curvature + bent.sum()
    shares, gone = counts / counts.sum(), float(np.concatenate(left).mean())
    return Sample(shares, gone, average(np.stack(kinetic)), force / curvature / KT, seconds)


@jit
def _statistics(system: Any, q: Any) -> tuple[Any, Any, Any, Any]:
    """Of each saved point: the distances between oxygens; the largest distance to a nearest neighbour; Σ|F|² of the
    forces on molecules; and the sum of the second derivatives of U by the positions of molecules, to which Coulomb's
    energy, being harmonic, contributes nothing. The mean of the third is kT times that of the fourth, for rigid
    molecules as for stiff ones."""
    n = q.shape[1]
    i, j = np.triu_indices(n, 1)
    mech = derive(system, q.shape[1:])
    kind, energy = KINDS["tip3p"], KCAL.convert(1.0, "energy", to=EV)

    def of(x: Any) -> tuple[Any, Any, Any, Any]:
        square = jnp.sum((x[i, 0] - x[j, 0]) ** 2, axis=-1)
        bent = energy * (132 * kind.repulsion / square**7 - 30 * kind.attraction / square**4)
        apart = jnp.sqrt(square)
        table = jnp.full((n, n), jnp.inf).at[i, j].set(apart).at[j, i].set(apart)
        loosest = jnp.max(jnp.min(table, axis=1))
        return apart, loosest, jnp.sum(jnp.sum(mech.force(x), axis=1) ** 2), 2 * jnp.sum(bent)

    return jax.vmap(of)(q)


def total_variation(one: Sample, other: Sample) -> float:
    return 0.5 * float(np.sum(np.abs(one.histogram - other.histogram)))


def most_frequent(found: Sample) -> float:
    """The middle of the bin of the first peak."""
    first = int(np.argmax(found.histogram[:8]))
    return float(EDGES[first : first + 2].mean())


def temperature_checks(samples: dict[str, Sample], share: float) -> list[Check]:
    """Both temperatures are that of the thermostat, up to `share`."""

    def within(claim: str, measured: float, **more: Any) -> Check:
        about: dict[str, Any] = {"verdict": "information", "rtol": None} | more
        return Check(claim, measured, (1 - share, 1 + share), **about)

    return [
        row
        for label, found in samples.items()
        for row in (
            within(
                f"{label}: kinetic temperature over that of the thermostat",
                found.kinetic.mean,
                spread=found.kinetic.error,
            ),
            within(
                f"{label}: configurational temperature over that of the thermostat",
                found.configurational,
                note="Σ|F|² over Σ∇²U for whole molecules",
            ),
        )
    ]


def peak_checks(samples: dict[str, Sample]) -> list[Check]:
    claim, note = "most frequent distance of neighbours (Å)", "the middle of a bin of 0.2 Å"
    about: dict[str, Any] = {"verdict": "information", "note": note, "rtol": None}
    return [Check(f"{label}: {claim}", most_frequent(x), (2.6, 2.8), **about) for label, x in samples.items()]


def unit_checks() -> list[Check]:
    """What the paper's numbers are in the two systems of units that chemists use with ångströms."""
    rows = []
    for units, temperature, step in ((EV, 232.1, 0.509), (KCAL, 10.06, 2.444)):
        name = f"{units.name}, Å, amu"
        about: dict[str, Any] = {"verdict": "information", "note": "the cluster would stay in its first minimum"}
        if units is EV:
            about["note"] = "units are not stated; in these the cluster has the distances of a liquid"
        rows += [
            Check.near(f"{name}: temperature of β = 50 (K)", units.temperature(KT), temperature, 1e-3, **about),
            Check.near(f"{name}: h = 0.05 (fs)", 1e15 * H * units.time, step, 1e-3, **about),
        ]
    return rows


TIMES = "the paper's ratio is of Matlab with fsolve; here rigid triangles are solved in closed form"


def time_check(samples: dict[str, Sample], n: str, paper: float, span: tuple[float, float]) -> Check:
    rigid, stiff = samples.values()
    return Check(
        f"running time, RATTLE over stiff Z&Ss, {n} molecules",
        rigid.seconds / stiff.seconds,
        span,
        paper=paper,
        where="section 4.3",
        verdict="information",
        note=TIMES,
        rtol=None,
    )


def motion(n: int, t_end: float, every: int) -> Scene:
    """Rigid molecules with the thermostat."""
    method = GeometricLangevin(Rattle(), friction=FRICTION, temperature=KT, ordering="OBABO")
    run = simulate(cluster(n, True), method=method, dt=H, t_end=t_end, save_every=every)
    return picture(run, f"{n} water molecules at 232 K", "RATTLE with the geometric Langevin algorithm, h = 0.05")


def picture(run: Trajectory, title: str, subtitle: str) -> Scene:
    """The molecules of a run, whether rigid or held by springs."""
    bonds = [(3 * k, 3 * k + i) for k in range(run.q.shape[1]) for i in (1, 2)]  # oxygen comes first
    return dataclasses.replace(scene_of(run, bonds=bonds, frames=300), title=title, subtitle=subtitle)


def draw_distances(samples: dict[str, Sample], title: str) -> Figure:
    from ...plots.figures import new_figure

    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    width = np.diff(EDGES[:-1])
    for style, (label, found) in zip(("C0-", "C3--"), samples.items(), strict=True):
        density = found.histogram[:-1] / width
        axes.stairs(density, EDGES[:-1], baseline=None, color=style[:2], ls=style[2:], lw=1.4, label=f"{label} + GLA")
    axes.set(xlabel=EV.axis("distance between oxygens", "length"), ylabel="density (1/Å)", title=title)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    return figure


@experiment(
    PAPER, "water-7", "Seven water molecules at 232 K: distances of oxygens by RATTLE and by stiff Z&Ss", "Fig. 4"
)
def water_7(quick: bool) -> Outcome:
    """h = .05, γ = .01, β = 50, ω = 20. The two distributions agree as far as runs of this length can tell."""
    t_end, seeds = (2300.0, 3) if quick else (5000.0, 8)
    samples = {label: sample(7, label, t_end, seeds, RELAXATION) for label in BASES}
    rigid, stiff = samples.values()
    checks = [
        Check(
            "total variation between the distributions",
            total_variation(rigid, stiff),
            (None, 0.06),
            paper="SHAKE and simplified Z&Ss give the same histogram",
            note="two runs of one method to t = 5000 differ by 0.02 to 0.06",
            rtol=None,
        ),
        *unit_checks(),
        time_check(samples, "seven", 13472 / 1549, (0.2, 4.0)),
        *temperature_checks(samples, 0.12 if quick else 0.05),
        *peak_checks(samples),
        *(
            Check(
                f"{label}: share of saved points with a molecule on its own",
                found.left,
                (None, 0.5),
                verdict="information",
                note="a cluster in free space evaporates in the end; these points do not count",
                rtol=None,
            )
            for label, found in samples.items()
        ),
    ]
    title = f"Seven molecules, 232 K, {seeds} runs to t = {t_end:g} each"
    return Outcome(
        checks,
        draw_distances(samples, title),
        motion=lambda: motion(7, 60.0, 4),
        parameters=PARAMETERS | {"N": 7, "t_end": t_end, "seeds": seeds, "relaxation": RELAXATION},
        left_out=["temperatures to 5 % (here 12 %)"] if quick else (),
    )


@experiment(PAPER, "water-100", "A hundred water molecules at 232 K, and what a step costs", "Fig. 7")
def water_100(quick: bool) -> Outcome:
    """From a piece of ice, which has not melted yet at reduced size. At full size the step is timed: with an efficient
    constraint solver RATTLE is no slower than stiff Z&Ss. The 8.7 times of the paper, for seven molecules, are those of
    its nonlinear solver."""
    t_end, begin, share = (60.0, 20.0, 0.03) if quick else (1000.0, RELAXATION, 0.08)
    samples = {label: sample(100, label, t_end, 1, begin) for label in BASES}
    rigid, stiff = samples.values()
    checks = [
        Check(
            "total variation between the distributions",
            total_variation(rigid, stiff),
            (None, 0.03),
            paper="SHAKE and simplified Z&Ss give the same histogram",
            rtol=None,
        ),
        Check(
            "configurational temperature, stiff Z&Ss over RATTLE",
            stiff.configurational / rigid.configurational,
            (1 - share, 1 + share),
            verdict="information",
            rtol=None,
        ),
        *peak_checks(samples),
    ]
    if not quick:
        checks += [*temperature_checks(samples, share), *cost_of_steps()]
    return Outcome(
        checks,
        draw_distances(samples, f"A hundred molecules, 232 K, t = {begin:g} … {t_end:g}"),
        motion=lambda: motion(100, 30.0, 4),
        parameters=PARAMETERS | {"N": 100, "t_end": t_end, "seeds": 1, "relaxation": begin},
        left_out=["temperatures of the liquid, t > 300", "the time of a step"] if quick else (),
    )


def cost_of_steps(n: int = 100) -> list[Check]:
    """CPU time of a step without thermostat, compiled by XLA: the least of seven runs, one after the other."""
    rigid = cluster(n, True)
    free = dataclasses.replace(rigid.system, potential=None)
    stated = {
        "RATTLE": (rigid.system, Rattle()),
        "RATTLE by Newton's method": (rigid.system, Rattle(solver="newton")),
        "RATTLE without forces": (free, Rattle()),
        "stiff Z&Ss": (cluster(n, False).system, StiffZhangSkeel(beta=BETA)),
    }
    runs = {label: _steps(system, method, rigid.q0, rigid.v0) for label, (system, method) in stated.items()}
    least = dict.fromkeys(runs, np.inf)
    for label in 7 * list(runs):
        began = time.process_time()
        runs[label]()
        least[label] = min(least[label], time.process_time() - began)
    name = f"CPU time of a step of {n} molecules (µs)"
    ratio = least["RATTLE"] / least["stiff Z&Ss"]
    return [
        Check(
            f"CPU time of a step, RATTLE over stiff Z&Ss, {n} molecules",
            ratio,
            (0.1, 1.0),
            paper=42234 / 30059,
            where="section 4.3",
            verdict="information",
            note=TIMES,
            rtol=None,
        ),
        *(
            Check(f"{label}: {name}", 1e6 * x / STEPS, verdict="information", note="one machine", rtol=None)
            for label, x in least.items()
        ),
    ]


def _steps(system: Any, method: Method, q0: np.ndarray, v0: np.ndarray) -> Callable[[], Any]:
    """A function that makes STEPS steps, compiled."""
    mech, q = derive(system, q0.shape), jnp.asarray(q0)
    method = protocols.prepare(method, [(system, q0)])
    start = method.init(mech, initial_state(q, mech.momentum_at(q, jnp.asarray(v0)), 0.0, 0, False), jnp.asarray(H))
    go = jit(lambda carry: jax.lax.fori_loop(0, STEPS, lambda _, c: method.step(mech, c, jnp.asarray(H)), carry))
    run = lambda: jax.block_until_ready(go(start))
    run()
    return run
