"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

One module per paper; importing it registers its experiments.
"""

from . import stern_grinspun_2009
from .base import Check, Experiment, Outcome, Reproduction, all, experiment, find, reproduce

__all__ = ["Check", "Experiment", "Outcome", "Reproduction", "all", "experiment", "find", "reproduce", "stern_grinspun_2009"]
