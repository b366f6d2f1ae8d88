"""Console, Hairer, Lubich: Symmetric multistep methods for constrained Hamiltonian systems, Numer. Math. 124 (2013)
517.

Start with `coefficients`: what the methods are, and which of them are stable with constraints. `book_methods` shows
that those of Hairer, Lubich and Wanner's table are not, `periodicity` how long a step may be, `round_off` why momenta
are used. `triple_pendulum`, `sphere` and `heavy_top` are the paper's three examples. The theorems behind them:
`modified_energy` (section 6), `parasitic` and `starting_values` (section 7). `runs` holds what they share, `displaced`
the method with wrong starting values. The methods themselves are in `methods/multistep.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import coefficients, book_methods, periodicity, round_off, triple_pendulum, sphere, heavy_top
from . import modified_energy, starting_values, parasitic

__all__ = [
    "book_methods",
    "coefficients",
    "heavy_top",
    "modified_energy",
    "parasitic",
    "periodicity",
    "round_off",
    "sphere",
    "starting_values",
    "triple_pendulum",
]
