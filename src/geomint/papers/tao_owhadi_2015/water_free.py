"""Seven molecules of water without thermostat (section 4.3): multipliers (Fig. 5), and what is conserved (Fig. 6)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...analysis.penalty import recover_multipliers
from ...methods import Method, Newmark, Rattle, StiffZhangSkeel, Verlet, ZhangSkeel
from ...numerics.compilation import jit
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ...system.units import EV
from ...view import Scene
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, PAPER, kept_energy, positions
from .water import EVERY, OMEGA, H, cluster, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        "ω = 500, stiff Z&Ss, h = 0.05": (500.0, H, StiffZhangSkeel(beta=BETA)),
    }
    constraint = jit(jax.vmap(derive(rigid.system, rigid.q0.shape).constraint))
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
    checks = [
        *multiplier_checks(off, left, rms(coarse.multipliers - exact[::5])),
        Check("rms of λ", rms(exact), verdict="information", rtol=None),
        Check("rms of λ about its mean", rms(exact - exact.mean(0)), verdict="information", rtol=None),
    ]
    first, _, third, _ = springs
    return Outcome(
        checks,
        draw_multipliers(np.asarray(exact), coarse, raw[third], averaged[first]),
        motion=lambda: motion(t_end),
        parameters={"N": 7, "window": window, "t_end": t_end, "h of the reference": H / 20},
    )


def multiplier_checks(off: dict[str, float], left: dict[str, float], rattle: float) -> list[Check]:
    """Errors of ω²g and of its averages, by the method and its springs, and of RATTLE's multipliers."""
    first, second, third, stated = off
    agree: dict[str, Any] = {"paper": "the averages agree with the multipliers of SHAKE", "rtol": 0.05}
    damped = "the filter damps the fast oscillation at this step, so that ω²g itself is near λ"
    return [
        Check.near("RATTLE, h = 0.05: rms error of λ", rattle, 3.7e-5, 0.35, verdict="information"),
        Check(
            f"{third}: rms of ω²g − λ",
            off[third],
            (0.2, 0.6),
            paper="no strong convergence of ω²g",
            where="section 3, (3.1)",
            note="as large as λ where the step resolves the springs",
            rtol=0.05,
        ),
        Check(f"{third}: rms error of the average", left[third], (1e-3, 0.04), **agree),
        Check(f"{first}: rms of ω²g − λ", off[first], (0.003, 0.1), verdict="information", note=damped, rtol=0.05),
        Check(f"{first}: rms error of the average", left[first], (1e-4, 0.01), **agree),
        Check(f"{second}: rms error of the average", left[second], (1e-3, 0.02), **agree),
        Check(f"{stated}: rms error of the average", left[stated], (1e-3, 0.02), **agree),
    ]


def motion(t_end: float) -> Scene:
    """Rigid molecules by RATTLE."""
    run = simulate(cluster(7, True), method=Rattle(), dt=H, t_end=5 * t_end, save_every=2)
    return picture(run, "Seven water molecules", "RATTLE, h = 0.05, without thermostat")


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
    torque of order βh². One Newton step of Newmark damps."""
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
    checks = conservation_checks(kept) + energy_checks(kept)
    checks.append(
        Check(
            "stiff Z&Ss: torque at h = 0.025 over that at h = 0.0125",
            torques[0] / torques[1],
            (3.5, 4.5),
            verdict="information",
            note="4: the torque is of order βh²",
        )
    )
    return Outcome(
        checks,
        draw_conservation(kept),
        motion=lambda: stiff_motion(n),
        parameters={"N": n, "h": H, "ω": OMEGA, "β": BETA, "t_end": t_end},
        left_out=["seven molecules, t ≤ 1000 (here two, t ≤ 200)"] if quick else (),
    )


def stiff_motion(n: int) -> Scene:
    """Molecules held by springs, by stiff Z&Ss."""
    method = StiffZhangSkeel(beta=BETA)
    run = simulate(cluster(n, False), method=method, dt=H, t_end=50.0, save_every=4)
    return picture(run, f"{n} water molecules", "stiff Z&Ss, h = 0.05, springs of ω = 20, without thermostat")


def conservation_checks(kept: dict[str, Kept]) -> list[Check]:
    """Constraints, momentum and angular momentum."""
    largest = lambda label, name: np.max(np.abs(getattr(kept[label], name)))
    linear: dict[str, Any] = {"paper": "linear momentum preserved"}
    angular: dict[str, Any] = {"paper": "angular momentum preserved"}
    residual = np.max(np.abs(kept["RATTLE"].run.constraint_residual))
    improved: dict[str, Any] = {
        "paper": "improved preservation compared with partially solved Newmark",
        "where": "section 4.3, Fig. 6",
    }
    said = {"RATTLE": linear, "stiff Z&Ss": improved}
    return [
        Check("RATTLE: largest |g| (Å²)", residual, (None, 2e-14), verdict="information"),
        *(
            Check(
                f"{label}: change of the momentum",
                largest(label, "momentum"),
                (None, 1e-11),
                **said.get(label, {"verdict": "information"}),
            )
            for label in kept
        ),
        Check("RATTLE: change of the angular momentum", largest("RATTLE", "angular"), (None, 2e-12), **angular),
        Check(
            "Z&S: change of the angular momentum",
            largest("Z&S", "angular"),
            (None, 1e-11),
            paper="preserves momentum maps",
            where="Theorem 1.2",
        ),
        Check(
            "stiff Z&Ss: change of the angular momentum",
            largest("stiff Z&Ss", "angular"),
            (1e-4, 0.05),
            verdict="information",
            note="its filtered force has a torque of order βh²; that of Z&S, a gradient, has none",
            rtol=None,
            **improved,
        ),
        Check(
            "change of the angular momentum, Newmark with one Newton step over stiff Z&Ss",
            largest("Newmark, one Newton step", "angular") / largest("stiff Z&Ss", "angular"),
            (1.0, None),
            paper="simplified Z&Ss preserves better than partially solved Newmark",
            rtol=None,
        ),
    ]


def energy_checks(kept: dict[str, Kept]) -> list[Check]:
    """Errors of the energy, over the kinetic energy at the start."""
    largest = lambda label: np.max(np.abs(kept[label].energy))
    kinetic, loss = float(kept["RATTLE"].run.kinetic[0]), kept["Newmark, one Newton step"].energy
    return [
        Check(
            "RATTLE: energy error over the kinetic energy",
            largest("RATTLE") / kinetic,
            (None, 2e-3),
            paper="energy preserved",
        ),
        Check(
            "Z&S: error of T + Ṽ over the kinetic energy", largest("Z&S") / kinetic, (None, 6e-3), verdict="information"
        ),
        Check(
            "stiff Z&Ss: energy error over the kinetic energy",
            largest("stiff Z&Ss") / kinetic,
            (None, 0.03),
            paper="simplified Z&Ss preserves better than partially solved Newmark",
        ),
        Check(
            "Newmark, one Newton step: energy lost over the kinetic energy",
            -loss[-1] / kinetic,
            (0.1, 2.0),
            paper="simplified Z&Ss preserves better than partially solved Newmark",
            rtol=None,
        ),
    ]


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
