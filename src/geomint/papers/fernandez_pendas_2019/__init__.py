"""Fernández-Pendás: Geometric numerical integration, 4. Constrained mechanical systems (lecture slides, BCAM, 2019).

Start with `shake_and_rattle`: the two methods give the same positions. `splittings` puts RATTLE over other splittings
than Verlet, `solvers` measures how g(q) = 0 is solved on chains and on spheres, `problems` holds what they share.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the slides)

from . import problems, shake_and_rattle, splittings, solvers

__all__ = ["problems", "shake_and_rattle", "solvers", "splittings"]
