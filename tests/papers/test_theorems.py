"""What the experiments on theorems measure with: fitted components, the book's methods, and animations."""

import numpy as np
import pytest

import geomint as gm
from geomint.methods.multistep_coefficients import construct
from geomint.papers.console_hairer_lubich_2013.book_methods import BOOK, constructed, parameters
from geomint.papers.console_hairer_lubich_2013.displaced import component, size
from geomint.papers.console_hairer_lubich_2013.modified_energy import leading_terms
from geomint.papers.console_hairer_lubich_2013.periodicity import both_sides
from geomint.papers.stern_grinspun_2009.fpu_chain import chain_motion
from geomint.papers.stern_grinspun_2009.resonance import phase_planes


def test_a_component_is_found_under_a_motion_a_billion_times_larger():
    n, angle, z = np.arange(400), 2.1, 3e-10 * np.exp(0.7j)
    smooth = np.stack([np.cos(0.03 * n), np.sin(0.05 * n) ** 3], axis=1)
    at_root = np.outer(2 * np.real(z * np.exp(1j * angle * n)), [1.0, 0.0])
    found = component(smooth + at_root, angle, 96)
    assert len(found) == 4
    np.testing.assert_allclose(found[:, 0], z, rtol=1e-4)
    assert size(component(smooth, angle, 96)).max() < 1e-14


def test_the_paper_s_own_method_is_constructed_from_its_rho():
    """As the table's methods are: from ρ alone, by the symmetric functions of the a_j."""
    right = construct((-0.8, -0.4, 0.7))
    made = constructed(right.rho[:5])
    assert made.rho_tilde == right.rho_tilde
    assert made.sigma == right.sigma
    np.testing.assert_allclose(sorted(parameters(made)), [-0.8, -0.4, 0.7], atol=1e-12)
    assert all(len(parameters(constructed(row.alpha))) == 3 for row in BOOK.values())  # SY8's ρ̃ has zeros inside


def test_leading_terms_of_the_central_difference():
    """Order 2: ρ/(x²σ) = (2 cosh x − 2)/x² = 1 + x²/12, the momenta (p_{n−½} + p_{n+½})/2 = sinh(x)/x = 1 + x²/6."""
    np.testing.assert_allclose(leading_terms(construct(())), (1 / 12, 1 / 6), rtol=1e-14)


@pytest.mark.parametrize("motion", [both_sides, phase_planes, chain_motion(gm.IMEX(), 0.1, 20.0)])
def test_animations_are_finite_and_small(motion):
    scene = motion()
    assert np.all(np.isfinite(scene.positions))
    assert 100 <= len(scene.positions) <= 400
    assert len(scene.page().html) < 1e6
