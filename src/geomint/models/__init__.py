"""The papers' systems and the field's classics, ready to run: ``model = gm.models.fpu(springs=3)``."""

from .base import Model, all, model, named
from .dna import dna
from .gravity import kepler, n_body, outer_solar_system
from .oscillators import coupled_oscillators, fpu, henon_heiles, pendulum
from .pendula import chain, double_pendulum, double_pendulum_angles

__all__ = [
    "Model", "all", "chain", "coupled_oscillators", "dna", "double_pendulum", "double_pendulum_angles", "fpu", "henon_heiles", "kepler", "model", "n_body", "named",
    "outer_solar_system", "pendulum",
]  # fmt: skip
