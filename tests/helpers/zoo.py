"""The problems every method is measured on: nonlinear, non-symmetric, non-diagonal mass, central forces, a stiff part,
constraints; never a harmonic oscillator, which certifies nothing."""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm

import geomint as gm
from geomint.analysis.measure import Point


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    system: gm.System
    at: Point
    dt: float  # a step at which a second-order method is off by a per cent or so
    quadratic: bool = True  # the fast part, where there is one

    def step(self, method: gm.methods.Method) -> float:
        """dt, or half of it for multistep methods, whose intervals of periodicity are half as long."""
        return 0.5 * self.dt if method.traits.steps > 2 else self.dt

    def __repr__(self) -> str:
        return self.name


def coupled_quartic() -> Problem:
    """Three coordinates with a full mass matrix and no symmetry at all."""
    mass = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, -0.2], [0.1, -0.2, 0.5]])

    def potential(q):
        x, y, z = q
        return 0.25 * (x**4 + y**4 + z**4) + 0.5 * (x * y**2 - y * z) + 0.3 * x * y * z + 0.5 * jnp.sum(q**2) + 0.2 * x

    return Problem(
        "coupled-quartic",
        gm.System(potential, mass=mass),
        Point(np.array([0.7, -0.4, 0.3]), np.array([0.2, 0.9, -0.5])),
        0.1,
    )


# Differences of neighbours are written with slices and rolls, not with arrays of indices: the scatter in the derivative
# of a gather makes a method with constraints compile half as long again.
def around(q):
    """q₀ − q₁, q₁ − q₂, q₂ − q₀."""
    return q - jnp.roll(q, -1, axis=0)


def attraction(masses: np.ndarray, softening: float):
    """V = −Σ_{i<j} m_i m_j / √(|x_i − x_j|² + ε²) of three bodies."""
    strength = masses * np.roll(masses, -1)
    return lambda q: -jnp.sum(strength / jnp.sqrt(jnp.sum(around(q) ** 2, axis=1) + softening**2))


def three_bodies() -> Problem:
    """Central pair forces in the plane: translations and rotations are symmetries. Softened enough that no encounter is
    too quick for the step: a symplectic method keeps the energy only where h times the highest frequency stays
    small."""
    masses = np.array([1.0, 0.6, 1.7])
    system = gm.System(
        attraction(masses, softening=1.0), mass=masses[:, None], symmetries=(gm.Translation(), gm.Rotation((0, 1)))
    )
    q = np.array([[0.9, 0.1], [-0.8, 0.5], [0.1, -1.0]])
    v = np.array([[0.1, 0.6], [-0.5, -0.4], [0.4, -0.1]])
    return Problem("three-bodies", system, Point(q, masses[:, None] * v), 0.1)


def springs() -> Problem:
    """Soft quartic and moderately stiff springs, the stiff part stated as `fast`."""
    model = gm.models.fpu(springs=2, omega=4.0)
    return Problem(
        "springs", model.system, Point(model.q0 + 0.1, model.v0 + np.array([[0.1, -0.2], [0.3, 0.05]])), 0.05
    )


def pendula() -> Problem:
    """Two coupled pendula in their angles, with parameters: a potential that is no polynomial."""

    def potential(q, k):
        return -jnp.cos(q[0]) - k["ratio"] * jnp.cos(q[1]) + k["coupling"] * (1 - jnp.cos(q[1] - q[0])) ** 2

    system = gm.System(potential, mass=np.array([1.0, 0.7]), params={"ratio": 0.6, "coupling": 0.9})
    return Problem("pendula", system, Point(np.array([1.9, -0.6]), np.array([0.3, 0.8])), 0.1)


def trimer() -> Problem:
    """Three particles of unequal mass: bonds of moderate stiffness as `fast`, a soft attraction besides; the whole
    turns."""
    masses = np.array([1.0, 0.5, 0.8])
    squares = lambda q: jnp.sum(around(q) ** 2, axis=1)
    system = gm.System(
        lambda q: 0.3 * jnp.sum(squares(q) ** 2) + 0.2 * jnp.sum(jnp.cos(squares(q))),
        mass=masses[:, None],
        fast=lambda q: 3.0 * jnp.sum((squares(q) - 1) ** 2),
        symmetries=(gm.Translation(), gm.Rotation((0, 1))),
    )
    q = np.array([[0.0, 0.1], [1.0, 0.0], [0.4, 0.8]])
    v = np.array([[0.3, -0.2], [-0.1, 0.5], [-0.4, 0.1]])
    return Problem("trimer", system, Point(q, masses[:, None] * v), 0.03, quadratic=False)


def harmonic_bonds() -> Problem:
    """Three particles of unequal mass on harmonic springs of no length, a fast part that is quadratic and not diagonal,
    with a soft attraction that is neither; the whole moves and turns freely."""
    masses = np.array([1.0, 0.6, 1.7])
    system = gm.System(
        attraction(masses, softening=0.7), mass=masses[:, None], fast=lambda q: 2.5 * jnp.sum((q[:-1] - q[1:]) ** 2),
        symmetries=(gm.Translation(), gm.Rotation((0, 1))),
    )  # fmt: skip
    q = np.array([[0.5, 0.1], [-0.4, 0.3], [0.1, -0.6]])
    v = np.array([[0.1, 0.6], [-0.5, -0.4], [0.4, -0.1]])
    v = v - masses @ v / masses.sum()  # at rest as a whole: matrix functions of Ω lose digits in proportion to |q|
    return Problem("harmonic-bonds", system, Point(q, masses[:, None] * v), 0.05)


def hinged(lengths: list[float], angles: list[float], rates: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of the ends of rods joined one to the next, by their angles from the downward
    vertical."""
    arms = np.array([[length * np.sin(a), -length * np.cos(a)] for length, a in zip(lengths, angles, strict=True)])
    turns = np.array(
        [[length * w * np.cos(a), length * w * np.sin(a)] for length, a, w in zip(lengths, angles, rates, strict=True)]
    )
    return np.cumsum(arms, axis=0), np.cumsum(turns, axis=0)


def linked() -> Problem:
    """Two rods of unequal length in the plane, a full mass matrix, a potential without symmetry."""
    mass = np.array([[1.0, 0.2, 0.1, 0.0], [0.2, 0.8, 0.0, -0.1], [0.1, 0.0, 0.6, 0.1], [0.0, -0.1, 0.1, 1.3]])

    def potential(q):
        (x, y), (u, v) = q
        return y + 0.7 * v + 0.3 * x * u + 0.2 * u**2 * v + 0.1 * x**4

    system = gm.System(potential, mass=mass, constraint=gm.Distances([(None, 0), (0, 1)], [1.0, 0.8]))
    q, v = hinged([1.0, 0.8], angles=[0.3, 0.6], rates=[0.308, -0.135])
    return Problem("linked", system, Point(q, (mass @ v.ravel()).reshape(q.shape)), 0.06)


def sphere_pair() -> Problem:
    """Two unequal bodies on the unit sphere that attract each other: rotations about every axis are symmetries."""
    masses = np.array([1.0, 0.7])
    symmetries = tuple(gm.Rotation(axis) for axis in np.eye(3))
    system = gm.System(
        lambda q: -1 / (1.6 - jnp.sum(q[0] * q[1])),
        mass=masses[:, None],
        constraint=gm.OnSphere(),
        symmetries=symmetries,
    )
    q = np.array([[0.4, 0.3, 0.85], [0.9, 0.1, -0.4]])
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    v = np.cross([[0.5, -0.7, 0.2], [0.1, 0.8, 0.3]], q)
    return Problem("sphere-pair", system, Point(q, masses[:, None] * v), 0.1)


def bent_molecule() -> Problem:
    """Three atoms of unequal mass on two rigid bonds, the angle between them soft: it moves and turns freely."""
    masses = np.array([1.0, 0.5, 0.8])
    bonds = lambda q, k: jnp.sum((q[:-1] - q[1:]) ** 2, axis=1) - k["lengths"] ** 2
    opening = lambda q, k: jnp.sum((q[2] - q[0]) ** 2)
    system = gm.System(
        lambda q, k: k["stiffness"] * (opening(q, k) - 2.2) ** 2 + 0.3 * jnp.sin(opening(q, k)),
        mass=masses[:, None],
        constraint=bonds,
        symmetries=(gm.Translation(), gm.Rotation((0, 1))),
        params={"lengths": np.array([1.0, 1.2]), "stiffness": 0.5},
    )
    arms, turns = hinged([1.0, 1.2], angles=[1.5, 2.8], rates=[0.4, -0.6])
    place, push = np.array([0.0, 0.1]), np.array([0.3, -0.2])
    q, v = np.array([place, *(arms + place)]), np.array([push, *(turns + push)])
    return Problem("bent-molecule", system, Point(q, masses[:, None] * v), 0.05)


def bonded_on_circle() -> Problem:
    """A particle on a circle joined to another by a harmonic spring, the fast part; a constraint and a stiff force at
    once."""
    masses = np.array([1.0, 0.6])
    system = gm.System(
        lambda q: q[0, 1] + 0.6 * q[1, 1] + 0.3 * q[1, 0] ** 2 * q[0, 0],
        mass=masses[:, None],
        fast=lambda q: 8.0 * jnp.sum((q[1] - q[0]) ** 2),
        constraint=gm.Distances([(None, 0)], 1.0),
    )
    arm, turn = hinged([1.0], angles=[0.4], rates=[0.5])
    q, v = np.array([*arm, [0.5, -1.1]]), np.array([*turn, [-0.2, 0.4]])
    return Problem("bonded-on-circle", system, Point(q, masses[:, None] * v), 0.04)


def graded_field() -> Problem:
    """A charge in the plane, in a field with a gradient and a well without symmetry: no reversal of the motion exists,
    and the energy of a method that is not symplectic drifts."""

    def potential(q):
        x, y = q
        return 0.5 * x**2 + 0.95 * y**2 + 0.4 * x**2 * y - 0.2 * x * y**2 + 0.25 * (x**4 + y**4)

    system = gm.System(potential, magnetic_field=lambda q: 0.4 + 0.6 * q[0] + 0.3 * q[1])
    return Problem("graded-field", system, Point(np.array([0.6, 0.1]), np.array([0.3, -0.2])), 0.2)


def _trap(q):
    """Two charges that repel each other in a well with an axis."""
    apart = 1 / jnp.sqrt(jnp.sum((q[0] - q[1]) ** 2) + 0.3)
    return apart + 0.5 * jnp.sum(q[:, 2] ** 2) + 0.2 * jnp.sum((q[:, 0] ** 2 + q[:, 1] ** 2) ** 2)


def _two_charges(name: str, field) -> Problem:
    system = gm.System(
        _trap,
        mass=np.array([[1.0], [0.6]]),
        magnetic_field=field,
        charge=np.array([1.0, -1.5]),
        symmetries=gm.Rotation(axis=(0, 0, 1)),
    )
    q = np.array([[0.6, 0.2, -0.3], [-0.5, 0.1, 0.4]])
    p = np.array([[0.3, -0.5, 0.4], [0.2, 0.6, -0.3]])
    return Problem(name, system, Point(q, p), 0.1)


def mirror_field() -> Problem:
    """Two unequal charges in a field that grows along its axis; div B = 0."""
    field = lambda q: jnp.stack([-0.4 * q[:, 0] * q[:, 2], -0.4 * q[:, 1] * q[:, 2], 1 + 0.4 * q[:, 2] ** 2], axis=1)
    return _two_charges("mirror-field", field)


def uniform_field() -> Problem:
    """Two unequal charges in a uniform field; its axis is that of the well."""
    return _two_charges("uniform-field", np.array([0.0, 0.0, 1.1]))


def top_in_field() -> Problem:
    """An asymmetric top on the group of rotations, in a nonlinear potential of the vertical as the body sees it: space
    may be turned about the vertical, nothing else."""

    def potential(r):
        x, y, z = r[2]
        return z + 0.3 * x**2 + 0.2 * y * z + 0.1 * x + 0.2 * z**3

    body = gm.rigid.RigidBody((0.6, 0.8, 1.0), potential=potential, symmetries=gm.rigid.SpatialRotation((0, 0, 1)))
    start = expm(0.7 * np.cross(np.eye(3), [1, 2, 3]) / 14**0.5)  # scipy.spatial would take every process 0.2 s
    return Problem("top-in-field", body.system(), Point(start, np.array([0.9, 0.4, -0.7])), 0.04)


PROBLEMS = (
    coupled_quartic(),
    three_bodies(),
    springs(),
    pendula(),
    trimer(),
    harmonic_bonds(),
    linked(),
    sphere_pair(),
    bent_molecule(),
    bonded_on_circle(),
    graded_field(),
    mirror_field(),
    uniform_field(),
    top_in_field(),
)


@functools.cache
def fitting(method: gm.methods.Method) -> list[Problem]:
    """The problems that a method can move."""

    def fits(problem: Problem) -> bool:
        try:
            method.check(problem.system)
        except gm.InputError:
            return False
        wants = "quadratic fast" in method.traits.needs or (
            "IMEX" in method.name and problem.system.constraint is not None
        )
        return problem.quadratic or not wants

    return [problem for problem in PROBLEMS if fits(problem)]


@functools.cache
def cheapest(method: gm.methods.Method) -> Problem:
    """The problem that fits and compiles fastest, for tests of what depends on no problem: engines, chunks, members."""
    order = ("bonded-on-circle", "pendula", "springs", "top-in-field")
    return min((p for p in fitting(method) if p.name in order), key=lambda p: order.index(p.name))


REGISTERED = gm.methods.all()  # made once: a hundred calls would make six thousand methods


@functools.cache
def first_of_its_class(method: gm.methods.Method) -> bool:
    return next(m.name for m in REGISTERED if type(m) is type(method)) == method.name


def in_magnetic_fields(method: gm.methods.Method) -> bool:
    return any(is_magnetic(p) for p in fitting(method))


def is_magnetic(problem: Problem) -> bool:
    return getattr(problem.system, "magnetic_field", None) is not None


@functools.cache
def chosen(method: gm.methods.Method) -> list[Problem]:
    """The problems of the quick tests. A pair that is not chosen is in the slow tests, which take all.

    Free methods meet one free problem on which every property can fail: three bodies (translations, a rotation, no
    part that is linear), harmonic bonds for methods that need a fast part, or the top for those on groups. Constrained
    methods meet one constrained problem, and so does one variant of each class that can move both: its other variants
    differ in coefficients only, which the free problem measures. Constrained problems are taken by turns, since each
    has another solver; methods
    that move nothing else get one with rotations, if they can. Full mass matrices, parameters and nonlinear fast parts
    concern a method little, and are met by those of `ONCE`. Methods for magnetic fields meet all problems with one.
    """
    free = [p for p in fitting(method) if p.system.constraint is None]
    constrained = [p for p in fitting(method) if p.system.constraint is not None]
    turning = [p for p in constrained if p.system.symmetries] or constrained
    by_need = {"fast": "harmonic-bonds", "lie group": "top-in-field"}
    wanted = next((by_need[need] for need in method.traits.needs if need in by_need), "three-bodies")
    found = [p for p in free if p.name == wanted]
    if not free:
        found = [turning[CONSTRAINED.index(method.name) % len(turning)]]
    elif constrained and first_of_its_class(method):
        found.append(constrained[CONSTRAINED.index(method.name) % len(constrained)])
    return found + [p for p in fitting(method) if is_magnetic(p) or (method.name, p.name) in ONCE]


CONSTRAINED = [m.name for m in REGISTERED if any(p.system.constraint is not None for p in fitting(m))]
ONCE = {
    (gm.Verlet().name, "coupled-quartic"),
    (gm.Verlet().name, "pendula"),
    (gm.IMEX().name, "springs"),
    (gm.RESPA().name, "trimer"),
    (gm.Gauss().name, "coupled-quartic"),  # implicit: the mass enters its equations
}
