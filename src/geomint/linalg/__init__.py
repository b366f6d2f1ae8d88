"""Solvers: how the equations of an implicit step are solved, and (from the structure found) how their linear systems are."""

from .newton import Solution, fixed_point, newton

__all__ = ["Solution", "fixed_point", "newton"]
