"""Runs of the DNA model of section 4.4, its normal modes, and the steps at which the methods become unstable."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...errors import RunStopped
from ...methods import Method, ZhangSkeel
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from .common import kept_energy, positions

REST = float(np.arccos(0.7))  # the closed strand; its mirror is 2π − REST
SOFT = ZhangSkeel(beta=0.3)


class Opening:
    """A run of the DNA model from the noise of a seed; `stopped` is the time at which it blew up, infinite where it
    did not."""

    def __init__(self, system: Any, seed: int, method: Method, dt: float, t_end: float, save_every: int = 1):
        model = models.dna(seed=seed)
        blocks = round(t_end / dt / save_every)
        self.dt, self.stopped, began = dt, np.inf, time.perf_counter()
        try:
            run = simulate(
                system, model.q0, model.v0, method=method, dt=dt, t_end=blocks * save_every * dt, save_every=save_every
            )
        except RunStopped as stop:
            run, self.stopped = stop.run, float(stop.time or 0.0)
        self.seconds = time.perf_counter() - began  # compilation included
        self.t, self.energy = np.asarray(run.t), np.asarray(run.energy)
        self.kept = kept_energy(run)
        self.angle, self.rate = np.mean(run.q, axis=1), np.mean(run.p, axis=1)
        early = self.t <= 500
        self.q, self.p = positions(run)[early], np.asarray(run.p)[early]

    def energy_at_q(self) -> float:
        """The median of T + V with V read at q = x + c a(x), t ≤ 500."""
        mech: Any = derive(models.dna().system, self.q.shape[1:])
        return float(np.median(jit(jax.vmap(mech.energy))(jnp.asarray(self.q), jnp.asarray(self.p))))

    def kinetic_energy(self, low: float, high: float) -> float:
        """The mean over t ≤ 500 of the kinetic energy in the normal modes of the closed strand with low < ω < high."""
        frequencies, modes = normal_modes()
        return float(np.mean(0.5 * (self.p @ modes[:, (frequencies > low) & (frequencies < high)]) ** 2, axis=0).sum())

    @property
    def transition(self) -> float:
        """The first time at which the mean angle passes π, half-way between the two equilibria, by linear
        interpolation between saved points."""
        after = int(np.argmax(self.angle > np.pi))
        if self.angle[after] <= np.pi:
            return np.nan
        return float(np.interp(np.pi, self.angle[after - 1 : after + 1], self.t[after - 1 : after + 1]))

    @property
    def transitions(self) -> int:
        """How often the mean angle goes from one equilibrium to the other, half a radian before which it counts as
        arrived."""
        closed, mirrored = self.angle < REST + 0.5, self.angle > 2 * np.pi - REST - 0.5
        side = np.where(mirrored, 1, -1)[closed | mirrored]
        return int(np.sum(side[1:] != side[:-1]))


@functools.cache
def normal_modes() -> tuple[np.ndarray, np.ndarray]:
    """Frequencies and modes of small oscillations about the closed strand."""
    model = models.dna()
    mech: Any = derive(model.system, model.q0.shape)
    hessian = jit(jax.jacfwd(lambda q: -mech.force(q)))
    squares, modes = np.linalg.eigh(np.asarray(hessian(jnp.full(model.q0.shape, REST))))
    return np.sqrt(squares), modes


def indefinite_step() -> float:
    """The step from which M + βh²H is not positive definite at some equal angles: all angles turn together there."""
    ring: Any = derive(models.dna(8).system, (8,))
    bend = jit(jax.vmap(lambda angle: jnp.mean(ring.hessian_product(jnp.full(8, angle), jnp.ones(8)))))
    return float(1 / np.sqrt(-SOFT.beta * float(jnp.min(bend(jnp.linspace(0, np.pi, 20_001))))))


def verlet_limit() -> float:
    """Verlet's 2/ω where the Morse potential is steepest, all angles equal: the fastest mode alternates in sign."""
    ring, mode = derive(models.dna(8).system, (8,)), jnp.asarray([1.0, -1.0] * 4)
    square = jit(jax.vmap(lambda angle: jnp.mean(mode * ring.hessian_product(jnp.full(8, angle), mode))))
    return float(2 / jnp.sqrt(jnp.max(square(jnp.linspace(0, np.pi, 2001)))))


def stiffness_on_the_hump(steps: np.ndarray) -> np.ndarray:
    """h²λ, λ the largest eigenvalue of Hess Ṽ with one angle at 0, on top of the Morse hump, and the others at rest:
    Verlet on Ṽ is stable while it is below 4."""
    ring, x = derive(models.dna(6).system, (6,)), jnp.full(6, REST).at[0].set(0.0)
    hessian = jit(jax.vmap(lambda h: -jax.jacfwd(lambda y: SOFT.filter(ring, y, h).force)(x)))
    return steps**2 * np.linalg.eigvalsh(np.asarray(hessian(jnp.asarray(steps))))[:, -1]
