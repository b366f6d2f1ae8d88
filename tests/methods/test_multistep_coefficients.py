"""The multistep coefficients against the paper's formulas, exactly, and their stability against brute force."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from geomint.errors import InputError
from geomint.methods.multistep_coefficients import (
    RECOMMENDED,
    construct,
    defects,
    interval_of_periodicity,
    order,
    smallest_gap,
)

PARAMETERS = [Fraction(x) for x in ("-9/10", "-7/10", "-1/3", "0", "2/7", "4/10", "17/19")]


def six(a_1, a_2):
    """α, β, γ of order 6."""
    s, p = a_1 + a_2, a_1 * a_2
    return (79 + 9 * s - p) / Fraction(60), (-14 + 26 * s + 6 * p) / Fraction(15), (97 + 7 * s + 97 * p) / Fraction(30)


def eight(a_1, a_2, a_3):
    """α, β, γ, δ of order 8."""
    s_1, s_2, s_3 = a_1 + a_2 + a_3, a_1 * a_2 + a_1 * a_3 + a_2 * a_3, a_1 * a_2 * a_3
    return (
        (10993 + 1039 * s_1 - 95 * s_2 + 31 * s_3) / Fraction(7560),
        (-2215 + 2279 * s_1 + 473 * s_2 - 73 * s_3) / Fraction(1260),
        (16661 + 491 * s_1 + 8261 * s_2 + 2171 * s_3) / Fraction(2520),
        (-8723 + 7027 * s_1 + 1357 * s_2 + 12067 * s_3) / Fraction(1890),
    )


def boundary(a_1, a_2):
    """Positive where the two x of σ are real, order 6."""
    alpha, beta, gamma = six(a_1, a_2)
    return beta**2 - 4 * alpha * (gamma - 2 * alpha)


def largest_modulus(coefficients, h_omega=0.0):
    rho, sigma = np.array(coefficients.rho, float), np.array(coefficients.sigma, float)
    return max(abs(np.roots(rho + h_omega**2 * sigma)))


def about(coefficients, number):
    return [message for message in defects(coefficients) if f"({number})" in message]


def test_order_two_is_verlet():
    method = construct(())
    assert (method.rho, method.sigma, method.rho_hat, method.rho_tilde) == ((1, -2, 1), (0, 1, 0), (-1, 1), (1,))
    assert interval_of_periodicity(method) == 2
    assert not defects(method)


@pytest.mark.parametrize("a", PARAMETERS)
def test_sigma_of_order_4(a):
    assert construct((a,)).sigma == (0, (7 + a) / 6, (5 * a - 1) / 3, (7 + a) / 6, 0)


def test_sigma_of_order_6():
    for pair in itertools.combinations(PARAMETERS, 2):
        alpha, beta, gamma = six(*pair)
        assert construct(pair).sigma == (0, alpha, beta, gamma, beta, alpha, 0)


def test_sigma_of_order_8():
    for triple in itertools.combinations(PARAMETERS, 3):
        alpha, beta, gamma, delta = eight(*triple)
        assert construct(triple).sigma == (0, alpha, beta, gamma, delta, gamma, beta, alpha, 0)


@pytest.mark.parametrize(
    ("denominator", "numerators"),
    [(2, (1, 1)), (12, (-1, 7, 7, -1)), (60, (1, -8, 37, 37, -8, 1)), (840, (-3, 29, -139, 533, 533, -139, 29, -3))],
)
def test_momentum_formula(denominator, numerators):
    a = PARAMETERS[: len(numerators) // 2 - 1]
    assert construct(a).delta_hat == tuple(Fraction(n, denominator) for n in numerators)


@pytest.mark.parametrize("k", [2, 4, 6, 8, 10, 12])
def test_momentum_formula_is_exact_for_polynomials_of_degree_k(k):
    """With q(t) = tᵐ, h = 1 and p_{j+½} = q_{j+1} − q_j the derivative at 0 comes out exactly, and not for m = k +
    1."""
    weights = construct(PARAMETERS[: k // 2 - 1]).delta_hat
    derivative = lambda m: sum(d * ((j + 1) ** m - j**m) for d, j in zip(weights, range(-k // 2, k // 2), strict=True))
    assert [derivative(m) for m in range(1, k + 1)] == [1] + [0] * (k - 1)
    assert derivative(k + 1) != 0


@pytest.mark.parametrize("steps", [2, 4, 6, 8, 10, 12])
def test_order_is_exact(steps):
    method = construct(PARAMETERS[: steps // 2 - 1])
    assert method.order == order(method.rho, method.sigma) == steps == len(method.rho) - 1
    # what (8) means: tᵐ solves q'' = m(m−1)tᵐ⁻² with no defect up to m = r + 1, and with one at m = r + 2
    defect = lambda m: (
        sum(r * j**m for j, r in enumerate(method.rho))
        - m * (m - 1) * sum(s * j ** (m - 2) for j, s in enumerate(method.sigma) if m > 1)
    )
    assert not any(defect(m) for m in range(steps + 2))
    assert defect(steps + 2)


def test_order_of_other_methods():
    numerov = ((1, -2, 1), (Fraction(1, 12), Fraction(10, 12), Fraction(1, 12)))
    assert order(*numerov) == 4
    assert order((1, -2, 1), (0, 1, Fraction(1, 10**30))) == 0
    assert order((1, -2, 1), (0, 0, 1)) == 1
    assert order((-1, 1), (1, 0)) == -1
    assert order((1, 1), (1, 0)) == -2
    with pytest.raises(InputError, match="both zero"):
        order((0, 0), (0, 0))


def test_factors_of_rho():
    for a in ((), (0.5,), (-0.7, 0.4), (-0.8, -0.4, 0.7), (-0.74, -0.67, -0.47, 0.78)):
        method = construct(a)
        assert np.polymul(method.rho_tilde, (-1, 1)).tolist() == list(method.rho_hat)
        assert np.polymul(method.rho_hat, (-1, 1)).tolist() == list(method.rho)
        assert method.sigma[0] == method.sigma[-1] == 0
        assert method.sigma == method.sigma[::-1]
        assert method.delta_hat == method.delta_hat[::-1]


def test_parameters_are_what_was_written():
    spellings = [(-0.7, 0.4), ("-0.7", "2/5"), (Fraction(-7, 10), np.float64(0.4)), np.array([-0.7, 0.4])]
    assert len({construct(a) for a in spellings}) == 1
    assert construct([0]).a == (Fraction(0),)


@pytest.mark.parametrize("a", [0.5, "0.5", (math.nan,), (math.inf,), ("half",), ("1/0",), (None,), (1j,)])
def test_parameters_that_are_no_numbers(a):
    with pytest.raises(InputError, match="a "):
        construct(a)


@pytest.mark.parametrize("steps", sorted(RECOMMENDED))
def test_recommended_methods_are_good(steps):
    method = construct(RECOMMENDED[steps])
    assert method.order == steps
    assert not defects(method)


def test_a_good_method_of_order_10():
    method = construct((-0.74, -0.67, -0.47, 0.78))
    assert not defects(method)
    assert interval_of_periodicity(method) == pytest.approx(0.6716, abs=1e-4)


def test_experiment_b_is_refused_with_its_root():
    (message,) = defects(construct((-0.1, 0.4)))
    assert "1.3146" in message
    assert "(13)" in message


@pytest.mark.parametrize(
    ("a", "words"),
    [
        ((1.25,), "modulus 2.0000"),
        ((-1.25, 0.3), "a_j = -1.25"),
        ((1,), "multiple root -1"),
        ((-1,), "multiple root 1"),
        ((0.5, 0.5), "2 times"),
    ],
)
def test_condition_12(a, words):
    assert any(words in message for message in about(construct(a), 12))


def test_condition_13_against_root_moduli():
    """On a grid; nearer than .02 to the boundary a root from floats says nothing."""
    accepted = compared = 0
    for a_1, a_2 in itertools.combinations([Fraction(n, 20) for n in range(-19, 20, 2)], 2):
        method = construct((a_1, a_2))
        if abs(boundary(a_1, a_2)) > 0.02:
            good = max(abs(np.roots(np.array(method.sigma, float)))) < 1 + 1e-9
            assert good == (not about(method, 13)), (a_1, a_2)
            accepted, compared = accepted + good, compared + 1
    assert compared > 150
    assert 30 < accepted < compared - 30


def test_condition_13_at_the_boundary():
    """β² = 4α(γ − 2α) approached to 1e-40 from both sides, far below what floats can tell."""
    a_1, good, bad = Fraction(2, 5), Fraction(-7, 10), Fraction(-1, 10)
    while good - bad < -Fraction(1, 10**40):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if boundary(a_1, middle) > 0 else (good, middle)
    assert not defects(construct((a_1, good)))
    assert about(construct((a_1, bad)), 13)


def test_a_double_root_at_minus_one_is_on_the_circle():
    """σ = ζ(ζ + 1)²: refused for its double root, and not for a root off the unit circle."""
    double = dataclasses.replace(construct((0.5,)), sigma=tuple(Fraction(s) for s in (0, 1, 2, 1, 0)))
    assert any("multiple root" in message for message in defects(double))
    assert not any("off the unit circle" in message for message in defects(double))


def test_multiple_roots_of_sigma_are_seen():
    """Made by hand, since no rational a need lie on the boundary: ζ(ζ²+1)², and ζ(ζ−1)²(ζ²+1) with its double root
    1."""
    method = construct((-0.7, 0.4))
    for sigma in ((0, 1, 0, 2, 0, 1, 0), (0, 1, -2, 2, -2, 1, 0)):
        changed = dataclasses.replace(method, sigma=tuple(Fraction(s) for s in sigma))
        (message,) = about(changed, 13)
        assert "multiple" in message
        assert about(changed, 8)


def test_reducible_and_unsymmetric_methods_are_seen():
    method = construct((-0.7, 0.4))
    shared = np.polymul(np.polymul((1, Fraction(4, 5), 1), (1, 0, 1)), (1, 0)).tolist()
    assert any("reducible" in message for message in defects(dataclasses.replace(method, sigma=(0, *shared))))
    assert "symmetric" in defects(dataclasses.replace(method, sigma=(0, 1, 1, 1, 1, 2, 0)))[0]
    assert any("β_{k−1}" in message for message in defects(dataclasses.replace(method, sigma=(0, 0, 1, 1, 1, 0, 0))))


@pytest.mark.parametrize("a", [-0.95, -0.5, 0.0, 0.5, 0.9, 0.99])
def test_periodicity_of_order_4(a):
    assert interval_of_periodicity(construct((a,))) == pytest.approx(math.sqrt(6 * (1 - a) / (2 - a)), rel=1e-14)


@pytest.mark.parametrize(
    ("a", "omega", "digits"), [((-0.7, 0.4), 0.7218, 4), ((0.66, -0.26), 1.0503, 4), ((-0.8, -0.4, 0.7), 0.938, 3)]
)
def test_periodicity_of_known_methods(a, omega, digits):
    assert round(interval_of_periodicity(construct(a)), digits) == omega


def test_largest_periodicity_of_order_6():
    """Among the good methods around (.66, −.26), and the paper's bound 1.05 on a coarse grid of all."""
    candidates = [(a_1 / 100, a_2 / 100) for a_1 in range(63, 70) for a_2 in range(-29, -22)]
    candidates += itertools.combinations([n / 10 for n in range(-9, 10, 2)], 2)
    values = {a: interval_of_periodicity(method) for a in candidates if not defects(method := construct(a))}
    assert max(values, key=lambda a: values[a]) == (0.66, -0.26)
    assert max(values.values()) == pytest.approx(1.0503, abs=5e-5)
    assert min(values.values()) > 0


@pytest.mark.parametrize(
    "a",
    [
        (0.5,),
        (-0.7, 0.4),
        (-0.1, 0.4),
        (0.66, -0.26),
        (-0.8, -0.4, 0.7),
        (-0.98, 0.96),
        (-0.74, -0.67, -0.47, 0.78),
        (-0.9, -0.5, 0.3, 0.8),
    ],
)
def test_periodicity_against_brute_force(a):
    method = construct(a)
    omega = interval_of_periodicity(method)
    # a double root of floats is off by the root of round-off, hence 1e-6; hω → 0 has the double root 1
    assert max(largest_modulus(method, x) for x in np.linspace(0.01, omega * (1 - 1e-6), 1000)) < 1 + 1e-6
    assert largest_modulus(method, omega + 1e-4) > 1 + 1e-4


def test_narrow_unstable_window_is_found():
    """Near hω = arccos(.97) the principal root meets a parasitic one and leaves for 1.2e-4; a scan in steps of .001
    steps over it."""
    method = construct((-0.97, -0.2, 0.3, 0.7))
    omega = interval_of_periodicity(method)
    assert omega == pytest.approx(0.245505, abs=1e-6)
    assert largest_modulus(method, omega - 1e-6) < 1 + 1e-7
    assert largest_modulus(method, math.acos(0.97)) > 1 + 2e-5
    scan = [x for x in np.arange(0.01, 1, 0.001) if largest_modulus(method, x) > 1 + 1e-6]
    assert scan[0] > 0.3


def test_roots_may_pass_without_leaving():
    """At order 8 the meeting near arccos(.999) is harmless, and must not be taken for an end."""
    method = construct((-0.999, -0.2, 0.5))
    omega = interval_of_periodicity(method)
    assert omega == pytest.approx(1.0639, abs=1e-4)
    assert max(largest_modulus(method, x) for x in np.linspace(0.01, 0.08, 1000)) < 1 + 1e-6
    assert largest_modulus(method, omega + 1e-4) > 1 + 1e-4


def test_no_periodicity_without_condition_12():
    assert interval_of_periodicity(construct((1.25,))) == 0
    assert interval_of_periodicity(construct((-1.25, 0.3))) == 0


@pytest.mark.parametrize("a", RECOMMENDED.values())
def test_smallest_gap_against_roots(a):
    method = construct(a)
    roots = np.concatenate([np.exp(1j * np.arccos(-np.array(a))), np.roots(np.array(method.sigma[1:-1], float)), [1.0]])
    angles = np.sort(np.angle(roots[roots.imag >= 0]))
    assert smallest_gap(method) == pytest.approx(min(np.diff(angles)), rel=1e-9)


def test_smallest_gap_at_the_extremes():
    assert smallest_gap(construct(())) == math.inf
    assert smallest_gap(construct((0.5, 0.5))) == 0
    double = dataclasses.replace(construct((-0.7, 0.4)), sigma=tuple(Fraction(s) for s in (0, 1, 0, 2, 0, 1, 0)))
    assert smallest_gap(double) == 0
