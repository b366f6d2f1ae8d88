"""The problems every method is measured on: nonlinear, non-symmetric, non-diagonal mass, central forces, a stiff part,
constraints; never a harmonic oscillator, which certifies nothing."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.measure import Point
from geomint.models.gravity import newtonian


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    system: gm.System
    at: Point
    dt: float  # a step at which a second-order method is off by a per cent or so

    def __repr__(self) -> str:
        return self.name


def coupled_quartic() -> Problem:
    """Three coordinates with a full mass matrix and no symmetry at all."""
    mass = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, -0.2], [0.1, -0.2, 0.5]])

    def potential(q):
        x, y, z = q
        return 0.25 * (x**4 + y**4 + z**4) + 0.5 * (x * y**2 - y * z) + 0.3 * x * y * z + 0.5 * jnp.sum(q**2) + 0.2 * x

    return Problem("coupled-quartic", gm.System(potential, mass=mass), Point(np.array([0.7, -0.4, 0.3]), np.array([0.2, 0.9, -0.5])), 0.1)


def three_bodies() -> Problem:
    """Central pair forces in the plane: translations and rotations are symmetries. Softened enough that no encounter
    is too quick for the step: a symplectic method keeps the energy only where h times the highest frequency stays small."""
    masses = np.array([1.0, 0.6, 1.7])
    system = gm.System(newtonian(masses, 1.0, softening=1.0), mass=masses[:, None], symmetries=(gm.Translation(), gm.Rotation((0, 1))))
    q = np.array([[0.9, 0.1], [-0.8, 0.5], [0.1, -1.0]])
    v = np.array([[0.1, 0.6], [-0.5, -0.4], [0.4, -0.1]])
    return Problem("three-bodies", system, Point(q, masses[:, None] * v), 0.1)


def springs() -> Problem:
    """Soft quartic and moderately stiff springs, the stiff part stated as `fast`."""
    model = gm.models.fpu(springs=2, omega=4.0)
    return Problem("springs", model.system, Point(model.q0 + 0.1, model.v0 + np.array([[0.1, -0.2], [0.3, 0.05]])), 0.05)


def pendula() -> Problem:
    """Two coupled pendula in their angles, with parameters: a potential that is no polynomial."""

    def potential(q, k):
        return -jnp.cos(q[0]) - k["ratio"] * jnp.cos(q[1]) + k["coupling"] * (1 - jnp.cos(q[1] - q[0])) ** 2

    system = gm.System(potential, mass=np.array([1.0, 0.7]), params={"ratio": 0.6, "coupling": 0.9})
    return Problem("pendula", system, Point(np.array([1.9, -0.6]), np.array([0.3, 0.8])), 0.1)


def trimer() -> Problem:
    """Three particles of unequal mass: bonds of moderate stiffness as `fast`, a soft attraction besides; the whole turns."""
    masses = np.array([1.0, 0.5, 0.8])
    i, j = np.array([0, 1, 2]), np.array([1, 2, 0])
    squares = lambda q: jnp.sum((q[i] - q[j]) ** 2, axis=1)
    system = gm.System(
        lambda q: 0.3 * jnp.sum(squares(q) ** 2) + 0.2 * jnp.sum(jnp.cos(squares(q))),
        mass=masses[:, None], fast=lambda q: 3.0 * jnp.sum((squares(q) - 1) ** 2), symmetries=(gm.Translation(), gm.Rotation((0, 1))),
    )  # fmt: skip
    q = np.array([[0.0, 0.1], [1.0, 0.0], [0.4, 0.8]])
    v = np.array([[0.3, -0.2], [-0.1, 0.5], [-0.4, 0.1]])
    return Problem("trimer", system, Point(q, masses[:, None] * v), 0.03)


PROBLEMS = (coupled_quartic(), three_bodies(), springs(), pendula(), trimer())


def fitting(method: gm.methods.Method) -> list[Problem]:
    """The problems that a method can move."""

    def fits(problem: Problem) -> bool:
        try:
            method.check(problem.system)
        except gm.InputError:
            return False
        return True

    return [problem for problem in PROBLEMS if fits(problem)]
