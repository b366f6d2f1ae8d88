"""A magnetised rigid body on SO(3) (section 4.5, Figs. 9 and 10): a ball of inertia 1 with a dipole in a field.

The penalised method relaxes R to a 3 × 3 matrix with the kinetic energy ¼ tr ṘᵀṘ, a mass of ½ for each entry, and the
potential Bμ R₃₃ + ½ω² tr((RᵀR − I)²): `gm.penalize` of the body by matrices, moved by ZhangSkeel. The paper weighs aᵀa
with 1 instead of the mass ½, so that its β is twice that of the library, and its f is M f there.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import models
from ...analysis.penalty import penalize
from ...errors import RunStopped
from ...methods import CayleyVariationalEuler, Composition, LieVerlet, ZhangSkeel
from ...numerics.rotations import cross, logarithm
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .structure import BETA, PAPER
from .systems import kept_energy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OMEGA, STEP, FAR = 10.0, 0.1, 200.0  # of the springs, of the paper's figures, and of the invariants
UP = jnp.array([0.0, 0.0, 1.0])


def force_of_the_action(r: Array, a: Array, h: float, sign: float) -> Array:
    """f = a − 2ω²β²h⁴(R aᵀa + a Rᵀa + a aᵀR), the derivative of the discrete Lagrangian (4.14) by R; printed with the
    other sign, and transposed."""
    cubic = r @ a.T @ a + a @ r.T @ a + a @ a.T @ r
    return a + sign * 2 * OMEGA**2 * BETA**2 * h**4 * cubic


def identity_defect(run: Trajectory, sign: float = -1.0, transposed: bool = False) -> float:
    """How far the force of ZhangSkeel is from the formula, along a run."""
    method, system, h = run.method, run.system, run.dt
    assert isinstance(method, ZhangSkeel)

    def apart(x: Array) -> Array:
        found = method.filter(derive(system, (3, 3)), x, jnp.asarray(h))
        a = found.shift / (BETA * h**2)
        expected = force_of_the_action(x, a, h, sign)
        return jnp.max(jnp.abs(found.force - (a + (expected - a).T if transposed else expected)))

    return float(jnp.max(jax.vmap(apart)(jnp.asarray(run.q[::20]))))


def printed_defect(run: Trajectory) -> float:
    """How far the rotations are from solving (4.12) with (4.13): with Ω from the Cayley map of R_{k−1}ᵀR_k,

    Ω_{k+1}(1 + ¼h²|Ω_{k+1}|²) = Ω_k(1 + ¼h²|Ω_k|²) + h (R_kᵀe₃) × e₃."""
    r, h = jnp.asarray(run.q), run.dt
    w = logarithm(jnp.swapaxes(r[:-1], 1, 2) @ r[1:])
    angle = jnp.linalg.norm(w, axis=1, keepdims=True)
    omega = 2 * jnp.tan(0.5 * angle) / angle * w / h
    momenta = omega * (1 + 0.25 * h**2 * jnp.sum(omega**2, axis=1, keepdims=True))
    torque = cross(r[1:-1, 2], jnp.broadcast_to(UP, r[1:-1, 2].shape))
    return float(jnp.max(jnp.abs(momenta[1:] - momenta[:-1] - h * torque)))


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
    early = round(10.0 / STEP)
    kept = kept_energy(c.springs)
    euler = c.euler.momentum_maps
    drift = {name: float(np.ptp(x)) for name, x in euler.items()}
    names = {"spatial rotation[0.0, 0.0, 1.0]": "e₃·R(1 + ¼h²|Ω|²)Ω", "body rotation[0.0, 0.0, 1.0]": "Ω₃(1 + ¼h²|Ω|²)"}
    wrong = identity_defect(c.springs, sign=1.0, transposed=True)
    checks = [
        Check(
            "Z&S: f against a − 2ω²β²h⁴(R aᵀa + a Rᵀa + a aᵀR)",
            identity_defect(c.springs),
            (None, 1e-12),
        ),
        Check(
            "Z&S: f as printed differs from it by", wrong, (1e-2, None), note="a wrong sign and transposes", rtol=0.05
        ),
        Check.near("Z&S: largest |RᵀR − I| at q", skew(c.positions["Z&S"]).max(), 0.019, 0.1),
        Check.near("Z&S: largest change of T + Ṽ", float(np.ptp(kept)), 0.0152, 0.1),
        Check("Z&S: |R − R'|, t ≤ 10", c.deviation("Z&S")[: early + 1].max(), (0.1, 0.3), note="0.1 … 0.3"),
        Check("variational Euler: |R − R'|, t ≤ 10", c.deviation("variational Euler")[: early + 1].max(), (0.1, 0.3)),
        Check("variational Euler: defect of (4.12) as printed", printed_defect(c.euler), (None, 1e-12)),
        *(Check(f"variational Euler: change of {names[name]}, t ≤ 200", x, (None, 1e-12)) for name, x in drift.items()),
        Check("variational Euler: largest |RᵀR − I|, t ≤ 200", skew(c.euler.q).max(), (None, 2e-15)),
        Check.near(
            "variational Euler: largest |ΔH|, t ≤ 200", float(np.max(np.abs(c.euler.energy_error))), 0.1008, 0.02
        ),
        Check("Z&S with ω = 20: stops at step", stopping_step(20.0), (1, 50), note="unstable"),
    ]
    dipole = float(np.min(c.exact.q[:, 2, 2]))
    return Outcome([*checks, Check("exact: lowest R₃₃", dipole, verdict="information", rtol=None)], draw(c))


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
