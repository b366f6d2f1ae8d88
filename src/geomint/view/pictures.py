"""How models whose coordinates are no positions look: angles of pendula, and parts that a function holds together."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTHS = {"double_pendulum_angles": (1.0, 2.0**0.5)}


def _pendulum(q: np.ndarray) -> np.ndarray:
    angle = q.reshape(len(q), 1)
    return np.stack([np.sin(angle), -np.cos(angle)], axis=-1)


def _double_pendulum(q: np.ndarray) -> np.ndarray:
    lengths = np.asarray(LENGTHS["double_pendulum_angles"])
    links = lengths[:, None] * np.stack([np.sin(q), -np.cos(q)], axis=-1)
    return np.cumsum(links, axis=1)


HANGING = {"chain": "y", "sphere_bodies": "y"}  # models in space whose gravity is along another axis than z

PICTURES: dict[str, dict[str, Any]] = {
    "pendulum": {"of": _pendulum, "bonds": ((0, 1),), "fixed": ((0.0, 0.0),)},
    "driven_pendulum": {"of": _pendulum, "bonds": ((0, 1),), "fixed": ((0.0, 0.0),)},
    "double_pendulum_angles": {"of": _double_pendulum, "bonds": ((0, 1), (0, 2)), "fixed": ((0.0, 0.0),)},
    "slider_crank": {"of": lambda q: q, "bonds": ((0, 2), (0, 1)), "fixed": ((0.0, 0.0),)},
    "driven_slider_crank": {"of": lambda q: q, "bonds": ((0, 2), (0, 1)), "fixed": ((0.0, 0.0),)},
    "stiff_double_pendulum": {"of": lambda q: q, "bonds": ((0, 2), (0, 1)), "fixed": ((0.0, 0.0),)},
}
