"""geomint: mechanical systems simulated so that their structure survives.

Importing geomint enables float64 in JAX, unless the environment variable JAX_ENABLE_X64 is set.
"""

import os as _os

import jax as _jax

if "JAX_ENABLE_X64" not in _os.environ:
    _jax.config.update("jax_enable_x64", True)

from . import fem, md, methods, models, rigid, view
from .analysis.averages import Average, EnergyDrift, autocorrelation_time, average, energy_drift
from .analysis.certify import Certificate, certify
from .analysis.compare import Comparison, compare
from .analysis.fast_slow import adaptive_splitting, split_quadratic, watch_oscillations
from .analysis.fixman import fixman
from .analysis.lyapunov import Lyapunov, lyapunov
from .analysis.penalty import penalize, recover_multipliers
from .analysis.radial import radial_distribution
from .analysis.recommend import Recommendation, recommend
from .analysis.section import Section, section
from .analysis.stability import StabilityDiagram, stability_diagram
from .analysis.temperature import TemperatureDistribution, degrees_of_freedom, temperature_distribution
from .errors import (
    ArchiveError,
    GeomintError,
    InputError,
    InstabilityWarning,
    Interrupted,
    MeasurementError,
    ProcessLost,
    RunStopped,
)
from .io.ase_atoms import from_ase
from .manifold.projection import project
from .methods import (
    IMEX,
    RESPA,
    Boris,
    CayleyVariationalEuler,
    Composition,
    EnergyStepping,
    Gauss,
    Gautschi,
    GeometricLangevin,
    ImplicitMidpoint,
    Impulse,
    LieVerlet,
    LobattoIIIAB,
    MagneticSplitting,
    MollifiedImpulse,
    MoserVeselov,
    MultiStage,
    Newmark,
    PushforwardNewmark,
    Rattle,
    RungeKutta4,
    Shake,
    SimplifiedZhangSkeel,
    Splitting,
    StiffZhangSkeel,
    SymmetricMultistep,
    SymplecticEuler,
    Trigonometric,
    Variational,
    Verlet,
    ZhangSkeel,
)  # fmt: skip
from .numerics import compilation as _compilation
from .run import Histogram, Mean, Quantiles, RadialDistribution, Trajectory, ensemble, load, resume, simulate, sweep
from .system import units
from .system.constraints import Constraint, Distances, OnSphere, Orthogonal, RigidMolecules
from .system.lagrangian import LagrangianSystem
from .system.mechanics import Mechanics
from .system.symmetries import Generator, Rotation, Translation
from .system.system import System

__version__ = "0.1.0"

__all__ = [
    "IMEX",
    "RESPA",
    "ArchiveError",
    "Average",
    "Boris",
    "CayleyVariationalEuler",
    "Certificate",
    "Comparison",
    "Composition",
    "Constraint",
    "Distances",
    "EnergyDrift",
    "EnergyStepping",
    "Gauss",
    "Gautschi",
    "Generator",
    "GeometricLangevin",
    "GeomintError",
    "Histogram",
    "ImplicitMidpoint",
    "Impulse",
    "InputError",
    "InstabilityWarning",
    "Interrupted",
    "LagrangianSystem",
    "LieVerlet",
    "LobattoIIIAB",
    "Lyapunov",
    "MagneticSplitting",
    "Mean",
    "MeasurementError",
    "Mechanics",
    "MollifiedImpulse",
    "MoserVeselov",
    "MultiStage",
    "Newmark",
    "OnSphere",
    "Orthogonal",
    "ProcessLost",
    "PushforwardNewmark",
    "Quantiles",
    "RadialDistribution",
    "Rattle",
    "Recommendation",
    "RigidMolecules",
    "Rotation",
    "RunStopped",
    "RungeKutta4",
    "Section",
    "Shake",
    "SimplifiedZhangSkeel",
    "Splitting",
    "StabilityDiagram",
    "StiffZhangSkeel",
    "SymmetricMultistep",
    "SymplecticEuler",
    "System",
    "TemperatureDistribution",
    "Trajectory",
    "Translation",
    "Trigonometric",
    "Variational",
    "Verlet",
    "ZhangSkeel",
    "adaptive_splitting",
    "autocorrelation_time",
    "average",
    "certify",
    "compare",
    "degrees_of_freedom",
    "energy_drift",
    "ensemble",
    "fem",
    "fixman",
    "from_ase",
    "load",
    "lyapunov",
    "md",
    "methods",
    "models",
    "penalize",
    "project",
    "radial_distribution",
    "recommend",
    "recover_multipliers",
    "resume",
    "rigid",
    "section",
    "simulate",
    "split_quadratic",
    "stability_diagram",
    "sweep",
    "temperature_distribution",
    "units",
    "view",
    "watch_oscillations",
]


def __dir__() -> list[str]:
    """The public names only, without subpackages that are not meant to be used directly."""
    return [*__all__, "__version__"]
