"""Elastic solids: linear elements on a mesh, as systems for every method.

Start with solid.py: `solid(mesh, material, density)` states the system. mesh.py and shapes.py have meshes, materials.py
the energies W(F), elastic.py the potential; element_terms.py has what one element contributes and element_sums.py the
sum over all of them, a JAX primitive with derivatives of all orders.

May import: engines, methods, system, numerics, errors. Models use it.
"""

from .bodies import Collision, collision, watch_bodies
from .contact import BarrierContact, ExactContact, PenaltyContact, with_contact
from .elastic import Elastic
from .materials import LinearElastic, Material, NeoHookean, StVenantKirchhoff, determinant, lame_constants
from .mesh import Mesh
from .shapes import ball, box, cube
from .solid import consistent_mass, solid

__all__ = [
    "BarrierContact",
    "Collision",
    "Elastic",
    "ExactContact",
    "LinearElastic",
    "Material",
    "Mesh",
    "NeoHookean",
    "PenaltyContact",
    "StVenantKirchhoff",
    "ball",
    "box",
    "collision",
    "consistent_mass",
    "cube",
    "determinant",
    "lame_constants",
    "solid",
    "watch_bodies",
    "with_contact",
]
