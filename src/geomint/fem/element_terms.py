"""What one element contributes: its energy w W(F) and the forces on its nodes, with all derivatives.

With D_ia = x_ai − x_0i, the components i of the edges to the nodes a = 1 … d of a simplex, and the gradients G_aj of
their shape functions,

    F_ij = Σ_a D_ia G_aj,      ∂(w W)/∂x_ai = w Σ_j P_ij G_aj,      P = ∂W/∂F,

and the node 0 has minus the sum of the others. Functions of one element are written on single components, so that the
same function serves arrays (element_sums.py), machine code (element_code.py) and GPU kernels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from ..errors import InputError
from .materials import Material, SeparableMaterial, determinant

Components = list[list[Any]]


@dataclasses.dataclass(frozen=True)
class ElementTerm:
    """The energy of an element, without its numbers.

    kind:  the structure of the material; its numbers are operands.
    dim:   of space, and of the elements.
    pattern: that the elements repeat, see element_groups.py.
    """

    kind: Any
    dim: int
    pattern: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def of(cls, material: Material, dim: int) -> tuple[ElementTerm, list[Any]]:
        """The term, and the numbers of the material."""
        numbers, kind = jax.tree.flatten(material)
        return cls(kind, dim), numbers

    @property
    def parameters(self) -> int:
        """How many numbers the material has."""
        return self.kind.num_leaves

    def material(self, numbers: Sequence[Any]) -> Any:
        """The material with these numbers."""
        return jax.tree.unflatten(self.kind, numbers)

    @property
    def separable(self) -> bool:
        """Whether W is a function of det F plus a multiple of tr FᵀF."""
        return isinstance(self.material([0.0] * self.parameters), SeparableMaterial)

    def density(self, F: Components, numbers: Sequence[Any]) -> Any:
        """W(F), NaN in an inverted element."""
        material = self.material(numbers)
        energy = material.energy(F)
        if jnp.shape(energy) != jnp.shape(F[0][0]):
            raise InputError(
                f"{type(material).__name__}: the energy W(F) must be a number for each element, an array of shape "
                f"{jnp.shape(F[0][0])}; it has shape {jnp.shape(energy)}."
            )
        if material.refuses_inversion:
            energy = energy * jnp.where(determinant(F) > 0, 1.0, jnp.nan)  # a factor, so that forces are NaN as well
        return energy

    def energy(self, D: Components, G: Components, weight: Any, numbers: Sequence[Any]) -> Any:
        """w W."""
        return weight * self.density(gradient(D, G), numbers)

    def forces(self, D: Components, along: Sequence[Components], G: Components, weight: Any, numbers: Any) -> Any:
        """The gradient of w W by the nodes 1 … d, [i][a], or its derivative along changes of D."""
        if along:
            *before, last = along
            return jax.jvp(lambda x: self.forces(x, before, G, weight, numbers), (D,), (last,))[1]
        F = gradient(D, G)
        energy, pull = jax.vjp(lambda x: self.density(x, numbers), F)
        (P,) = pull(jnp.ones_like(energy))
        d = range(self.dim)
        return [[weight * _sum([P[i][j] * G[a][j] for j in d]) for a in d] for i in d]


def gradient(D: Components, G: Components) -> Components:
    """F of the differences D."""
    d = range(len(D))
    return [[_sum([D[i][a] * G[a][j] for a in d]) for j in d] for i in d]


def _sum(terms: Sequence[Any]) -> Any:
    return functools.reduce(lambda x, y: x + y, terms)


def rows(x: Sequence[Any], count: int, d: int) -> list[Components]:
    """`count` matrices d × d from their entries, row by row."""
    return [[list(x[(k * d + i) * d : (k * d + i + 1) * d]) for i in range(d)] for k in range(count)]


@functools.lru_cache(256)
def element_program(term: ElementTerm, order: int) -> Any:
    """The jaxpr of one element, on single numbers: D and the directions, G, w, the numbers of the material, to the
    energy or to the forces [i][a]."""
    d, vectors = term.dim, max(order, 1)

    def one(*x: Any) -> Any:
        *differences, G = rows(x, vectors + 1, d)
        weight, *numbers = x[(vectors + 1) * d * d :]
        if order == 0:
            return [term.energy(differences[0], G, weight, numbers)]
        return jax.tree.leaves(term.forces(differences[0], differences[1:], G, weight, numbers))

    return scalar_program(one, (vectors + 1) * d * d + 1 + term.parameters)


def scalar_program(function: Callable[..., Any], count: int) -> Any:
    """The jaxpr of a function of `count` numbers, without what its results do not need."""
    closed = jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct((), jnp.result_type(float))] * count)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return closed.replace(jaxpr=jaxpr)
