"""Clusters of TIP3P water (section 4.3): distances of oxygens at constant temperature (Figs. 4 and 7), multipliers
(Fig. 5), and what is conserved without the thermostat (Fig. 6).

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
from ...analysis.penalty import recover_multipliers
from ...methods import GeometricLangevin, Method, Newmark, Rattle, StiffZhangSkeel, Verlet, ZhangSkeel, protocols
from ...models import Model
from ...models.water_kinds import KINDS
from ...numerics.compilation import jit
from ...run import Trajectory, simulate
from ...run.inputs import initial_state
from ...system.lagrangian import derive
from ...system.units import EV, KCAL
from ..base import Outcome, experiment
from ..checks import Check
from .structure import BETA, PAPER
from .systems import kept_energy, positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

H, OMEGA, FRICTION, KT = 0.05, 20.0, 0.01, 1 / 50
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
    seconds: float


def sample(n: int, label: str, t_end: float, seeds: int, begin: float) -> Sample:
    """The base with the geometric Langevin algorithm, half a random kick before and after each step."""
    rigid, base = BASES[label]
    model = cluster(n, rigid)
    method = GeometricLangevin(base, friction=FRICTION, temperature=KT, ordering="OBABO")
    degrees = 6 * n if rigid else 9 * n
    counts, kinetic, force, curvature, seconds, left = np.zeros(len(EDGES) - 1), [], 0.0, 0.0, 0.0, []
    for seed in range(seeds):
        began = time.perf_counter()
        run = simulate(model, method=method, dt=H, t_end=t_end, save_every=EVERY, seed=seed)
        seconds += time.perf_counter() - began
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
    within = lambda name, x: Check(name, x, (1 - share, 1 + share), note=f"1 ± {100 * share:g} %", rtol=None)
    return [
        row
        for label, found in samples.items()
        for row in (
            within(f"{label}: kinetic temperature over that of the thermostat", found.kinetic.mean),
            within(f"{label}: configurational temperature over that of the thermostat", found.configurational),
        )
    ]


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
        Check("total variation between the distributions", total_variation(rigid, stiff), (None, 0.06), rtol=None),
        *temperature_checks(samples, 0.12 if quick else 0.05),
        *(
            Check(f"{label}: most frequent distance of neighbours (Å)", most_frequent(found), (2.6, 2.8), rtol=None)
            for label, found in samples.items()
        ),
        *(
            Check(f"{label}: share of saved points with a molecule on its own", found.left, (None, 0.5), rtol=None)
            for label, found in samples.items()
        ),
    ]
    information = [
        Check(
            f"{label}: statistical error of the kinetic temperature",
            found.kinetic.error,
            verdict="information",
            rtol=None,
        )
        for label, found in samples.items()
    ]
    information.append(
        Check("time of stiff Z&Ss over that of RATTLE", stiff.seconds / rigid.seconds, verdict="information", rtol=None)
    )
    title = f"Seven molecules, 232 K, {seeds} runs to t = {t_end:g} each"
    return Outcome([*checks, *information], draw_distances(samples, title))


@experiment(PAPER, "water-100", "A hundred water molecules at 232 K, and what a step costs", "Fig. 7")
def water_100(quick: bool) -> Outcome:
    """From a piece of ice, which has not melted yet at reduced size. At full size the step is timed: with an efficient
    constraint solver RATTLE is no slower than stiff Z&Ss. The 8.7 times of the paper, for seven molecules, are those of
    its nonlinear solver."""
    t_end, begin, share = (60.0, 20.0, 0.03) if quick else (1000.0, RELAXATION, 0.08)
    samples = {label: sample(100, label, t_end, 1, begin) for label in BASES}
    rigid, stiff = samples.values()
    checks = [
        Check("total variation between the distributions", total_variation(rigid, stiff), (None, 0.03), rtol=None),
        Check(
            "configurational temperature, stiff Z&Ss over RATTLE",
            stiff.configurational / rigid.configurational,
            (1 - share, 1 + share),
            note=f"1 ± {100 * share:g} %",
            rtol=None,
        ),
        *([] if quick else temperature_checks(samples, share)),
        *(
            Check(f"{label}: most frequent distance of neighbours (Å)", most_frequent(found), (2.6, 2.8), rtol=None)
            for label, found in samples.items()
        ),
    ]
    information = [] if quick else cost_of_steps()
    return Outcome(
        [*checks, *information],
        draw_distances(samples, f"A hundred molecules, 232 K, t = {begin:g} … {t_end:g}"),
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
    return [
        Check(f"{label}: {name}", 1e6 * x / STEPS, verdict="information", note="one machine", rtol=None)
        for label, x in least.items()
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


# --- multipliers ------------------------------------------------------------------------------------------------------
def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.asarray(x) ** 2)))


@experiment(PAPER, "water-multipliers", "Seven water molecules: multipliers of RATTLE and from springs", "Fig. 5")
def water_multipliers(quick: bool) -> Outcome:
    """Averages over a window of .2. With steps that resolve the springs ω²g oscillates as much as λ is large, and its
    average is λ. At the longer steps of stiff Z&Ss the filter damps the oscillation."""
    t_end, window = 5.0 if quick else 10.0, 0.2
    rigid = cluster(7, True)
    exact = simulate(rigid, method=Rattle(), dt=H / 20, t_end=t_end, save_every=4).multipliers  # every .01
    coarse = simulate(rigid, method=Rattle(), dt=H, t_end=t_end)
    springs = {
        "ω = 500, stiff Z&Ss, h = 0.01": (500.0, 0.01, StiffZhangSkeel(beta=BETA)),
        "ω = 100, stiff Z&Ss, h = 0.05": (100.0, H, StiffZhangSkeel(beta=BETA)),
        "ω = 100, Verlet, h = 0.0005": (100.0, 0.0005, Verlet()),
    }
    constraint = jax.vmap(derive(rigid.system, rigid.q0.shape).constraint)
    raw, averaged = {}, {}
    for label, (omega, h, method) in springs.items():
        run = simulate(cluster(7, False, omega), method=method, dt=h, t_end=t_end)
        every = max(1, round(0.01 / h))
        raw[label] = omega**2 * np.asarray(constraint(jnp.asarray(positions(run)[::every])))
        averaged[label] = recover_multipliers(run, window)[::every]
    # Errors at points with a whole window around them.
    at = {label: exact[:: (len(exact) - 1) // (len(x) - 1)] for label, x in raw.items()}
    off = {label: rms(x - at[label]) for label, x in raw.items()}
    inner = {label: round(0.1 / 0.01 * len(x) / len(exact)) for label, x in raw.items()}
    left = {label: rms((x - at[label])[inner[label] : -inner[label]]) for label, x in averaged.items()}
    first, second, third = springs
    checks = [
        Check.near("RATTLE, h = 0.05: rms error of λ", rms(coarse.multipliers - exact[::5]), 3.7e-5, 0.35),
        Check(f"{third}: rms of ω²g − λ", off[third], (0.2, 0.6), note="0.2 … 0.6: as large as λ", rtol=0.05),
        Check(f"{third}: rms error of the average", left[third], (1e-3, 0.04), note="0.001 … 0.04", rtol=0.05),
        Check(
            f"{first}: rms of ω²g − λ",
            off[first],
            (0.003, 0.1),
            note="0.003 … 0.1: the filter damps the oscillation",
            rtol=0.05,
        ),
        Check(f"{first}: rms error of the average", left[first], (1e-4, 0.01), rtol=0.05),
        Check(f"{second}: rms error of the average", left[second], (1e-3, 0.02), rtol=0.05),
    ]
    information = [
        Check("rms of λ", rms(exact), verdict="information", rtol=None),
        Check("rms of λ about its mean", rms(exact - exact.mean(0)), verdict="information", rtol=None),
    ]
    return Outcome([*checks, *information], draw_multipliers(np.asarray(exact), coarse, raw[third], averaged[first]))


def draw_multipliers(exact: np.ndarray, coarse: Trajectory, raw: np.ndarray, averaged: np.ndarray) -> Figure:
    from ...plots.figures import new_figure

    figure, t = new_figure(9.0, 4.5), 0.01 * np.arange(len(exact))
    axes = figure.add_subplot()
    for k, name in enumerate(("O–H", "O–H′", "H–H′")):
        axes.plot(t, raw[:, k], lw=0.3, alpha=0.35, color=f"C{k}", label="ω²g, ω = 100, Verlet" if k == 0 else None)
        axes.plot(t, averaged[:, k], lw=1.6, color=f"C{k}", label=f"{name}, ω = 500, averaged")
        axes.plot(coarse.t, coarse.multipliers[:, k], "k.", ms=2, label="RATTLE, h = 0.05" if k == 0 else None)
    axes.set(xlabel=EV.axis("time", "time"), ylabel="multiplier (eV/Å²)", title="The first molecule of seven")
    axes.legend(frameon=False, fontsize=8, ncols=3)
    axes.margins(x=0)
    return figure


# --- conservation -----------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Kept:
    """The errors of a run: of the energy (T + Ṽ where there is one), momentum and angular momentum."""

    run: Trajectory
    energy: np.ndarray
    momentum: np.ndarray
    angular: np.ndarray

    @classmethod
    def of(cls, run: Trajectory) -> Kept:
        off = lambda x: np.max(np.abs(x - x[:1]), axis=1)
        maps = run.momentum_maps
        return cls(run, kept_energy(run) - kept_energy(run)[0], off(maps["translation"]), off(maps["rotation"]))


@experiment(PAPER, "water-conservation", "Water without thermostat: energy, momentum and angular momentum", "Fig. 6")
def water_conservation(quick: bool) -> Outcome:
    """h = .05, ω = 20. RATTLE and full Z&S keep the angular momentum to rounding. Stiff Z&Ss does not: its force has a
    torque of order βh², which the figure of the paper does not resolve. One Newton step of Newmark damps."""
    n, t_end = (2, 200.0) if quick else (7, 1000.0)
    methods: dict[str, Method] = {
        "RATTLE": Rattle(),
        "Z&S": ZhangSkeel(beta=BETA),
        "stiff Z&Ss": StiffZhangSkeel(beta=BETA),
        "Newmark, one Newton step": Newmark(beta=BETA, newton_steps=1),
    }
    go = lambda label, dt, end, every: Kept.of(
        simulate(cluster(n, label == "RATTLE"), method=methods[label], dt=dt, t_end=end, save_every=every)
    )
    kept = {label: go(label, H, t_end, EVERY) for label in methods}
    torques = [go("stiff Z&Ss", h, 2.0, round(0.1 / h)).angular.max() for h in (H / 2, H / 4)]
    residual = np.max(np.abs(kept["RATTLE"].run.constraint_residual))
    largest = lambda label, name: np.max(np.abs(getattr(kept[label], name)))
    loss = kept["Newmark, one Newton step"].energy
    kinetic = float(kept["RATTLE"].run.kinetic[0])
    checks = [
        Check("RATTLE: largest |g| (Å²)", residual, (None, 2e-14)),
        *(Check(f"{label}: change of the momentum", largest(label, "momentum"), (None, 1e-11)) for label in methods),
        Check("RATTLE: change of the angular momentum", largest("RATTLE", "angular"), (None, 2e-12)),
        Check("Z&S: change of the angular momentum", largest("Z&S", "angular"), (None, 1e-11)),
        Check("stiff Z&Ss: change of the angular momentum", largest("stiff Z&Ss", "angular"), (1e-4, 0.05), rtol=None),
        Check(
            "stiff Z&Ss: torque at h = 0.025 over that at h = 0.0125", torques[0] / torques[1], (3.5, 4.5), note="4: h²"
        ),
        Check("RATTLE: energy error over the kinetic energy", largest("RATTLE", "energy") / kinetic, (None, 2e-3)),
        Check("Z&S: error of T + Ṽ over the kinetic energy", largest("Z&S", "energy") / kinetic, (None, 6e-3)),
        Check(
            "stiff Z&Ss: energy error over the kinetic energy", largest("stiff Z&Ss", "energy") / kinetic, (None, 0.03)
        ),
        Check(
            "Newmark, one Newton step: energy lost over the kinetic energy", -loss[-1] / kinetic, (0.1, 2.0), rtol=None
        ),
    ]
    return Outcome(checks, draw_conservation(kept))


def draw_conservation(kept: dict[str, Kept]) -> Figure:
    from ...plots.figures import new_figure

    figure = new_figure(12.0, 3.8)
    panels = (
        ("energy", "|H(t) − H(0)| (eV)"),
        ("momentum", "change of the momentum"),
        ("angular", "change of the angular momentum"),
    )
    for column, (name, label) in enumerate(panels):
        axes = figure.add_subplot(1, 3, column + 1)
        for k, (method, found) in enumerate(kept.items()):
            y = np.abs(getattr(found, name))
            axes.semilogy(found.run.t[y > 0], y[y > 0], lw=0.9, color=f"C{k}", label=method)
        axes.set(xlabel=EV.axis("time", "time"), ylabel=label)
        axes.grid(alpha=0.25)
        axes.margins(x=0)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return figure
