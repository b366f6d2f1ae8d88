"""Gonzalez, Schmidt, Ortiz: Energy-stepping integrators in Lagrangian mechanics, Int. J. Numer. Meth. Engng 82 (2010)
205.

V is replaced by V_h = h⌊V/h⌋, which is constant on terraces, and the motion in V_h is computed exactly: straight
flights, and where a flight meets the edge of its terrace a step up, a step down or a reflection.

Start with `kepler`, a planet over terraces (figure 1). `jumps` has the formulas for an event and their corrections
(section 2.1), `mollified` theorem 2.1, `examples` and `turning_point` the motions for which the method does not
converge (section 4), `argon`, `argon_trajectories`, `argon_convergence` and `argon_steps` the frozen argon cluster
(section 5.1), `faces` bodies that intersect (section 5.2), `cube` and `cube_steps` a spinning elastic cube (section
5.2.1), `balls` the collision of two elastic balls (section 5.2.2), `force_stepping` the alternative that the paper
names in section 6 and `force_stepping_runs` its measurements. `terraces` holds what they share. The method itself is in
`methods/energy_stepping.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import terraces, kepler, jumps, mollified, examples, turning_point
from . import argon, argon_trajectories, argon_convergence, argon_steps
from . import faces, cube, cube_steps, balls, force_stepping, force_stepping_runs

__all__ = [
    "argon",
    "argon_convergence",
    "argon_steps",
    "argon_trajectories",
    "balls",
    "cube",
    "cube_steps",
    "examples",
    "faces",
    "force_stepping",
    "force_stepping_runs",
    "jumps",
    "kepler",
    "mollified",
    "terraces",
    "turning_point",
]
