"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

`base` defines what an experiment is (a function that returns an `Outcome`: checks and a figure) and the registry;
`checks` what a check states, and its verdict; `runner` runs experiments. A folder holds the experiments of one paper;
importing it registers them.
"""

from . import (
    console_hairer_lubich_2013,
    fernandez_pendas_2019,
    gonzalez_schmidt_ortiz_2010,
    stern_grinspun_2009,
    tao_owhadi_2015,
)
from .base import Experiment, Outcome, all, experiment, find
from .checks import Check, Verdict
from .runner import Reproduction, machine, reproduce, reproduced, run_all

__all__ = [
    "Check",
    "Experiment",
    "Outcome",
    "Reproduction",
    "Verdict",
    "all",
    "console_hairer_lubich_2013",
    "experiment",
    "fernandez_pendas_2019",
    "find",
    "gonzalez_schmidt_ortiz_2010",
    "machine",
    "reproduce",
    "reproduced",
    "run_all",
    "stern_grinspun_2009",
    "tao_owhadi_2015",
]
