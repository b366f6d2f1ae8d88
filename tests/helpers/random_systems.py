"""Random systems made of random energies, and their motion by numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from helpers.programs import Energy


# --- random systems -------------------------------------------------------------------------------------------------
class Sum:
    """Energies on consecutive parts of q, each by its own scale: many random programs in one system, for one
    compilation."""

    def __init__(
        self, random: np.random.Generator, sizes: list[int], length: int, smooth: bool, takes_params: bool = False
    ):
        self.ends, self.takes_params = np.cumsum(sizes), takes_params
        self.parts = [
            Energy(random, (2, 2) if n == 4 else (n,), int(random.integers(2, length + 1)), smooth) for n in sizes
        ]
        self.scales = random.uniform(0.5, 1.0, len(sizes))

    def places(self) -> list[slice]:
        return [slice(end - int(np.prod(part.shape)), end) for part, end in zip(self.parts, self.ends, strict=True)]

    def __call__(self, q: Any, scales: Any = None) -> Any:
        flat, scales = jnp.ravel(q), self.scales if scales is None or not self.takes_params else scales
        return sum(
            scales[k] * part(flat[place]) for k, (part, place) in enumerate(zip(self.parts, self.places(), strict=True))
        )

    def numbers(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        flat = q.ravel()
        found = [part.numbers(flat[place]) for part, place in zip(self.parts, self.places(), strict=True)]
        return float(sum(s * v for s, (v, _) in zip(self.scales, found, strict=True))), np.concatenate(
            [s * d for s, (_, d) in zip(self.scales, found, strict=True)]
        ).reshape(q.shape)


class Springs:
    """½ Σ k_i q_i²: a fast part that is quadratic."""

    def __init__(self, random: np.random.Generator, size: int):
        self.stiffness, self.parts = random.uniform(5.0, 30.0, size), []

    def __call__(self, q: Any, _: Any = None) -> Any:
        return 0.5 * jnp.sum(self.stiffness * jnp.ravel(q) ** 2)

    def numbers(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        pull = self.stiffness * q.ravel()
        return 0.5 * float(pull @ q.ravel()), pull.reshape(q.shape)


class Surfaces:
    """g_i(q) = |q − a_i|² + .2 E_i(q) − c_i, with c_i such that g(q0) = 0."""

    def __init__(self, random: np.random.Generator, q0: np.ndarray, count: int):
        self.centres = random.normal(size=(count, q0.size)) * 1.5
        self.parts = [Energy(random, (q0.size,), 2, True) for _ in range(count)]
        self.level = np.zeros(count)
        self.level = self.numbers(q0)[0]

    def __call__(self, q: Any, _: Any = None) -> Any:
        flat = jnp.ravel(q)
        return jnp.stack(
            [
                jnp.sum((flat - a) ** 2) + 0.2 * part(flat) - c
                for a, part, c in zip(self.centres, self.parts, self.level, strict=True)
            ]
        )

    def numbers(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g and G."""
        flat = q.ravel()
        found = [part.numbers(flat) for part in self.parts]
        g = np.array(
            [
                np.sum((flat - a) ** 2) + 0.2 * v - c
                for a, (v, _), c in zip(self.centres, found, self.level, strict=True)
            ]
        )
        return g, np.stack([2 * (flat - a) + 0.2 * d.ravel() for a, (_, d) in zip(self.centres, found, strict=True)])


@dataclasses.dataclass
class Motion:
    """A system as the interpreter sees it, and methods of integration in numpy on it. Flat arrays."""

    slow: Any
    fast: Any
    surfaces: Any
    mass: np.ndarray  # (n, n)
    shape: tuple[int, ...]

    def pull(self, part: Any, q: np.ndarray) -> np.ndarray:
        return np.zeros_like(q) if part is None else part.numbers(q.reshape(self.shape))[1].ravel()

    def force(self, q: np.ndarray) -> np.ndarray:
        return -self.pull(self.slow, q) - self.pull(self.fast, q)

    def velocity(self, p: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.mass, p)

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        parts = [part.numbers(q.reshape(self.shape))[0] for part in (self.slow, self.fast) if part is not None]
        return 0.5 * float(p @ self.velocity(p)) + sum(parts)

    # --- methods: (q, p, h) → (q, p)
    def kick_drift(self, q, p, h):
        p = p + h * self.force(q)
        return q + h * self.velocity(p), p

    def drift_kick(self, q, p, h):
        q = q + h * self.velocity(p)
        return q, p + h * self.force(q)

    def verlet(self, q, p, h):
        p = p + 0.5 * h * self.force(q)
        q = q + h * self.velocity(p)
        return q, p + 0.5 * h * self.force(q)

    def drift_verlet(self, q, p, h):
        q = q + 0.5 * h * self.velocity(p)
        p = p + h * self.force(q)
        return q + 0.5 * h * self.velocity(p), p

    def yoshida(self, q, p, h):
        outer = 1 / (2 - 2 ** (1 / 3))
        for part in (outer, 1 - 2 * outer, outer):
            q, p = self.drift_verlet(q, p, part * h)
        return q, p

    def runge_kutta(self, q, p, h):
        slope = lambda y: np.stack([self.velocity(y[1]), self.force(y[0])])
        y = np.stack([q, p])
        a = slope(y)
        b = slope(y + 0.5 * h * a)
        c = slope(y + 0.5 * h * b)
        return tuple(y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c)))

    def respa(self, q, p, h, inner=4):
        p = p - 0.5 * h * self.pull(self.slow, q)
        for _ in range(inner):  # Verlet in drift form
            q = q + 0.5 * h / inner * self.velocity(p)
            p = p - h / inner * self.pull(self.fast, q)
            q = q + 0.5 * h / inner * self.velocity(p)
        return q, p - 0.5 * h * self.pull(self.slow, q)

    def collocation(self, q, p, h, a, b, force=None):
        """An implicit Runge–Kutta method, its stages by fixed-point iteration."""
        force = force or self.force
        kicks = np.zeros((len(b), q.size))
        for _ in range(60):
            velocities = np.stack([self.velocity(p + h * row @ kicks) for row in a])
            kicks, before = np.stack([force(q + h * row @ velocities) for row in a]), kicks
            if np.max(np.abs(kicks - before)) < 1e-16:
                break
        velocities = np.stack([self.velocity(p + h * row @ kicks) for row in a])
        return q + h * b @ velocities, p + h * b @ kicks

    def midpoint(self, q, p, h):
        return self.collocation(q, p, h, np.array([[0.5]]), np.array([1.0]))

    def gauss(self, q, p, h):
        root = np.sqrt(3) / 6
        return self.collocation(q, p, h, np.array([[0.25, 0.25 - root], [0.25 + root, 0.25]]), np.array([0.5, 0.5]))

    def imex(self, q, p, h):
        p = p - 0.5 * h * self.pull(self.slow, q)
        q, p = self.collocation(q, p, h, np.array([[0.5]]), np.array([1.0]), lambda x: -self.pull(self.fast, x))
        return q, p - 0.5 * h * self.pull(self.slow, q)

    def rattle(self, q, p, h):
        """p½ = p + (h/2)f(q) − Gᵀμ, q' = q + hM⁻¹p½ with g(q') = 0; p' = p½ + (h/2)f(q') − G'ᵀν with G'M⁻¹p' = 0."""
        g = lambda x: self.surfaces.numbers(x.reshape(self.shape))
        half, normal = p + 0.5 * h * self.force(q), g(q)[1]
        across = np.linalg.solve(self.mass, normal.T)
        impulse = np.zeros(len(normal))
        for _ in range(30):
            end = q + h * self.velocity(half - normal.T @ impulse)
            off, there = g(end)
            step = np.linalg.solve(h * there @ across, off)
            impulse = impulse + step
            if np.max(np.abs(step)) < 1e-16:
                break
        half = half - normal.T @ impulse
        q = q + h * self.velocity(half)
        p = half + 0.5 * h * self.force(q)
        return q, self.tangent(q, p)

    def tangent(self, q, p):
        """p without its part normal to the surfaces."""
        normal = self.surfaces.numbers(q.reshape(self.shape))[1]
        across = np.linalg.solve(self.mass, normal.T)
        return p - normal.T @ np.linalg.solve(normal @ across, across.T @ p)

    def run(self, name, q, p, h, steps, every):
        """(saves, 2, n): q and p at every so many steps."""
        kept, step = [np.stack([q, p])], getattr(self, name)
        for k in range(steps):
            q, p = step(q, p, h)
            if (k + 1) % every == 0:
                kept.append(np.stack([q, p]))
        return np.stack(kept)
