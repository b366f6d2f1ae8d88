"""The order conditions of splittings and compositions, against products of matrix exponentials."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from geomint.methods import Composition, Gauss, Verlet
from geomint.methods.composition import SCHEMES
from geomint.methods.order_conditions import composition_defect, splitting_defect
from geomint.methods.splitting import TABLES

A, B = np.random.default_rng(3).normal(size=(2, 4, 4)) / 2


def splitting(stages, h):
    """The product of all stages, A for a drift and B for a kick: random matrices, so that no error term vanishes."""
    product = np.eye(4)
    for kind, share in stages:
        product = product @ expm(share * h * (A if kind == "drift" else B))
    return product


def composition(coefficients, h):
    """Of the symmetric method exp(hA/2) exp(hB) exp(hA/2)."""
    product = np.eye(4)
    for gamma in coefficients:
        product = product @ splitting((("drift", gamma / 2), ("kick", gamma), ("drift", gamma / 2)), h)
    return product


def order_by_matrices(method, h=0.1):
    """p from the error h^{p+1} of one step, at h and h/2."""
    error = [np.linalg.norm(method(x) - expm(x * (A + B))) for x in (h, h / 2)]
    return np.log2(error[0] / error[1]) - 1


@pytest.mark.parametrize("name", TABLES)
def test_splittings(name):
    """The defect is zero up to the order that matrices show, and not beyond. Some Nyström splittings lose an order
    here, since the relation [B,[B,[B,A]]] = 0 of mechanics does not hold."""
    stages, order, nystrom, _ = TABLES[name]
    shown = order_by_matrices(lambda h: splitting(stages, h))
    general = next(p for p in range(1, 6) if splitting_defect(stages, p + 1) > 1e-4)
    assert shown == pytest.approx(general, abs=0.3)
    assert general == (3 if name in ("mclachlan-atela", "calvo-sanz-serna") else order)
    assert splitting_defect(stages, order, nystrom) < 1e-14


@pytest.mark.parametrize(("scheme", "order"), SCHEMES)
def test_compositions(scheme, order):
    coefficients = SCHEMES[scheme, order]
    assert composition_defect(coefficients, order) < 1e-13
    shown = order_by_matrices(lambda h: composition(coefficients, h), 0.4 if order == 8 else 0.2)
    assert shown == pytest.approx(order, abs=0.5)


@pytest.mark.parametrize(("scheme", "order"), SCHEMES)
def test_a_wrong_coefficient_is_a_defect_of_its_size(scheme, order):
    """A coefficient that is off by 1e-7 violates Σγ = 1 by as much, and no condition by more than 1e-4."""
    for i in (0, len(SCHEMES[scheme, order]) // 2):
        wrong = list(SCHEMES[scheme, order])
        wrong[i] += 1e-7
        assert 0.9e-7 < composition_defect(wrong, order) < 1e-4
    assert composition_defect(SCHEMES["yoshida", 4], 6) > 0.1


def test_a_wrong_stage_is_a_defect_of_its_size():
    stages = list(TABLES["forest-ruth"][0])
    stages[3] = (stages[3][0], stages[3][1] + 1e-7)
    assert 0.9e-7 < splitting_defect(stages, 4) < 1e-6


def test_coefficients_of_smallest_error_are_the_published_ones():
    """Omelyan, Mryglod, Folk (2002); Fernández-Pendás, Akhmatskaya, Sanz-Serna (2016), to the digits printed there."""
    two, three = ([c for _, c in TABLES[name][0]] for name in ("two-stage-minimum-error", "three-stage-minimum-error"))
    assert two[0] == pytest.approx(0.1931833275037836, abs=1e-15)
    assert three[:2] == pytest.approx([0.108991425403425322, 0.290485609075128726], abs=1e-15)


def test_a_composition_is_never_of_lower_order_than_its_base():
    assert Composition(Gauss(2), order=4).traits.order == 4
    inner = Composition(Verlet(form="drift"), order=6)
    outer = Composition(inner, order=4)
    assert outer.traits.order == 6
    nested = np.outer(outer.coefficients, inner.coefficients).ravel()
    assert order_by_matrices(lambda h: composition(nested, h), 0.2) == pytest.approx(6, abs=0.3)
