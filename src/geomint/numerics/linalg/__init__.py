"""Linear solvers whose structure is found automatically, and Newton's method for the equations of an implicit step.

Start with `structure` (`Plan`: how K x = r is solved, and `find`, which chooses it) and `newton` (nonlinear equations).
`discovery` finds and caches the plan for an operator of a system before a run; `sparsity` finds which entries of an
operator are nonzero. `cholesky`, `elimination`, `conjugate_gradients` and `rank` are the algorithms. `cpu_kernels`
calls the loops of `numba_loops` through XLA's foreign function interface, `xla_ffi`.

It imports only from geomint.errors and the modules of geomint.numerics.
"""

from .newton import Solution, fixed_point, newton
from .structure import KINDS, Plan, fallback, find

__all__ = ["KINDS", "Plan", "Solution", "fallback", "find", "fixed_point", "newton"]
