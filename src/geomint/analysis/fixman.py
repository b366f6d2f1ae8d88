"""Fixman's potential: what a constrained system lacks of the distribution of stiff springs.

Springs ½ω²|g(q)|² at the temperature kT have, for ω → ∞, positions on the manifold g(q) = 0 with the density

    exp(−V/kT) det(G Gᵀ)^(−½) dσ,

dσ the area of the manifold. Constrained motion, whose momenta lie in the cotangent space, has

    exp(−V/kT) det(G M⁻¹Gᵀ)^½ det(G Gᵀ)^(−½) dσ.

The potential U_F = ½ kT log det(G M⁻¹Gᵀ), added to V, makes both the same.

Reference: Fixman, Proc. Natl. Acad. Sci. 71 (1974) 3050; Frenkel, Smit, Understanding Molecular Simulation, section
11.2.2.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.linalg.structure import DENSE_LIMIT
from ..numerics.module import Module
from ..system.calls import call_function
from ..system.checks import number
from ..system.inertia import inertia
from ..system.system import System, checked_system


class FixmanPotential(Module):
    """½ kT log det(G M⁻¹Gᵀ), plus the potential that the system had before."""

    constraint: Any
    mass: Any
    temperature: Array
    before: Any

    def __call__(self, q: Array, params: Any = None) -> Array:
        correction = self.temperature * half_log_determinant(self.constraint, self.mass, q, params)
        if self.before is None:
            return correction
        return correction + call_function("potential", self.before, {"q": q}, params)


def half_log_determinant(constraint: Any, mass: Any, q: Array, params: Any) -> Array:
    """½ log det(G M⁻¹Gᵀ), by the Cholesky factor."""
    jacobian = jax.jacrev(lambda x: jnp.atleast_1d(call_function("constraint", constraint, {"q": x}, params)))(q)
    if len(jacobian) > DENSE_LIMIT:
        raise InputError(
            f"fixman: {len(jacobian)} constraints; the determinant of G M⁻¹Gᵀ is computed up to {DENSE_LIMIT}."
        )
    velocity = jax.vmap(inertia(mass, q.shape).velocity)(jacobian)
    gram = jnp.tensordot(jacobian, velocity, axes=[list(range(1, jacobian.ndim))] * 2)
    return jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(gram))))


def fixman(system: System, temperature: float) -> System:
    """The constrained system with Fixman's potential ½ kT log det(G M⁻¹Gᵀ) added to its potential, so that at the
    temperature kT its positions are distributed as those of stiff springs in place of the constraint. The energy of
    runs includes it. Where constraints depend on each other the determinant vanishes, and the run stops: NaN.

    system:      with a constraint
    temperature: kT, an energy in the unit of the potential; that of gm.GeometricLangevin
    """
    checked_system(system, System, callee="fixman")
    if system.constraint is None:
        raise InputError("fixman(system=...): the system has no constraint; Fixman's potential corrects constraints.")
    if system.takes("constraint", "t") or system.takes("potential", "t"):
        raise InputError("fixman(system=...): constraint and potential must not depend on t: no distribution is kept.")
    if "gradient" in system.overrides or system.auxiliary is not None:
        raise InputError(
            "fixman(system=...): the potential has a gradient by hand (overrides) or a neighbour list (auxiliary); "
            "state this part as fast=."
        )
    energy = jnp.asarray(number(temperature, "temperature", "fixman", least=0.0), float)
    potential = FixmanPotential(system.constraint, system.mass, energy, system.potential)
    return dataclasses.replace(system, potential=potential, origin=None)


__all__ = ["FixmanPotential", "fixman"]
