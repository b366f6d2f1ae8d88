"""Which constraint solver a system gets, found out near its starts before a run."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from ..errors import outside
from ..numerics.cache import BoundedCache
from ..numerics.linalg import KINDS
from ..numerics.linalg.discovery import concrete, plan_for, start_key
from ..numerics.linalg.structure import Plan, dense_plan, fallback, least_squares_plan
from ..system.mechanics import Mechanics
from . import rotation, sphere, triangle
from .dependence import DEPENDENT, Dependence, dependence
from .gram import gram_product
from .newton import NewtonSolver
from .rank_deficient import RankDeficientSolver
from .scales import constrained_coordinates
from .solver import ConstraintSolver
from .sweep import SweepSolver

TINY = 6  # constraints up to which a dense matrix is written out; beyond, a band pays
CHOICES = (*KINDS, "sweep", "newton")


class _Found(NamedTuple):
    closed_form: type[ConstraintSolver] | None
    plan: Plan
    dependence: Dependence | None
    constrained: tuple[int, ...] | None


_found: BoundedCache[_Found] = BoundedCache(64)


def find_solver(choice: str, relaxation: Any, starts: Sequence[tuple[Any, Any]]) -> ConstraintSolver:
    """The solver of a choice among `CHOICES` for pairs (system, q): one, or a sample of an ensemble. Constraints that
    depend on each other there are warned of."""
    key = (choice, *(start_key(system, q) for system, q in starts))
    found = _found.get_or_make(key, lambda: _find(choice, starts))
    if found.dependence is not None:
        named, described = found.dependence.named, found.dependence.described
        used = "of the multipliers that hold them, those of least norm are used"
        warnings.warn(f"{named} depend on each other at q0 ({described}): {used}.", stacklevel=outside())
    if found.closed_form is not None:
        return found.closed_form(found.plan)
    if choice == "sweep":
        return SweepSolver(found.plan, found.constrained, relaxation)
    kind = RankDeficientSolver if found.plan.kind == "least-squares" else NewtonSolver
    return kind(found.plan, found.constrained)


def _find(choice: str, starts: Sequence[tuple[Any, Any]]) -> _Found:
    known = [concrete(system, q, np.random.default_rng(3)) for system, q in starts]
    system, q = known[0]
    m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
    if choice == "auto" and sphere.fits_sphere(system, q.shape):
        return _Found(sphere.SphereSolver, _dense(m, sphere.DESCRIPTION), None, None)
    if choice == "auto" and rotation.fits_rotation(system, q.shape):
        return _Found(rotation.RotationSolver, _dense(m, rotation.DESCRIPTION), None, None)
    if choice == "auto" and triangle.fits_triangle(system, q.shape):
        named = dataclasses.replace(fallback(m), description=triangle.DESCRIPTION)
        return _Found(triangle.TriangleSolver, named, None, None)
    constrained = constrained_coordinates(system, q)
    plan = plan_for(gram_product, starts, m, "auto" if choice in ("newton", "sweep") else choice, TINY)
    if plan.kind in ("least-squares", "matrix-free") or isinstance(starts[0][1], Tracer):
        return _Found(None, plan, None, constrained)
    found = min((dependence(*start, plan) for start in known), key=lambda each: each.smallest)
    if found.smallest > DEPENDENT:
        return _Found(None, plan, None, constrained)
    plan = least_squares_plan(m)
    if plan.kind == "least-squares":
        described = f"least squares in a basis of the normal space; at q0 {found.described}"
        plan = dataclasses.replace(plan, description=described)
    return _Found(None, plan, found, constrained)


def _dense(m: int, description: str) -> Plan:
    return dataclasses.replace(dense_plan(m), description=description)
