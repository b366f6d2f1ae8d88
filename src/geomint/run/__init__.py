"""Runs: simulate, ensemble, what they leave, and how they go on."""

from .ensemble import ensemble
from .reductions import Histogram, Mean, Quantiles
from .resume import load, resume
from .simulate import simulate
from .trajectory import Trajectory

__all__ = ["Histogram", "Mean", "Quantiles", "Trajectory", "ensemble", "load", "resume", "simulate"]
