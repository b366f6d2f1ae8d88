"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

A module or two per paper; importing it registers its experiments.
"""

from . import stern_grinspun_2009, tao_owhadi_2015, tao_owhadi_2015_systems
from .base import Check, Experiment, Outcome, Reproduction, all, experiment, find, reproduce

__all__ = ["Check", "Experiment", "Outcome", "Reproduction", "all", "experiment", "find", "reproduce", "stern_grinspun_2009", "tao_owhadi_2015", "tao_owhadi_2015_systems"]
