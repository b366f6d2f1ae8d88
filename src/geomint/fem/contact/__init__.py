"""Contact of elastic bodies.

surface.py has the triangles and the tree of boxes over them, boxes.py the broad phase, scene.py what all kinds of
contact share. exact.py is the set of positions without collisions, for energy-stepping; penalty.py and barrier.py are
potentials, for every method.
"""

from .barrier import BarrierContact
from .exact import ExactContact
from .penalty import PenaltyContact, intersections
from .sums import with_contact

__all__ = ["BarrierContact", "ExactContact", "PenaltyContact", "intersections", "with_contact"]
