"""The papers' experiments, each with the numbers expected of it: ``geomint reproduce PAPER/EXPERIMENT``.

A module or two per paper; importing it registers its experiments.
"""

from .base import Check, Experiment, Information, Outcome, Reproduction, all, experiment, find, reproduce
from .console_hairer_lubich_2013 import experiments as console_hairer_lubich_2013
from .console_hairer_lubich_2013 import sphere as console_hairer_lubich_2013_sphere
from .console_hairer_lubich_2013 import systems as console_hairer_lubich_2013_systems
from .fernandez_pendas_2019 import experiments as fernandez_pendas_2019
from .fernandez_pendas_2019 import solvers as fernandez_pendas_2019_solvers
from .gonzalez_schmidt_ortiz_2010 import argon as gonzalez_schmidt_ortiz_2010_argon
from .gonzalez_schmidt_ortiz_2010 import argon_steps as gonzalez_schmidt_ortiz_2010_argon_steps
from .gonzalez_schmidt_ortiz_2010 import experiments as gonzalez_schmidt_ortiz_2010
from .gonzalez_schmidt_ortiz_2010 import force_stepping as gonzalez_schmidt_ortiz_2010_force_stepping
from .stern_grinspun_2009 import experiments as stern_grinspun_2009
from .stern_grinspun_2009 import limits as stern_grinspun_2009_limits
from .tao_owhadi_2015 import dna as tao_owhadi_2015_dna
from .tao_owhadi_2015 import experiments as tao_owhadi_2015
from .tao_owhadi_2015 import penalty as tao_owhadi_2015_penalty
from .tao_owhadi_2015 import systems as tao_owhadi_2015_systems

__all__ = ["Check", "Experiment", "Information", "Outcome", "Reproduction", "all", "experiment", "find", "reproduce"]
__all__ += [
    "console_hairer_lubich_2013", "console_hairer_lubich_2013_sphere", "console_hairer_lubich_2013_systems",
    "fernandez_pendas_2019", "fernandez_pendas_2019_solvers", "gonzalez_schmidt_ortiz_2010",
    "gonzalez_schmidt_ortiz_2010_argon", "gonzalez_schmidt_ortiz_2010_argon_steps",
    "gonzalez_schmidt_ortiz_2010_force_stepping", "stern_grinspun_2009", "stern_grinspun_2009_limits", "tao_owhadi_2015",
    "tao_owhadi_2015_dna", "tao_owhadi_2015_penalty", "tao_owhadi_2015_systems",
]  # fmt: skip
