"""Fernández-Pendás: Geometric numerical integration, 4. Constrained mechanical systems (lecture slides, BCAM, 2019).

Start with `shake_and_rattle`: the two methods give the same positions. `masses` has what the slides leave out of their
formulas, `splittings` puts RATTLE over other splittings than Verlet, `chains` and `spheres` measure how g(q) = 0 is
solved, `stiff_bonds` compares rods with the springs that they stand for, `adaptive` chooses a splitting by the
frequency. `problems` holds what they share.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the slides)

from . import problems, stiff_bonds, shake_and_rattle, masses, chains, spheres, splittings, adaptive

__all__ = ["adaptive", "chains", "masses", "problems", "shake_and_rattle", "spheres", "splittings", "stiff_bonds"]
