"""The constraint solvers: how a motion is kept on the manifold g(q) = 0, and which solver a system gets.

May import `numerics`, `system` and `errors`. Start with `solver.ConstraintSolver`, what methods call, and
`discovery.find_solver`, which chooses among `newton` (most systems), `rank_deficient` (constraints that depend on each
other), `sweep` (classical SHAKE), `sphere` (closed form) and `rotation` (three unknowns a body, in quaternions). `gram`
solves with G M⁻¹Gᵀ, `scales` says what counts as small, `dependence` looks for constraints that depend on each other,
`projection` is `gm.project`.
"""

from .dependence import DEPENDENT, Dependence, dependence, loses_rank, not_kept_by
from .discovery import CHOICES, find_solver
from .gram import gram_product
from .newton import NewtonSolver
from .position import Placed
from .scales import Scales, scales, seeds, vanishing
from .solver import ConstraintSolver

__all__ = [
    "CHOICES",
    "DEPENDENT",
    "ConstraintSolver",
    "Dependence",
    "NewtonSolver",
    "Placed",
    "Scales",
    "dependence",
    "find_solver",
    "gram_product",
    "loses_rank",
    "not_kept_by",
    "scales",
    "seeds",
    "vanishing",
]
