"""Rigid molecules of three atoms: the position equation in closed form (SETTLE).

A triangle is three points of a plane, d₀ = 0, d₁, d₂. Any three points X_i in space are its image under one affine map,
X_i = X₀ + d_ix P + d_iy Q. A rigid triangle has orthonormal P and Q: at the start U and W, and N = U × W. The
constraint forces at the start lie in its plane, so that they leave the components of P and Q along N unchanged, and
have no torque about N. Therefore the rigid triangle (u, w) that belongs to the free one, (P, Q), has, in that frame,

    u_N = P_N,   w_N = Q_N,   Σ m_i b_i × r_i = Σ m_i b_i × X_i  about N,    b_i = d_i − centre of mass:

the tilt is known, and one angle about N is left, the root of a sin θ + b cos θ = L. Masses and triangle are any.

The multipliers follow from the moments of the displacement, T = Σ m_i b_i ⊗ (X_i − r_i) = Σ_pairs 2hμ d dᵀ with d the
sides: a vector n across another side selects one μ. G M⁻¹Gᵀ is the same matrix for all positions of a triangle.

Reference: Miyamoto, Kollman, J. Comput. Chem. 13 (1992) 952, for isosceles triangles.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.constraints import RigidMolecules
from ..system.mass import mass_is_matrix
from ..system.mechanics import Mechanics
from .position import Placed
from .solver import ConstraintSolver

DESCRIPTION = "closed form for rigid molecules of three atoms (SETTLE)"
SIDES = ((0, 1), (0, 2), (1, 2))  # in this order


def fits_triangle(system: Any, shape: tuple[int, ...]) -> bool:
    """Whether the constraint holds all three distances of molecules of three atoms, each atom with one mass."""
    constraint, mass = system.constraint, np.shape(system.mass)
    if mass_is_matrix(system.mass, shape) or not isinstance(constraint, RigidMolecules):
        return False
    sides = {tuple(sorted(pair)) for pair in constraint.pairs}
    return shape[1:] == (3, 3) and len(constraint.pairs) == 3 and sides == set(SIDES) and (not mass or mass[-1] == 1)


class Triangle(NamedTuple):
    """The shape of the molecules in its own plane, the first atom at the origin, the second on the x axis."""

    x1: Array  # of the second atom
    x2: Array  # of the third atom
    y2: Array
    sxx: Array  # Σ m b bᵀ about the centre of mass
    sxy: Array
    syy: Array
    order: tuple[int, ...]  # the place of each of SIDES among the pairs of the constraint
    gram: Array  # (3, 3) or (molecules, 3, 3): the inverse of G M⁻¹Gᵀ, in the order of SIDES

    @classmethod
    def of(cls, mech: Any) -> Triangle:
        pairs, lengths = mech.system.constraint.pairs, mech.system.constraint.lengths
        order = tuple([tuple(sorted(pair)) for pair in pairs].index(side) for side in SIDES)
        a, b, c = (lengths[k] for k in order)
        x2 = (a**2 + b**2 - c**2) / (2 * a)
        y2 = jnp.sqrt(b**2 - x2**2)
        m0, m1, m2 = _masses(mech)
        share1, share2 = m1 / (m0 + m1 + m2), m2 / (m0 + m1 + m2)
        centre = share1 * a + share2 * x2
        sxx = m1 * a**2 + m2 * x2**2 - (m0 + m1 + m2) * centre**2
        sxy = m2 * x2 * y2 - m2 * y2 * centre
        syy = m2 * y2**2 * (1 - share2)
        return cls(a, x2, y2, sxx, sxy, syy, order, _inverse_gram(a, x2, y2, m0, m1, m2))

    def image(self, q: Array) -> tuple[list[Array], list[Array]]:
        """P and Q of three points, by components."""
        first, second = q[:, 1] - q[:, 0], q[:, 2] - q[:, 0]
        p = [first[:, k] / self.x1 for k in range(3)]
        return p, [(second[:, k] - self.x2 * p[k]) / self.y2 for k in range(3)]

    def sides(self, x: Array) -> list[Array]:
        """Entries for the three sides of every molecule, of an array with an entry for each constraint."""
        rows = x.reshape(-1, 3)
        return [rows[:, k] for k in self.order]

    def constraints(self, sides: list[Array]) -> Array:
        """The converse of `sides`."""
        return jnp.stack([sides[self.order.index(k)] for k in range(3)], axis=-1).reshape(-1)


def _masses(mech: Any) -> list[Array]:
    """Of the three atoms, each a number or (molecules,)."""
    mass = jnp.asarray(mech.system.mass)
    mass = mass if mass.ndim > 1 else jnp.broadcast_to(mass, (3, 1))
    mass = mass if mass.shape[-2] == 3 else jnp.broadcast_to(mass, (*mass.shape[:-2], 3, 1))
    mass = mass[0] if mass.ndim == 3 and len(mass) == 1 else mass
    return [mass[..., i, 0] for i in range(3)]


def _inverse_gram(x1: Array, x2: Array, y2: Array, m0: Array, m1: Array, m2: Array) -> Array:
    """(G M⁻¹Gᵀ)⁻¹ by cofactors; G has the rows 2(x_i − x_j) of the pairs (0, 1), (0, 2), (1, 2)."""
    first, second, third = x1 * x1, x2 * x2 + y2 * y2, (x2 - x1) ** 2 + y2 * y2
    a, b, c = 4 * first * (1 / m0 + 1 / m1), 4 * second * (1 / m0 + 1 / m2), 4 * third * (1 / m1 + 1 / m2)
    # Sides that meet in an atom.
    ab, ac, bc = 4 * x1 * x2 / m0, 4 * (first - x1 * x2) / m1, 4 * (second - x1 * x2) / m2
    adjugate = [
        [b * c - bc * bc, ac * bc - ab * c, ab * bc - ac * b],
        [ac * bc - ab * c, a * c - ac * ac, ab * ac - a * bc],
        [ab * bc - ac * b, ab * ac - a * bc, a * b - ab * ab],
    ]
    determinant = a * adjugate[0][0] + ab * adjugate[0][1] + ac * adjugate[0][2]
    return jnp.stack([jnp.stack(row, axis=-1) for row in adjugate], axis=-2) / determinant[..., None, None]


def _dot(a: list[Array], b: list[Array]) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _frame(triangle: Triangle, q: Array) -> tuple[list[Array], list[Array], list[Array]]:
    """U, W and N. One step of Newton and Schulz makes U and W orthonormal: otherwise the rounding errors of the steps
    would add up."""
    u, w = triangle.image(q)
    uu, uw, ww = 1.5 - 0.5 * _dot(u, u), 0.5 * _dot(u, w), 1.5 - 0.5 * _dot(w, w)
    u, w = [uu * x - uw * y for x, y in zip(u, w, strict=True)], [ww * y - uw * x for x, y in zip(u, w, strict=True)]
    return u, w, [u[k - 2] * w[k - 1] - u[k - 1] * w[k - 2] for k in range(3)]


def on_triangle(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """The rigid molecules that belong to the free positions of their atoms, in the notation of this module."""
    t = Triangle.of(mech)
    u, w, normal = _frame(t, q)
    p, r = t.image(free)
    pu, pw, un, ru, rw, wn = (_dot(x, y) for x in (p, r) for y in (u, w, normal))
    # One triangle with this tilt: u₀ = (c, 0), w₀ = (w₀x, w₀y).
    squared, height = 1 - un * un, 1 - un * un - wn * wn
    c = jnp.sqrt(squared)
    w0x, w0y = -un * wn / c, jnp.sqrt(height) / c
    # Its rotation by θ has the angular momentum of the free one: a sin θ + b cos θ = L.
    a = t.sxx * c + t.sxy * w0x + t.syy * w0y
    b = t.sxy * w0y - t.sxy * c - t.syy * w0x
    angular = t.sxx * pw + t.sxy * (rw - pu) - t.syy * ru
    size = a * a + b * b
    rest = size - angular * angular
    root = jnp.sqrt(rest)
    sine, cosine = (a * angular - b * root) / size, (b * angular + a * root) / size
    # What the constraint took from the free triangle, and its moments.
    du, dw = pu - cosine * c, pw - sine * c
    eu, ew = ru - (cosine * w0x - sine * w0y), rw - (sine * w0x + cosine * w0y)
    txx, txy, tyy = t.sxx * du + t.sxy * eu, t.sxx * dw + t.sxy * ew, t.sxy * dw + t.syy * ew
    across = 1 / (t.x1 * t.y2 * t.y2)
    first = (t.y2 * (t.y2 * txx - (2 * t.x2 - t.x1) * txy) + t.x2 * (t.x2 - t.x1) * tyy) * (across / t.x1)
    second = (t.y2 * txy + (t.x1 - t.x2) * tyy) * across
    third = (t.x2 * tyy - t.y2 * txy) * across
    impulse = t.constraints([first, second, third]) * (0.5 / h)
    solved = jnp.all((height > 0) & (rest > 0))
    return Placed(impulse, mech.constraint_pull(q)(impulse), solved, jnp.zeros((), int))


class TriangleSolver(ConstraintSolver):
    """SETTLE for molecules of three atoms."""

    failure: ClassVar[str] = "a molecule turned too far in one step"

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        return on_triangle(mech, q, q + mech.displacement(p, h), h)

    def gram_solve(self, mech: Mechanics, q: Array, right: Array, noise: Array | float = 0.0) -> Array:
        t = Triangle.of(mech)
        r = t.sides(right)
        return t.constraints([_dot([t.gram[..., i, k] for k in range(3)], r) for i in range(3)])
