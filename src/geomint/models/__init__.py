"""Systems with initial data, ready to run: those of the papers, and classics of the field.

``model = gm.models.fpu(springs=3)`` returns a `Model`: system, q0, v0, and a dt and t_end that work. A file holds one
kind of system; `base` defines `Model` and the decorator that registers one.
"""

from .assemblies import bricard, gyroscope, rigid_chain, turning_cat
from .base import Model, all, model, named
from .charges import magnetic_mirror, paul_trap, penning_trap, tokamak
from .clusters import argon_cluster, lennard_jones_cluster, morse_cluster
from .colliding_balls import colliding_balls
from .dna import dna
from .driven import (
    driven_pendulum,
    driven_slider_crank,
    driven_slider_crank_angles,
    kapitza_pendulum,
    relativistic_oscillator,
)
from .elastic_bodies import elastic_cube
from .elastic_sheet import elastic_sheet
from .fluids import lennard_jones_fluid
from .gravity import kepler, n_body, outer_solar_system
from .hard_spheres import hard_spheres
from .harmonic import harmonic_bowl, harmonic_oscillator, harmonic_trough
from .mechanisms import slider_crank
from .multiscale import elastic_chain, fast_slow_oscillator, stiff_double_pendulum
from .oscillators import coupled_oscillators, fpu, henon_heiles, pendulum
from .pendula import chain, double_pendulum, double_pendulum_angles, triple_pendulum
from .rigid import free_top, heavy_top, magnetised_body, satellite, spherical_pendulum, two_magnets
from .sphere import sphere_bodies
from .water import water

__all__ = [
    "Model",
    "all",
    "argon_cluster",
    "bricard",
    "chain",
    "colliding_balls",
    "coupled_oscillators",
    "dna",
    "double_pendulum",
    "double_pendulum_angles",
    "driven_pendulum",
    "driven_slider_crank",
    "driven_slider_crank_angles",
    "elastic_chain",
    "elastic_cube",
    "elastic_sheet",
    "fast_slow_oscillator",
    "fpu",
    "free_top",
    "gyroscope",
    "hard_spheres",
    "harmonic_bowl",
    "harmonic_oscillator",
    "harmonic_trough",
    "heavy_top",
    "henon_heiles",
    "kapitza_pendulum",
    "kepler",
    "lennard_jones_cluster",
    "lennard_jones_fluid",
    "magnetic_mirror",
    "magnetised_body",
    "model",
    "morse_cluster",
    "n_body",
    "named",
    "outer_solar_system",
    "paul_trap",
    "pendulum",
    "penning_trap",
    "relativistic_oscillator",
    "rigid_chain",
    "satellite",
    "slider_crank",
    "sphere_bodies",
    "spherical_pendulum",
    "stiff_double_pendulum",
    "tokamak",
    "triple_pendulum",
    "turning_cat",
    "two_magnets",
    "water",
]
