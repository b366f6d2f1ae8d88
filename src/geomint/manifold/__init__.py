"""The constraint solvers: how a motion is kept on the manifold g(q) = 0, and which solver a system gets.

Start with `solver.Manifold`; `newton` is the solver of most systems, `normal_space` covers constraints that depend on each
other. Imports from `linalg`, `mechanics` and `constraints` only.
"""

from .closed_forms import closed_form, closed_plan
from .dependence import DEPENDENT, Dependence, dependence, gram_product
from .place import Placed
from .scales import Scales, scales, seeds, vanishing
from .solver import Manifold

__all__ = [
    "DEPENDENT", "Dependence", "Manifold", "Placed", "Scales", "closed_form", "closed_plan", "dependence", "gram_product",
    "scales", "seeds", "vanishing",
]  # fmt: skip
