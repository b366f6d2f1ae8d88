"""Interval arithmetic: rigorous bounds of a function while its argument runs through an interval.

`evaluate` interprets the program that JAX traces from a function in interval arithmetic (Moore 1966; Neumaier, Interval
Methods for Systems of Equations, 1990): every operation is replaced by one that returns a range of its values. The
result is again a traceable computation, so that it may be compiled, mapped and used in a loop. The ranges are proofs,
not estimates: they contain the values of the function and of its evaluation in floating-point numbers, rounding
included.

Ranges become too wide where one variable occurs several times, as in x·(1 − x). Two measures reduce that: equal
expressions are computed once and recognised as equal (x·x is a square, wherever its factors come from), and `curvature`
adds the mean value theorem.

Start with `evaluation`; `rules` and `functions` hold the rule of each primitive, `interval` the type and its helpers.
"""

from .evaluation import evaluate, supported
from .interval import Interval
from .line_curvature import curvature, derivatives

__all__ = ["Interval", "curvature", "derivatives", "evaluate", "supported"]
