"""Many particles: periodic boxes, pair potentials with a cut-off, and neighbour lists.

Start with pair.py: `PairPotential` is the energy of all pairs, with or without a neighbour list. neighbours.py keeps
the list up to date along a run (it is the auxiliary state of the system, see system/auxiliary.py), cells.py finds the
neighbours, and loops.py has the two loops that numba compiles for the CPU. atoms.py has
the names of atoms, for files and analysis.

May import: system, numerics, errors. Models use it.
"""

from .atoms import Atoms
from .box import Box
from .neighbours import NeighbourList, Neighbours
from .pair import PairPotential, PairSum

__all__ = ["Atoms", "Box", "NeighbourList", "Neighbours", "PairPotential", "PairSum"]
