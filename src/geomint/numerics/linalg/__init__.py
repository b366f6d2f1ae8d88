"""Solvers: the roots of an implicit step, and linear systems whose structure is found automatically."""

from .newton import Solution, fixed_point, newton
from .structure import KINDS, Plan, fallback, find

__all__ = ["KINDS", "Plan", "Solution", "fallback", "find", "fixed_point", "newton"]
