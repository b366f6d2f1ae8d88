"""Rigid bodies."""

from . import inertia
from .assembly import Assembly
from .joints import Ball, Cylindrical, Distance, Hinge, Joint, Slider, Universal, Weld
from .mjcf import from_mjcf
