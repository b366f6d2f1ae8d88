"""The measurement of the order can fail: it tells r from r ± 2, and a coefficient that is slightly wrong."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.convergence import fitted_slope
from geomint.analysis.measure import Point

STEPS = 1 / np.arange(4, 65)


def series(terms: dict[int, float], rounding: float = 1e-15) -> list[np.ndarray]:
    """Errors Σ c_j hʲ e_j in random directions e_j of size one, with rounding."""
    random = np.random.default_rng(1)
    directions = {power: random.standard_normal(128) for power in terms}
    return [
        sum(c * h**j * directions[j] for j, c in terms.items()) + rounding * random.standard_normal(128) for h in STEPS
    ]


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_the_next_term_is_seen_through(order):
    """With h² as large as the leading term at h = 1/4, a plain slope is far off."""
    slope, uncertainty = fitted_slope(STEPS, series({order: 1.0, order + 2: 16.0}), 1e-14, 2)
    assert slope == pytest.approx(order, abs=0.05)
    assert uncertainty < 0.1


def test_a_trace_of_a_lower_order_is_seen():
    slope, _ = fitted_slope(STEPS, series({6: 1e-3, 8: 1.0}), 1e-14, 2)
    assert abs(slope - 8) > 0.15


def test_rounding_shows_no_order():
    assert np.isnan(fitted_slope(STEPS, series({}, rounding=1e-13), 1e-12, 2)[0])


class Spoilt(gm.SymmetricMultistep):
    """β changed by a multiple of ζ(ζ − 1)^(r − 2): still symmetric, and of order r − 2."""

    @property
    def coefficients(self):
        right = super().coefficients
        change = [Fraction(0), *(Fraction(round(c), 1000) for c in np.poly(np.ones(self.order - 2))), Fraction(0)]
        return dataclasses.replace(right, sigma=tuple(b + c for b, c in zip(right.sigma, change, strict=True)))


@pytest.mark.parametrize(("order", "least", "most"), [(4, 1.9, 2.1), (8, 5.5, 7.5)])
def test_a_wrong_coefficient_is_found_out(order, least, most):
    system = gm.System(
        lambda q: 0.25 * (q[0] ** 4 + q[1] ** 4) + 0.5 * q[0] * q[1] ** 2 + 0.5 * (q[0] ** 2 + q[1] ** 2),
        mass=np.array([1.0, 0.6]),
    )
    found = measure.order(Spoilt(order), system, Point(np.array([0.7, -0.4]), np.array([0.2, 0.9])), 0.025 * order)
    assert all(least < slope < most for slope in found.slopes), found
