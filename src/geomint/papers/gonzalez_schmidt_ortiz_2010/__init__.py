"""Gonzalez, Schmidt, Ortiz: Energy-stepping integrators in Lagrangian mechanics, Int. J. Numer. Meth. Engng 82 (2010)
205.

V is replaced by V_h = h⌊V/h⌋, which is constant on terraces, and the motion in V_h is computed exactly: straight
flights, and where a flight meets the edge of its terrace a step up, a step down or a reflection.

Start with `kepler`, a planet over terraces (figure 1). `examples` has the motions for which the method does not
converge (section 4.1), `argon` and `argon_steps` the frozen argon cluster (section 5.1), `cube` a spinning elastic cube
(section 5.2.1), `balls` the collision of two elastic balls (section 5.2.2), `force_stepping` the alternative that the
paper names in section 6 and `force_stepping_runs` its measurements. `terraces` holds what they share. The method itself
is in `methods/energy_stepping.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import terraces, kepler, examples, argon, argon_steps, cube, balls, force_stepping, force_stepping_runs

__all__ = [
    "argon",
    "argon_steps",
    "balls",
    "cube",
    "examples",
    "force_stepping",
    "force_stepping_runs",
    "kepler",
    "terraces",
]
