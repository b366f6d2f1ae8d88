"""The papers' systems and the field's classics, ready to run: ``model = gm.models.fpu(springs=3)``."""

from .base import Model, all, model, named
from .dna import dna
from .gravity import kepler, n_body, outer_solar_system
from .mechanisms import slider_crank
from .multiscale import elastic_chain, fast_slow_oscillator, stiff_double_pendulum
from .oscillators import coupled_oscillators, fpu, henon_heiles, pendulum
from .pendula import chain, double_pendulum, double_pendulum_angles, triple_pendulum
from .rigid import heavy_top, rigid_water
from .sphere import sphere_bodies

__all__ = [
    "Model", "all", "chain", "coupled_oscillators", "dna", "double_pendulum", "double_pendulum_angles", "elastic_chain", "fast_slow_oscillator", "fpu", "heavy_top", "henon_heiles", "kepler", "model", "n_body",
    "named", "outer_solar_system", "pendulum", "rigid_water", "slider_crank", "sphere_bodies", "stiff_double_pendulum", "triple_pendulum",
]  # fmt: skip
