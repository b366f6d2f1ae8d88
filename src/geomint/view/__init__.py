"""Animations: a scene of moving points, bonds and surfaces, as one HTML file that needs nothing else, or as a film.

`Scene` is what is shown, whatever made it; `of_run` makes one of a run (run.view, run.movie). viewer.js and viewer.css
are written into the page. May import `system`, `numerics` and `errors`; not run.
"""

from .scene import Page, Scene

__all__ = ["Page", "Scene"]
