"""Elastic materials by their energy W(F) per unit of the undeformed volume; F is the deformation gradient.

A material is written for one element, F[i][j] = ∂x_i/∂X_j being numbers or arrays with an entry for each element; its
stress and all further derivatives are automatic. W of the undeformed body, F = 1, is 0. In the plane all of them are
in plane strain.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.checks import as_array, function, shown

Gradient = list[list[Any]]  # F[i][j]


class Material(Module):
    """The base of all materials. A subclass has `energy`; its numbers are fields, each a number or an array with an
    entry for each element, and may be traced."""

    refuses_inversion: ClassVar[bool] = True  # whether W is made NaN where det F ≤ 0

    @abc.abstractmethod
    def energy(self, F: Gradient) -> Any:
        """W(F)."""


class SeparableMaterial(Material):
    """W = f(det F) + s (tr FᵀF − d). Along a straight line such an energy needs the coefficients of det F only, see
    lines.py."""

    @abc.abstractmethod
    def energy_of_volume(self, J: Any) -> Any:
        """f(J)."""

    @property
    @abc.abstractmethod
    def square_factor(self) -> Any:
        """s."""

    def energy(self, F: Gradient) -> Any:
        return self.energy_of_volume(determinant(F)) + self.square_factor * (squared(F) - float(len(F)))


class NeoHookean(SeparableMaterial):
    """W = λ/2 (log J)² − μ log J + μ/2 (tr FᵀF − d), with J = det F: compressible, infinite energy at J = 0.

    lame:   λ, Lamé's first constant; a number, or one for each element.
    shear:  μ, the shear modulus; likewise.

    Reference: Gonzalez, Schmidt, Ortiz (2010), (69), which lacks −d μ/2: the body at rest has the energy 0 here.
    """

    refuses_inversion: ClassVar[bool] = False  # the logarithm does it
    lame: Any
    shear: Any

    @checked_keywords
    def __init__(self, lame: Any, shear: Any):
        self.lame, self.shear = checked_moduli(lame, shear, "NeoHookean")

    def energy_of_volume(self, J: Any) -> Any:
        log = jnp.log(J)
        return log * (0.5 * self.lame * log - self.shear)

    @property
    def square_factor(self) -> Any:
        return 0.5 * self.shear


class StVenantKirchhoff(Material):
    """W = λ/2 (tr E)² + μ tr E², with the strain E = ½(FᵀF − 1): linear in E, for large rotations and small strains.
    Under strong compression it softens.

    lame:   λ, Lamé's first constant; a number, or one for each element.
    shear:  μ, the shear modulus; likewise.
    """

    lame: Any
    shear: Any

    @checked_keywords
    def __init__(self, lame: Any, shear: Any):
        self.lame, self.shear = checked_moduli(lame, shear, "StVenantKirchhoff")

    def energy(self, F: Gradient) -> Any:
        d = range(len(F))
        return isotropic([[0.5 * (_dot(F, i, j) - float(i == j)) for j in d] for i in d], self.lame, self.shear)


class LinearElastic(Material):
    """W = λ/2 (tr ε)² + μ tr ε², with ε = ½(F + Fᵀ) − 1: quadratic, for small displacements; a rotation counts as
    strain. Inverted elements are not detected.

    lame:   λ, Lamé's first constant; a number, or one for each element.
    shear:  μ, the shear modulus; likewise.
    """

    refuses_inversion: ClassVar[bool] = False
    lame: Any
    shear: Any

    @checked_keywords
    def __init__(self, lame: Any, shear: Any):
        self.lame, self.shear = checked_moduli(lame, shear, "LinearElastic")

    def energy(self, F: Gradient) -> Any:
        d = range(len(F))
        return isotropic([[0.5 * (F[i][j] + F[j][i]) - float(i == j) for j in d] for i in d], self.lame, self.shear)


class StoredEnergy(Material):
    """A material by a function W(F); gm.fem.solid(mesh, lambda F: …) makes one.

    function: W of F[i][j], written with jax.numpy element by element.
    """

    function: Callable[[Gradient], Any] = eqx.field(static=True)

    def __init__(self, function: Callable[[Gradient], Any]):
        self.function = function

    def energy(self, F: Gradient) -> Any:
        return self.function(F)


def determinant(F: Gradient) -> Any:
    """det F.

    F: the deformation gradient, F[i][j] a number or an array for all elements.
    """
    if len(F) == 2:
        return F[0][0] * F[1][1] - F[0][1] * F[1][0]
    minors = [F[1][(k + 1) % 3] * F[2][(k + 2) % 3] - F[1][(k + 2) % 3] * F[2][(k + 1) % 3] for k in range(3)]
    return F[0][0] * minors[0] + F[0][1] * minors[1] + F[0][2] * minors[2]


def squared(F: Gradient) -> Any:
    """tr FᵀF."""
    total = F[0][0] * F[0][0]
    for x in [x for row in F for x in row][1:]:
        total = total + x * x
    return total


def isotropic(strain: Gradient, lame: Any, shear: Any) -> Any:
    """λ/2 (tr E)² + μ tr E² of a symmetric strain."""
    trace = strain[0][0]
    for k in range(1, len(strain)):
        trace = trace + strain[k][k]
    return 0.5 * lame * trace * trace + shear * squared(strain)


def _dot(F: Gradient, i: int, j: int) -> Any:
    """Entry (i, j) of FᵀF."""
    total = F[0][i] * F[0][j]
    for row in F[1:]:
        total = total + row[i] * row[j]
    return total


def lame_constants(young: float, poisson: float) -> tuple[float, float]:
    """Lamé's constants (λ, μ), as NeoHookean(*gm.fem.lame_constants(young, poisson)) takes them.

    young:   Young's modulus.
    poisson: Poisson's ratio, below ½.
    """
    numbers = [as_array(x, name, "lame_constants") for x, name in ((young, "young"), (poisson, "poisson"))]
    if any(isinstance(x, Tracer) for x in numbers):
        pass
    elif not np.all(numbers[0] > 0):
        raise InputError(f"lame_constants(young={shown(young)}): Young's modulus must be positive.")
    elif not np.all((numbers[1] > -1) & (numbers[1] < 0.5)):
        raise InputError(
            f"lame_constants(poisson={shown(poisson)}): Poisson's ratio lies between −1 and ½, both excluded; at ½ the "
            "material is incompressible and λ infinite."
        )
    return young * poisson / ((1 + poisson) * (1 - 2 * poisson)), young / (2 * (1 + poisson))


def checked_moduli(lame: Any, shear: Any, callee: str) -> tuple[Any, Any]:
    return _checked(lame, "lame", callee), _checked(shear, "shear", callee, positive=True)


def _checked(x: Any, name: str, callee: str, positive: bool = False) -> Array:
    array = as_array(x, name, callee)
    if array.ndim > 1 or (positive and not isinstance(array, Tracer) and not np.all(array > 0)):
        must = "a positive number" if positive else "a number"
        raise InputError(f"{callee}({name}={shown(x)}): {name} must be {must}, or one for each element.")
    return jnp.asarray(array)


def checked_material(material: Any, callee: str, dim: int) -> Material:
    """The material, whose energy is one number for each element; dim: of space."""
    if not isinstance(material, Material) and callable(material) and not isinstance(material, type):
        material = StoredEnergy(function(material, "material", callee, of="(F)"))
        _check_energy(material, callee, dim)
    if isinstance(material, Material):
        return material
    raise InputError(
        f"{callee}(material=...) must be a material, such as gm.fem.NeoHookean(lame, shear), or a function W(F) of the "
        f"deformation gradient, not {shown(material)}."
    )


def _check_energy(material: Material, callee: str, dim: int) -> None:
    """That W(F), evaluated for two elements at once, is a number for each."""
    F = [[jax.ShapeDtypeStruct((2,), float)] * dim for _ in range(dim)]
    try:
        shape = np.shape(jax.eval_shape(material.energy, F))
    except Exception as error:  # whatever the user's function raises
        raise InputError(
            f"{callee}(material=W): W(F) raised {type(error).__name__} ({str(error).splitlines()[0]}). F[i][j] is an "
            "array with an entry for each element; write W with jax.numpy, and jnp.where in place of if."
        ) from error
    if shape not in ((), (2,)):
        raise InputError(
            f"{callee}(material=W): W(F) must be one number for each element; for two elements it has the shape "
            f"{shape}. F[i][j] is an array with an entry for each element."
        )
