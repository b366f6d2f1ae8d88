"""Indices out of range in a jaxpr.

`dependence` finds the equations that indices are computed from, `evaluation` computes the indices and checks them.
"""

from .dependence import IndexDependence
from .evaluation import UNKNOWN, IndexInterpreter, OutOfRange, as_known

__all__ = ["UNKNOWN", "IndexDependence", "IndexInterpreter", "OutOfRange", "as_known"]
