"""The methods, one family per file, and their registry.

May import `manifold`, `system`, `numerics` and `errors`. Start with `base.Method` and a short method, `runge_kutta` or
`splitting`; `protocols` lists what only some methods have. `base.register` is all that a new method needs to get a
name on the command line, a row in the documentation and every property test.
"""

from __future__ import annotations

# In the order of the registry: splittings, oscillatory methods, then those on manifolds.
from . import trigonometric  # noqa: F401  # isort: skip
from . import rattle, shake  # noqa: F401  # isort: skip
from .base import Carry, Method, State, Traits, all, as_method, classes, register
from .boris import Boris, MagneticSplitting
from .composition import SCHEMES, Composition
from .energy_stepping import EnergyStepping
from .expressions import evaluate
from .filtered import Filtered, Newmark, PushforwardNewmark, SimplifiedZhangSkeel, StiffZhangSkeel, ZhangSkeel
from .flight import KINDS
from .gauss import Gauss, ImplicitMidpoint
from .langevin import GeometricLangevin
from .lie_verlet import CayleyVariationalEuler, LieVerlet
from .lobatto import LobattoIIIAB
from .moser_veselov import MoserVeselov
from .multistep import SymmetricMultistep
from .oscillatory import IMEX, RESPA
from .rattle import Rattle
from .runge_kutta import RungeKutta4
from .shake import Shake
from .splitting import TABLES, KickDrift, MultiStage, Splitting, SymplecticEuler, Verlet
from .trigonometric import Gautschi, Impulse, MollifiedImpulse, Trigonometric
from .trigonometric_flow import FILTERS
from .variational import Variational


def named(text: str) -> Method:
    """A method from its name or expression: named("verlet"), named("Composition(Verlet(), order=8)")."""
    return as_method(evaluate(text, classes(), "method"))


__all__ = [
    "FILTERS",
    "IMEX",
    "KINDS",
    "RESPA",
    "SCHEMES",
    "TABLES",
    "Boris",
    "Carry",
    "CayleyVariationalEuler",
    "Composition",
    "EnergyStepping",
    "Filtered",
    "Gauss",
    "Gautschi",
    "GeometricLangevin",
    "ImplicitMidpoint",
    "Impulse",
    "KickDrift",
    "LieVerlet",
    "LobattoIIIAB",
    "MagneticSplitting",
    "Method",
    "MollifiedImpulse",
    "MoserVeselov",
    "MultiStage",
    "Newmark",
    "PushforwardNewmark",
    "Rattle",
    "RungeKutta4",
    "Shake",
    "SimplifiedZhangSkeel",
    "Splitting",
    "State",
    "StiffZhangSkeel",
    "SymmetricMultistep",
    "SymplecticEuler",
    "Traits",
    "Trigonometric",
    "Variational",
    "Verlet",
    "ZhangSkeel",
    "all",
    "as_method",
    "classes",
    "named",
    "register",
]
