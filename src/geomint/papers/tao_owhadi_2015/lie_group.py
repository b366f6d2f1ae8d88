"""A magnetised rigid body on SO(3) (section 4.5, Figs. 9 and 10): a ball of inertia 1 with a dipole in a field.

The penalised method relaxes R to a 3 × 3 matrix with the kinetic energy ¼ tr ṘᵀṘ, a mass of ½ for each entry, and the
potential Bμ R₃₃ + ½ω² tr((RᵀR − I)²): `gm.penalize` of the body by matrices, moved by ZhangSkeel. The paper weighs aᵀa
with 1 instead of the mass ½, so that its β is twice that of the library, and its f is M f there.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import models
from ...analysis.penalty import penalize
from ...errors import RunStopped
from ...methods import CayleyVariationalEuler, Composition, LieVerlet, ZhangSkeel
from ...numerics.compilation import jit
from ...numerics.rotations import cross, logarithm
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ...system.system import System
from ...view import Scene
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, PAPER, kept_energy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OMEGA, STEP, FAR = 10.0, 0.1, 200.0  # of the springs, of the paper's figures, and of the invariants
UP = jnp.array([0.0, 0.0, 1.0])


def force_of_the_action(r: np.ndarray, a: np.ndarray, h: float, sign: float) -> np.ndarray:
    """f = a − 2ω²β²h⁴(R aᵀa + a Rᵀa + a aᵀR), the derivative of the discrete Lagrangian (4.14) by R; printed with the
    other sign, and transposed."""
    cubic = r @ a.T @ a + a @ r.T @ a + a @ a.T @ r
    return a + sign * 2 * OMEGA**2 * BETA**2 * h**4 * cubic


def filtered(run: Trajectory, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The force F and the shift c a of ZhangSkeel at each of the points."""
    method, system, h = run.method, run.system, jnp.asarray(run.dt)
    assert isinstance(method, ZhangSkeel)
    found = jit(jax.vmap(lambda x: method.filter(derive(system, (3, 3)), x, h)))(jnp.asarray(at))
    return np.asarray(found.force), np.asarray(found.shift)


def identity_defects(run: Trajectory, force: np.ndarray, shift: np.ndarray) -> tuple[float, float]:
    """How far the forces at every 20th point of a run are from the formula, and from the formula as printed."""
    h = run.dt
    ours, printed = 0.0, 0.0
    for x, f, a in zip(run.q[::20], force, shift / (BETA * h**2), strict=True):
        ours = max(ours, float(np.max(np.abs(f - force_of_the_action(x, a, h, -1.0)))))
        terms = force_of_the_action(x, a, h, 1.0) - a
        printed = max(printed, float(np.max(np.abs(f - (a + terms.T)))))
    return ours, printed


def printed_defect(run: Trajectory) -> float:
    """How far the rotations are from solving (4.12) with (4.13): with Ω from the Cayley map of R_{k−1}ᵀR_k,

    Ω_{k+1}(1 + ¼h²|Ω_{k+1}|²) = Ω_k(1 + ¼h²|Ω_k|²) + h (R_kᵀe₃) × e₃."""
    h = run.dt

    def defect(r: Array) -> Array:
        w = logarithm(jnp.swapaxes(r[:-1], 1, 2) @ r[1:])
        angle = jnp.linalg.norm(w, axis=1, keepdims=True)
        omega = 2 * jnp.tan(0.5 * angle) / angle * w / h
        momenta = omega * (1 + 0.25 * h**2 * jnp.sum(omega**2, axis=1, keepdims=True))
        torque = cross(r[1:-1, 2], jnp.broadcast_to(UP, r[1:-1, 2].shape))
        return jnp.max(jnp.abs(momenta[1:] - momenta[:-1] - h * torque))

    return float(jit(defect)(jnp.asarray(run.q)))


def skew(q: np.ndarray) -> np.ndarray:
    """max |RᵀR − I| over time."""
    return np.max(np.abs(np.swapaxes(q, 1, 2) @ q - np.eye(3)), axis=(1, 2))


def by_springs(omega: float, t_end: float) -> Trajectory:
    """The penalised body by Z&S with h = .1; the paper's β is twice that of the library."""
    model = models.magnetised_body(representation="matrix")
    assert isinstance(model.system, System)
    method = ZhangSkeel(beta=BETA / 2)
    return simulate(penalize(model.system, omega), model.q0, model.v0, method=method, dt=STEP, t_end=t_end)


class Compared:
    """The exact motion, the penalised method and variational Euler, all with h = .1."""

    def __init__(self, t_end: float):
        group, fine = models.magnetised_body(), Composition(LieVerlet(), order=8)
        self.exact = simulate(group, method=fine, dt=STEP / 2, t_end=t_end, save_every=2)
        self.euler = simulate(group, method=CayleyVariationalEuler(), dt=STEP, t_end=FAR)
        self.springs = by_springs(OMEGA, t_end)
        self.t = np.asarray(self.springs.t)
        self.positions = {"Z&S": np.asarray(self.springs.q_filtered), "variational Euler": self.euler.q[: len(self.t)]}

    def deviation(self, name: str) -> np.ndarray:
        """max |R − R'| over time, R' the exact motion."""
        return np.max(np.abs(self.positions[name] - self.exact.q), axis=(1, 2))


def trapezoidal_defects(run: Trajectory, force: np.ndarray) -> tuple[float, float]:
    """How far a run is from R_{k+1} = R_k + 2h p_{k+½}, and from the printed R_{k+1} = R_k + 2h p_{k+1}; `force` at
    its first points."""
    h, count = run.dt, len(force)
    r, p = np.asarray(run.q[: count + 1]), np.asarray(run.p[: count + 1])
    off = lambda momentum: float(np.max(np.abs(r[1:] - r[:-1] - 2 * h * momentum)))
    return off(p[:-1] + 0.5 * h * force), off(p[1:])


def fast_frequency(omega: float) -> float:
    """The highest frequency of small oscillations about R = I."""
    model = models.magnetised_body(representation="matrix")
    assert isinstance(model.system, System)
    mech: Any = derive(penalize(model.system, omega), (3, 3))
    product = lambda v: mech.velocity(mech.hessian_product(jnp.eye(3), v.reshape(3, 3))).ravel()
    matrix = np.asarray(jit(jax.vmap(product))(jnp.eye(9)))  # the mass is ½ for all: symmetric
    return float(np.sqrt(np.linalg.eigvalsh(matrix)[-1]))


def stopping_step(omega: float) -> float:
    """The step at which the penalised method stops, up to t = 100; NaN where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the step, which is too long
            by_springs(omega, 100.0)
    except RunStopped as stopped:
        return np.nan if stopped.step is None else stopped.step
    return np.nan


@experiment(PAPER, "so3", "A magnetised body on SO(3): springs on matrices against Lie-group methods", "Figs. 9 and 10")
def so3(quick: bool) -> Outcome:
    """R(0) = I, Ω(0) = (1, .2, .1), Bμ = 1; Z&S with ω = 10, β = .4, h = .1, variational Euler (4.12) with h = .1."""
    c = Compared(20.0 if quick else 100.0)
    checks = [*formula_checks(c.springs), *spring_checks(c), *euler_checks(c), *stability_checks()]
    dipole = float(np.min(c.exact.q[:, 2, 2]))
    return Outcome(
        [*checks, Check("exact: lowest R₃₃", dipole, verdict="information", rtol=None)],
        draw(c),
        motion=lambda: motion(c),
        parameters={
            "ω": OMEGA,
            "β of the paper": BETA,
            "β of the library": BETA / 2,
            "h": STEP,
            "t_end": float(c.t[-1]),
        },
        left_out=["the springs after t = 20"] if quick else (),
    )


def formula_checks(run: Trajectory) -> list[Check]:
    """The formulas of the penalised method, derived from the discrete Lagrangian (4.14) and as printed."""
    some = np.asarray(run.q[::20])
    forces, shift = filtered(run, np.concatenate([some, run.q[:200]]))
    identity, identity_printed = identity_defects(run, forces[: len(some)], shift[: len(some)])
    right, printed = trapezoidal_defects(run, forces[len(some) :])
    force: dict[str, Any] = {
        "paper": "f = a + 2ω²β²h⁴(aᵀa Rᵀ + aᵀR aᵀ + Rᵀ a aᵀ)",
        "where": "section 4.5, after (4.15)",
    }
    move: dict[str, Any] = {"paper": "R_{k+1} = R_k + 2h p_{k+1}", "where": "section 4.5, trapezoidal form"}
    return [
        Check(
            "Z&S: f against a − 2ω²β²h⁴(R aᵀa + a Rᵀa + a aᵀR)",
            identity,
            (None, 1e-12),
            verdict="corrected",
            note="the derivative of (4.14) by R",
            **force,
        ),
        Check(
            "Z&S: f as printed differs from it by",
            identity_printed,
            (1e-2, None),
            verdict="information",
            note="the printed form, as a control; its sign is wrong, and the terms are transposed",
            rtol=0.05,
            **force,
        ),
        Check(
            "Z&S: R_{k+1} against R_k + 2h p_{k+½}",
            right,
            (None, 1e-13),
            verdict="corrected",
            note="the momentum after the half kick",
            **move,
        ),
        Check(
            "Z&S: R_{k+1} against R_k + 2h p_{k+1} as printed",
            printed,
            (1e-3, None),
            verdict="information",
            note="the printed form, as a control; with p_{k+1}, which needs f_{k+1}, the step would be implicit",
            rtol=0.05,
            **move,
        ),
    ]


def spring_checks(c: Compared) -> list[Check]:
    """The penalised method against the exact motion."""
    early, kept = round(10.0 / STEP), kept_energy(c.springs)
    return [
        Check.near(
            "Z&S: largest |RᵀR − I| at q",
            skew(c.positions["Z&S"]).max(),
            0.019,
            0.1,
            paper="a Lie-group integrator is much better at preserving the group",
            where="Fig. 10",
        ),
        Check.near(
            "Z&S: largest change of T + Ṽ", float(np.ptp(kept)), 0.0152, 0.1, paper="energy preserved", where="Fig. 10a"
        ),
        Check(
            "Z&S: |R − R'|, t ≤ 10",
            c.deviation("Z&S")[: early + 1].max(),
            (0.1, 0.3),
            verdict="information",
            note="R' is the exact motion",
        ),
        Check(
            "variational Euler: |R − R'|, t ≤ 10",
            c.deviation("variational Euler")[: early + 1].max(),
            (0.1, 0.3),
            verdict="information",
            note="of order 1; at this step about as far off as the penalised method",
        ),
    ]


def euler_checks(c: Compared) -> list[Check]:
    """The benchmark (4.12) is right as printed."""
    names = {"spatial rotation[0.0, 0.0, 1.0]": "e₃·R(1 + ¼h²|Ω|²)Ω", "body rotation[0.0, 0.0, 1.0]": "Ω₃(1 + ¼h²|Ω|²)"}
    drift = {names[name]: float(np.ptp(x)) for name, x in c.euler.momentum_maps.items()}
    kept: dict[str, Any] = {"paper": "energy and momentum preserving", "where": "section 4.5"}
    return [
        Check(
            "variational Euler: defect of (4.12) as printed",
            printed_defect(c.euler),
            (None, 1e-12),
            paper="the update (4.12), (4.13)",
            where="(4.12)",
        ),
        *(
            Check(f"variational Euler: change of {name}, t ≤ 200", x, (None, 1e-12), **kept)
            for name, x in drift.items()
        ),
        Check(
            "variational Euler: largest |RᵀR − I|, t ≤ 200",
            skew(c.euler.q).max(),
            (None, 2e-15),
            paper="RᵀR = I up to arithmetic error",
            where="section 4.5",
        ),
        Check.near(
            "variational Euler: largest |ΔH|, t ≤ 200",
            float(np.max(np.abs(c.euler.energy_error))),
            0.1008,
            0.02,
            note="bounded, without drift; the error is of order h",
            **kept,
        ),
    ]


def stability_checks() -> list[Check]:
    """The kinetic energy is ¼ tr ṘᵀṘ, a mass of ½: the fast frequency is √8 ω and the effective β is β/2."""
    tried = np.arange(12.0, 18.0, 0.5)
    lost = next((omega for omega in tried if not np.isnan(stopping_step(omega))), np.nan)
    return [
        Check.near(
            "springs: highest frequency at R = I over ω",
            fast_frequency(OMEGA) / OMEGA,
            np.sqrt(8),
            1e-6,
            paper="a stiff potential ½ω² tr((RᵀR − I)²)",
            where="section 4.5",
            verdict="corrected",
            note="√8, since the mass is ½; the penalty enters the action as −½ω² tr, printed as +½ω² tr",
        ),
        Check(
            "Z&S: first ω at which the run stops, h = 0.1",
            lost,
            (13.0, 16.0),
            verdict="information",
            note="(4.14) has no factor ½ of the mass with βh²: β = 0.4 acts as the 0.2 of Integrator 1.1; small "
            "motions are stable up to √8 hω = 4.47",
            rtol=None,
        ),
        Check(
            "Z&S with ω = 20: stops at step",
            stopping_step(20.0),
            (1, 50),
            verdict="information",
            note="√8 hω = 5.7, above the limit 4.47 of β = 0.2",
        ),
    ]


def motion(c: Compared) -> Scene:
    """Fig. 9: the dipoles of the exact motion, of the springs and of variational Euler, in a vertical field."""
    shown = slice(0, 201)
    bodies = {"exact": np.asarray(c.exact.q)} | c.positions
    tips = np.stack([np.asarray(q)[shown][:, :, 2] for q in bodies.values()], axis=1)
    return Scene(
        c.t[shown],
        tips,
        bonds=[(0, 3), (1, 3), (2, 3), (3, 4)],
        fixed=((0.0, 0.0, 0.0), (0.0, 0.0, 1.3)),
        colors=(0, 1, 2),
        names={label: k for k, label in enumerate(bodies)},
        series={f"R₃₃, {label}": (c.t[shown], tips[:, k, 2]) for k, label in enumerate(bodies)},
        trail=40,
        title="A magnetised body",
        subtitle="the dipole R e₃ in a vertical field (the long line); h = 0.1, ω = 10",
    )


def draw(c: Compared) -> Figure:
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 4.2)
    path, energy, group, apart = figure.subplots(1, 4)
    shown = c.t <= 20
    path.plot(*c.exact.q[shown][:, :2, 2].T, color="0.6", lw=3, label="exact")
    path.plot(*c.positions["Z&S"][shown][:, :2, 2].T, "C0", lw=1, label="Z&S, springs")
    path.plot(*c.positions["variational Euler"][shown][:, :2, 2].T, "C3", lw=1, label="variational Euler")
    path.set(aspect="equal", xlabel="first component", ylabel="second component", title="Dipole R e₃, t ≤ 20")
    count = len(c.t)
    kept = kept_energy(c.springs)
    energy.plot(c.t, kept - kept[0], "C0", lw=0.7)
    energy.plot(c.t, c.euler.energy_error[:count], "C3", lw=0.7)
    energy.set(xlabel="time", ylabel="change", title="Energy (of Z&S: T + Ṽ)")
    group.semilogy(c.t[1:], np.maximum(skew(c.positions["Z&S"])[1:], 1e-17), "C0", lw=0.7)
    group.semilogy(c.t[1:], np.maximum(skew(c.euler.q[:count])[1:], 1e-17), "C3", lw=0.7)
    group.set(xlabel="time", ylabel="max |RᵀR − I|", title="Distance from SO(3)")
    for name, color in (("Z&S", "C0"), ("variational Euler", "C3")):
        apart.plot(c.t, c.deviation(name), color, lw=0.8)
    apart.set(xlabel="time", ylabel="max |R − R'|", title="Deviation from exact")
    for axes in (path, energy, group, apart):
        axes.grid(alpha=0.25)
    figure.legend(*path.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle("Magnetised body, Ω(0) = (1, 0.2, 0.1), h = 0.1, ω = 10, β = 0.4", fontsize=11)
    return figure
