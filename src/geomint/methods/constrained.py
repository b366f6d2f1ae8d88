"""What methods on the manifold g(q) = 0 share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..manifold import (
    CHOICES,
    ConstraintSolver,
    Dependence,
    NewtonSolver,
    dependence,
    find_solver,
    loses_rank,
    vanishing,
)
from ..numerics.compensated import value
from ..numerics.linalg.discovery import over_members
from ..numerics.linalg.structure import DENSE_LIMIT, fallback
from ..system.checks import bounded, instance, number, one_of
from ..system.mechanics import Mechanics
from .base import State, setting
from .protocols import CanFail, FindsStructure, HasScalarForm, Rescuable

NOT_SOLVED = 1  # status: a position equation was not solved
# Smallest singular value of G below which a position counts as singular; a straight chain of 10,000 links has 1e-4.
SINGULAR = 3e-5
A_SOLVER = bounded(instance, kinds=(ConstraintSolver, type(None)), must="a constraint solver or None")
C = TypeVar("C", bound="Constrained")


class Constrained(FindsStructure, CanFail, Rescuable, HasScalarForm):
    """What methods on a manifold share: the constraint solver, found before the run, and its failures.

    solver:      "auto" finds the structure of G M⁻¹Gᵀ, and closed forms for gm.OnSphere and gm.Orthogonal; "newton"
                 finds the structure and uses no closed form; "blocks", "banded", "dense", "matrix-free" demand one;
                 "least-squares" admits dependent constraints; "sweep" is the classical iteration of SHAKE
    relaxation:  of the sweep; 1 is Gauss–Seidel, values up to 2 over-relax
    """

    failures: ClassVar[Mapping[int, str]] = {NOT_SOLVED: "no point with g(q) = 0 was found for the next position"}
    solver: str = setting(one_of(*CHOICES), "auto", kw_only=True)
    relaxation: float = setting(bounded(number, above=0.0, below=2.0), 1.0, static=False, kw_only=True)
    constraint_solver: ConstraintSolver | None = eqx.field(
        default=None, kw_only=True, metadata={"found": True, "check": A_SOLVER}
    )

    def solver_for(self, mech: Mechanics, q: Any) -> ConstraintSolver:
        """The solver found before the run; without one, a dense solver up to DENSE_LIMIT constraints, matrix-free
        beyond."""
        return self.constraint_solver or NewtonSolver(fallback(jax.eval_shape(mech.constraint, value(q)).size))

    def find_solver(self, choice: str, starts: Sequence[tuple[Any, Any]]) -> ConstraintSolver:
        return find_solver(choice, self.relaxation, starts)

    def tangent(self, mech: Mechanics, q: Any, p: Any) -> Any:
        """p without its part that would leave the manifold."""
        q = value(q)
        return p - self.solver_for(mech, q).normal_part(mech, q, value(p))

    def projected(self, mech: Mechanics, q: Any, p: Any) -> tuple[Any, Array]:
        """The tangent p, and the work νᵀ∂g/∂t that a moving constraint does by the projection."""
        if not mech.moving:
            return self.tangent(mech, q, p), jnp.zeros((), value(q).dtype)
        q = value(q)
        impulse = self.solver_for(mech, q).projection_impulse(mech, q, value(p))
        return p - mech.constraint_force(q, impulse), jnp.sum(impulse * mech.constraint_time_rate(q))

    def state_with_multipliers(self, mech: Mechanics, q: Any, p: Any) -> State:
        """The state with the multipliers that belong to it."""
        return State(q, p, extras={"multipliers": self.solver_for(mech, q).multipliers(mech, value(q), value(p))})

    # --- before and after a run -------------------------------------------------------------------------------------
    def prepare(self: C, starts: Sequence[tuple[Any, Any]]) -> C:
        if self.constraint_solver is not None or starts[0][0].constraint is None:
            return self
        return dataclasses.replace(self, constraint_solver=self.find_solver(self.solver, starts))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        """Members that start where constraints depend on each other, which the solver found does not cover."""
        solver = self.constraint_solver
        if not isinstance(solver, NewtonSolver) or solver.accepts_dependent_constraints or solver.plan.n > DENSE_LIMIT:
            return np.zeros(len(q), bool)
        return np.asarray(over_members(loses_rank, own_params, system, q))

    def for_scalar_code(self: C, many: bool) -> C:
        if self.constraint_solver is None or not many:
            return self
        return dataclasses.replace(self, constraint_solver=self.constraint_solver.for_many_members())

    def rescued(self: C, status: int) -> C | None:
        solver = self.constraint_solver
        stronger = None if solver is None or status not in (0, NOT_SOLVED) else solver.rescued()
        return None if stronger is None else dataclasses.replace(self, constraint_solver=stronger)

    @property
    def linear_solver(self) -> str | None:
        return None if self.constraint_solver is None else self.constraint_solver.plan.description

    def rescue_warning(self, system: Any, q: Any) -> str:
        found = self._dependence(system, q)
        if found.smallest > SINGULAR:
            return (
                "Newton's method did not converge with the sparsity found at the start; "
                "such steps are solved without it."
            )
        return f"{found.named} depend on each other ({found.described}): a singular position, passed by least squares."

    def explain(self, status: int, mech: Mechanics, q: Any, dt: float) -> str:
        if mech.system.constraint is None:  # the stages of an implicit method
            return f": its equations were not solved. The step is too long; try dt = {dt / 4:g}"
        degenerate = vanishing(mech.system, np.asarray(q))
        if degenerate:
            return f": {degenerate}"
        found = self._dependence(mech.system, q)
        if found.smallest < SINGULAR:
            return (
                f": {found.named} depend on each other there ({found.described}), so that they do not determine "
                "the motion: a "
                "singular position. Remove a constraint that the others imply, or start away from such a position"
            )
        solver = NewtonSolver if self.constraint_solver is None else self.constraint_solver
        return f": {solver.failure}. The step is too long for the curvature of the constraint; try dt = {dt / 4:g}"

    def _dependence(self, system: Any, q: Any) -> Dependence:
        q = np.asarray(q)
        m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
        return dependence(system, q, fallback(m) if self.constraint_solver is None else self.constraint_solver.plan)
