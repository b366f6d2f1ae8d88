"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

A module or two per paper; importing it registers its experiments.
"""

from . import (
    console_hairer_lubich_2013,
    console_hairer_lubich_2013_sphere,
    console_hairer_lubich_2013_systems,
    fernandez_pendas_2019,
    fernandez_pendas_2019_solvers,
    gonzalez_schmidt_ortiz_2010,
    gonzalez_schmidt_ortiz_2010_argon,
    gonzalez_schmidt_ortiz_2010_argon_steps,
    gonzalez_schmidt_ortiz_2010_force_stepping,
    stern_grinspun_2009,
    stern_grinspun_2009_limits,
    tao_owhadi_2015,
    tao_owhadi_2015_dna,
    tao_owhadi_2015_penalty,
    tao_owhadi_2015_systems,
)
from .base import Check, Experiment, Information, Outcome, Reproduction, all, experiment, find, reproduce

__all__ = ["Check", "Experiment", "Information", "Outcome", "Reproduction", "all", "experiment", "find", "reproduce"]
__all__ += [
    "console_hairer_lubich_2013", "console_hairer_lubich_2013_sphere", "console_hairer_lubich_2013_systems",
    "fernandez_pendas_2019", "fernandez_pendas_2019_solvers", "gonzalez_schmidt_ortiz_2010",
    "gonzalez_schmidt_ortiz_2010_argon", "gonzalez_schmidt_ortiz_2010_argon_steps",
    "gonzalez_schmidt_ortiz_2010_force_stepping", "stern_grinspun_2009", "stern_grinspun_2009_limits", "tao_owhadi_2015",
    "tao_owhadi_2015_dna", "tao_owhadi_2015_penalty", "tao_owhadi_2015_systems",
]  # fmt: skip
