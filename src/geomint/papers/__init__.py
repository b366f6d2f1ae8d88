"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

`base` defines what an experiment is (a function that returns an `Outcome`: checks and a figure) and the registry. A
folder holds the experiments of one paper; importing it registers them.
"""

from . import (
    console_hairer_lubich_2013,
    fernandez_pendas_2019,
    gonzalez_schmidt_ortiz_2010,
    stern_grinspun_2009,
    tao_owhadi_2015,
)
from .base import Check, Experiment, Information, Outcome, Reproduction, all, experiment, find, reproduce

__all__ = [
    "Check",
    "Experiment",
    "Information",
    "Outcome",
    "Reproduction",
    "all",
    "console_hairer_lubich_2013",
    "experiment",
    "fernandez_pendas_2019",
    "find",
    "gonzalez_schmidt_ortiz_2010",
    "reproduce",
    "stern_grinspun_2009",
    "tao_owhadi_2015",
]
