"""The constraint solvers: how a motion is kept on the manifold g(q) = 0, and which solver a system gets.

Start with `solver.Manifold`; `newton` is the solver of most systems, `normal_space` covers constraints that depend on each
other. Imports from `linalg`, `mechanics` and `constraints` only.
"""

from .closed_forms import closed_form, closed_plan
from .dependence import DEPENDENT, Dependence, dependence, gram_product, loses_rank, not_kept_by
from .place import Placed
from .scales import Scales, constrained_coordinates, scales, seeds, vanishing
from .solver import Manifold

__all__ = [
    "DEPENDENT", "Dependence", "Manifold", "Placed", "Scales", "closed_form", "closed_plan",
    "constrained_coordinates", "dependence", "gram_product",
    "loses_rank", "not_kept_by", "scales", "seeds", "vanishing",
]  # fmt: skip
