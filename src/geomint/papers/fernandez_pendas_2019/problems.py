"""What the experiments of the slides share: the two pendula, the bodies on a sphere, and the name of the source."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ... import models

PAPER = "fernandez-pendas-2019"
EPS = float(np.finfo(float).eps)

pendula: Any = functools.cache(
    lambda: {"triple pendulum": models.triple_pendulum(), "double pendulum": models.double_pendulum()}
)
spheres: Any = functools.cache(models.sphere_bodies)  # one system each, so that its programs are compiled once
