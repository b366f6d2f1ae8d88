"""Explicit symmetric multistep methods Σ α_j q_{n+j} = h² Σ β_j f_{n+j} of order r = k: built and judged in exact
arithmetic.

A method is chosen by k/2 − 1 numbers a_j, which place the roots of ρ(ζ) = Σ α_j ζʲ = (ζ−1)² Π(ζ² + 2a_jζ + 1). Then
σ(ζ) = Σ β_j ζʲ of degree k − 1 follows from the order condition

    ρ(ζ)/log²ζ − σ(ζ) = O((ζ−1)^r)                                                                     (8)

and energy and momentum stay near their values for a long time under constraints if

    all roots of ρ are on the unit circle, and simple except the double root 1;                        (12)
    all non-zero roots of σ are on the unit circle, and simple.                                        (13)

A symmetric polynomial divided by ζ^{k/2} is a polynomial in x = (ζ + 1/ζ)/2, and a pair of roots ζ, 1/ζ is on the unit
circle exactly when x is in [−1, 1]. So (13) and the linear stability are questions about real roots in an interval,
which Sturm's theorem decides exactly. At double roots, where both properties are lost, floating-point roots are
inaccurate.

Reference: Console, Hairer, Lubich, Symmetric multistep methods for constrained Hamiltonian systems, Numer. Math. 124
(2013) 517; the numbers of the formulas are theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import SupportsFloat

import numpy as np

from ..errors import InputError

# By ascending powers, without trailing zeros; the zero polynomial is empty.
Polynomial = list[Fraction]

# order -> a. 4: the heavy top; 6: method (A); 8: section 4.1.
RECOMMENDED: dict[int, tuple[float, ...]] = {4: (0.5,), 6: (-0.7, 0.4), 8: (-0.8, -0.4, 0.7)}


@dataclass(frozen=True)
class Coefficients:
    """A k-step method of order k; every tuple by ascending index j.

    `rho` and `sigma` are α_j and β_j, j = 0…k, with β_0 = β_k = 0. `rho_hat`, of ρ/(ζ−1), are the α̂_j of the form (10)
    in momenta, Σ α̂_j p_{n+j+½} = h Σ β_j f_{n+j}; `rho_tilde` is ρ/(ζ−1)². `delta_hat` gives the momentum at a grid
    point, p_n = Σ δ̂_j p_{n+j+½} with j = −k/2…k/2−1, (11).
    """

    a: tuple[Fraction, ...]
    order: int
    rho: tuple[Fraction, ...]
    sigma: tuple[Fraction, ...]
    rho_hat: tuple[Fraction, ...]
    rho_tilde: tuple[Fraction, ...]
    delta_hat: tuple[Fraction, ...]


def construct(a: Iterable[SupportsFloat | str]) -> Coefficients:
    """The explicit symmetric method of k = 2·len(a) + 2 steps and order k; a float stands for its shortest decimal,
    .7 for 7/10.

    Any such method is constructed; `defects` lists why it must not be used.
    """
    parameters = _rationals(a)
    k = 2 * len(parameters) + 2
    rho_tilde: Polynomial = [Fraction(1)]
    for a_j in parameters:
        rho_tilde = _multiply(rho_tilde, [Fraction(1), 2 * a_j, Fraction(1)])
    minus_one = [Fraction(-1), Fraction(1)]
    rho_hat = _multiply(rho_tilde, minus_one)
    # With u = ζ − 1 condition (8) is about Taylor coefficients at u = 0, and k coefficients of σ meet k conditions: σ
    # is the Taylor polynomial of ρ/log² = ρ̃·(u/log(1+u))². It is symmetric, hence β_0 = 0.
    logarithm = _logarithm(k)
    inverse = _reciprocal(_multiply(logarithm, logarithm), k)
    sigma = _shift(_multiply(_shift(rho_tilde, 1), inverse)[:k], -1)
    # Likewise ζ^{k/2} δ̂(ζ) is the Taylor polynomial of ζ^{k/2} log(ζ)/(ζ−1): the one difference formula on k + 1
    # points.
    binomial = [Fraction(math.comb(k // 2, j)) for j in range(k // 2 + 1)]
    delta_hat = _shift(_multiply(binomial, logarithm)[:k], -1)
    return Coefficients(
        parameters,
        k,
        tuple(_multiply(rho_hat, minus_one)),
        _padded(sigma, k + 1),
        tuple(rho_hat),
        tuple(rho_tilde),
        _padded(delta_hat, k),
    )


def order(rho: Sequence[Fraction], sigma: Sequence[Fraction]) -> int:
    """The exact order: the largest r in (8); −2 or −1 where ρ has not even the double root 1.

    In t = log ζ the defect ρ(eᵗ) − t²σ(eᵗ) is an exponential polynomial of dimension at most 3(k+1), so a zero of
    higher multiplicity means that it vanishes altogether.
    """
    terms = 3 * max(len(rho), len(sigma))
    logarithm = _logarithm(terms)
    right = _multiply(_multiply(logarithm, logarithm)[:terms], _shift(sigma, 1))
    # ρ is compared with log²·σ = u²·(log(1+u)/u)²·σ, u = ζ − 1
    left, right = _padded(_shift(rho, 1), terms), _padded([Fraction(0), Fraction(0), *right], terms)
    for j in range(terms):
        if left[j] != right[j]:
            return j - 2
    raise InputError("ρ and σ are both zero: no order can be given.")


def defects(coefficients: Coefficients) -> list[str]:
    """Why the method must not be used with constraints, in sentences; empty for a good one. Decided without
    round-off."""
    a, rho, sigma = coefficients.a, coefficients.rho, coefficients.sigma
    if rho != rho[::-1] or sigma != sigma[::-1]:
        return ["The method is not symmetric: α_j = α_{k−j} and β_j = β_{k−j} are needed."]
    found = []
    for a_j in sorted(set(a)):
        if abs(a_j) > 1:
            modulus = abs(a_j) + math.sqrt(a_j**2 - 1)
            found.append(
                f"a_j = {float(a_j):g} is not in (−1, 1): ρ has a root of modulus {modulus:.4f}, against (12)."
            )
        elif abs(a_j) == 1:
            found.append(f"a_j = {float(a_j):g} is not in (−1, 1): ρ has a multiple root {-int(a_j)}, against (12).")
        elif a.count(a_j) > 1:
            found.append(
                f"a_j = {float(a_j):g} is given {a.count(a_j)} times: ρ has multiple roots besides 1, against (12)."
            )
    reached, k = order(rho, sigma), len(rho) - 1
    if reached < k:
        found.append(f"The order is {reached}, less than the {k} of {k} steps, against (8).")
    if not sigma[k - 1]:
        found.append("β_{k−1} = 0: the newest multiplier does not enter the step and can't keep the constraint.")
    in_rho, in_sigma = _in_x(rho), _in_x(sigma)
    if not _all_on_circle(in_sigma):
        modulus = max(abs(np.roots([float(s) for s in _stripped(sigma)])))
        found.append(
            f"σ has a root of modulus {modulus:.4f}, off the unit circle: the multipliers grow like "
            f"{modulus:.4f}ⁿ, against (13)."
        )
    # x = ±1 is itself a double root of σ: ζ and 1/ζ have met there
    if _degree(_common(in_sigma, _derivative(in_sigma))) > 0 or not _value(in_sigma, 1) or not _value(in_sigma, -1):
        found.append("σ has a multiple root: the multipliers grow like n, against (13).")
    if _degree(_common(in_rho, in_sigma)) > 0:
        found.append("ρ and σ have a common root: the method is reducible.")
    return found


def interval_of_periodicity(coefficients: Coefficients) -> float:
    """Ω such that for all hω in (0, Ω) the roots of ρ + (hω)²σ are on the unit circle: the largest stable step of a
    vibration.

    In x the roots are those of R + wS, w = (hω)², and they lie on the curve w(x) = −R(x)/S(x). One can leave [−1, 1]
    only through an end, or where two meet: where w'(x) = 0, that is R'S − RS' = 0. Between such values of w stability
    does not change, so one test in each interval finds every unstable window, however narrow.
    """
    in_rho, in_sigma = _in_x(coefficients.rho), _in_x(coefficients.sigma)
    turning = _sum(_multiply(_derivative(in_rho), in_sigma), [-c for c in _multiply(in_rho, _derivative(in_sigma))])
    critical = {Fraction(0)}
    # a point too many does no harm
    for x in (*_real_roots(turning), Fraction(-1), Fraction(1)):
        if denominator := _value(in_sigma, x):
            critical.add(max(Fraction(0), -_value(in_rho, x) / denominator))
    ascending = sorted(critical)
    for low, high in pairwise(ascending):
        if not _all_on_circle(_sum(in_rho, [(low + high) / 2 * c for c in in_sigma])):
            return math.sqrt(low)
    # As w → ∞ one root follows x ~ −w and is gone: S has a smaller degree than R.
    return math.sqrt(ascending[-1])


def smallest_gap(coefficients: Coefficients) -> float:
    """The smallest distance, in radians, of two roots on the upper unit circle: of ρ, with 1 counted once, and of σ.

    (12) and (13) require only that no two roots of ρ and no two of σ coincide; close parasitic roots excite each other,
    and the energy becomes noisy. Small gaps near 1 are unavoidable: σ ≈ ρ/log² puts a root of σ next to a
    root of ρ (.005 for method (A), .0006 for the recommended one of order 8). A root counts with its multiplicity;
    `inf` where 1 is alone (k = 2).
    """
    cosines = [Fraction(1), *(-a_j for a_j in coefficients.a if abs(a_j) <= 1)]
    rest = _in_x(coefficients.sigma)
    while _degree(rest) > 0:
        cosines += _real_roots(rest)
        rest = _common(rest, _derivative(rest))
    angles = sorted(math.acos(x) for x in cosines)
    return min((high - low for low, high in pairwise(angles)), default=math.inf)


def _rationals(a: Iterable[SupportsFloat | str]) -> tuple[Fraction, ...]:
    if isinstance(a, str) or not isinstance(a, Iterable):
        raise InputError(
            f"a is a sequence of k/2 − 1 numbers, such as (−0.7, 0.4) for order 6; {a!r} is one value. Write ({a},)."
        )
    converted = []
    for a_j in a:
        try:
            # repr is the shortest decimal that is this float: .7 was meant as 7/10, not as 0.6999999999999999556
            converted.append(Fraction(a_j) if isinstance(a_j, int | str | Fraction) else Fraction(repr(float(a_j))))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise InputError(
                f"a holds {a_j!r}, which is not a finite real number or a fraction such as '7/10'."
            ) from error
    return tuple(converted)


# Polynomials and power series


def _stripped(p: Sequence[Fraction]) -> Polynomial:
    end = len(p)
    while end and not p[end - 1]:
        end -= 1
    return list(p[:end])


def _padded(p: Sequence[Fraction], length: int) -> tuple[Fraction, ...]:
    return (*p, *[Fraction(0)] * length)[:length]


def _degree(p: Polynomial) -> int:
    return len(p) - 1


def _sum(p: Polynomial, q: Polynomial) -> Polynomial:
    length = max(len(p), len(q))
    return _stripped([x + y for x, y in zip(_padded(p, length), _padded(q, length), strict=True)])


def _multiply(p: Sequence[Fraction], q: Sequence[Fraction]) -> Polynomial:
    product = [Fraction(0)] * max(0, len(p) + len(q) - 1)
    for i, x in enumerate(p):
        for j, y in enumerate(q):
            product[i + j] += x * y
    return product


def _divide(p: Polynomial, q: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder."""
    remainder, quotient = list(p), [Fraction(0)] * max(0, len(p) - len(q) + 1)
    for i in reversed(range(len(quotient))):
        quotient[i] = remainder[i + len(q) - 1] / q[-1]
        for j, y in enumerate(q):
            remainder[i + j] -= quotient[i] * y
    return quotient, _stripped(remainder)


def _derivative(p: Polynomial) -> Polynomial:
    return [j * c for j, c in enumerate(p)][1:]


def _value(p: Polynomial, x: Fraction | int) -> Fraction:
    total = Fraction(0)
    for c in reversed(p):
        total = total * x + c
    return total


def _shift(p: Sequence[Fraction], by: int) -> Polynomial:
    """The coefficients of p(u + by), by Horner's rule."""
    shifted: Polynomial = []
    for c in reversed(p):
        shifted = _sum(_multiply(shifted, [Fraction(by), Fraction(1)]), [c])
    return shifted


def _logarithm(terms: int) -> Polynomial:
    """log(1+u)/u = 1 − u/2 + u²/3 − …"""
    return [Fraction((-1) ** j, j + 1) for j in range(terms)]


def _reciprocal(p: Polynomial, terms: int) -> Polynomial:
    """1/p as a power series."""
    inverse: Polynomial = []
    for n in range(terms):
        known = sum((p[j] * inverse[n - j] for j in range(1, min(n, _degree(p)) + 1)), Fraction(0))
        inverse.append(((n == 0) - known) / p[0])
    return inverse


def _in_x(p: Sequence[Fraction]) -> Polynomial:
    """A symmetric p(ζ)/ζ^{k/2} as a polynomial in x = (ζ + 1/ζ)/2, through ζʲ + ζ⁻ʲ = 2T_j(x)."""
    middle = len(p) // 2
    result = [p[middle]]
    previous, current = [Fraction(2)], [Fraction(0), Fraction(2)]
    for c in p[middle + 1 :]:
        result = _sum(result, [c * t for t in current])
        previous, current = current, _sum([Fraction(0), *(2 * t for t in current)], [-t for t in previous])
    return _stripped(result)


# Real roots in [−1, 1]


def _primitive(p: Polynomial) -> Polynomial:
    """p times a positive number such that the coefficients are integers without a common divisor, or they grow
    without bound."""
    if not p:
        return p
    denominator = math.lcm(*(c.denominator for c in p))
    integers = [c.numerator * (denominator // c.denominator) for c in p]
    divisor = math.gcd(*integers)
    return [Fraction(c // divisor) for c in integers]


def _common(p: Polynomial, q: Polynomial) -> Polynomial:
    """The greatest common divisor, by Euclid."""
    while q:
        p, q = q, _primitive(_divide(p, q)[1])
    return p


def _sturm(p: Polynomial) -> list[Polynomial]:
    """The Sturm sequence p, p', −(p mod p'), … of p without its multiple roots."""
    p = _primitive(_divide(p, _common(p, _derivative(p)))[0]) if _degree(p) > 0 else p
    chain = [p, _primitive(_derivative(p))]
    while chain[-1]:
        chain.append(_primitive([-c for c in _divide(chain[-2], chain[-1])[1]]))
    return chain[:-1]


def _sign_changes(chain: list[Polynomial], x: Fraction | int) -> int:
    signs = [value > 0 for value in (_value(p, x) for p in chain) if value]
    return sum(left != right for left, right in pairwise(signs))


def _all_on_circle(p: Polynomial) -> bool:
    """Whether all roots in x are real and in [−1, 1]; Sturm counts the distinct ones in (−1, 1]."""
    chain = _sturm(p)
    inside = _sign_changes(chain, -1) - _sign_changes(chain, 1) + (not _value(chain[0], -1))
    return inside == _degree(chain[0])


def _real_roots(p: Polynomial) -> list[Fraction]:
    """The distinct roots in [−1, 1], each within 2⁻⁶⁴: isolated by Sturm's theorem, so none is missed, then
    bisected."""
    chain = _sturm(p)
    if _degree(chain[0]) < 1:
        return []
    roots = [] if _value(chain[0], -1) else [Fraction(-1)]
    pending = [(Fraction(-1), Fraction(1), _sign_changes(chain, -1), _sign_changes(chain, 1))]
    while pending:
        low, high, at_low, at_high = pending.pop()
        middle = (low + high) / 2
        if at_low - at_high == 1:
            roots.append(_bisected(chain[0], low, high))
        elif at_low > at_high:
            between = _sign_changes(chain, middle)
            pending += [(low, middle, at_low, between), (middle, high, between, at_high)]
    return sorted(roots)


def _bisected(p: Polynomial, low: Fraction, high: Fraction) -> Fraction:
    """The one root, a simple one, in (low, high]; low may be another root, so signs are compared with the one at
    high."""
    at_high = _value(p, high)
    if not at_high:
        return high
    while high - low > Fraction(1, 2**64):
        middle = (low + high) / 2
        at_middle = _value(p, middle)
        if not at_middle:
            return middle
        low, high = (low, middle) if (at_middle > 0) == (at_high > 0) else (middle, high)
    return (low + high) / 2
