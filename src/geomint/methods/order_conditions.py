"""Order conditions in a free algebra: the coefficients of a splitting or a composition are checked, not trusted.

A method that multiplies flows is a product of exponentials of non-commuting symbols; it has order p exactly when the
product agrees with exp(h·(sum)) in all words of degree at most p. Symbols have degrees: in a splitting drift A and kick
B have degree 1; a symmetric method of order 2 is exp(h Y₁ + h³Y₃ + h⁵Y₅ + …), so its symbols have degrees 1, 3, 5, 7.

Reference: Hairer, Lubich, Wanner, Geometric Numerical Integration, chapter III.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Word = tuple[str, ...]
Series = dict[Word, float]

DEGREE = {"A": 1, "B": 1, "1": 1, "3": 3, "5": 5, "7": 7}


def _degree(word: Word) -> int:
    return sum(DEGREE[letter] for letter in word)


def multiply(left: Series, right: Series, up_to: int) -> Series:
    """The product, without the words of higher degree."""
    product: Series = {}
    degrees = {word: _degree(word) for word in right}
    for u, x in left.items():
        room = up_to - _degree(u)
        for w, y in right.items():
            if degrees[w] <= room:
                product[u + w] = product.get(u + w, 0.0) + x * y
    return product


def exponential(element: Series, up_to: int) -> Series:
    """1 + X + X²/2 + …"""
    total: Series = {(): 1.0}
    power: Series = {(): 1.0}
    for k in range(1, up_to + 1):
        power = multiply(power, element, up_to)
        for word, x in power.items():
            total[word] = total.get(word, 0.0) + x / math.factorial(k)
    return total


def _product(factors: Sequence[Series], up_to: int) -> Series:
    product: Series = {(): 1.0}
    for factor in factors:
        product = multiply(product, exponential(factor, up_to), up_to)
    return product


def _defects(product: Series, exact: Series, up_to: int) -> list[Series]:
    """product − exact, sorted by degree."""
    by_degree: list[Series] = [{} for _ in range(up_to + 1)]
    for word in product.keys() | exact.keys():
        by_degree[_degree(word)][word] = product.get(word, 0.0) - exact.get(word, 0.0)
    return by_degree


def _largest(series: Series) -> float:
    return max((abs(x) for x in series.values()), default=0.0)


def splitting_defect(stages: Sequence[tuple[str, float]], order: int, nystrom: bool = False) -> float:
    """The largest violated order condition of a kick–drift sequence up to `order`.

    With `nystrom` the potential depends on q alone and the kinetic energy is quadratic in p, so [B,[B,[B,A]]] = 0 and
    a defect along that commutator, which first appears in degree 4, does no harm.
    """
    factors = [{("A",) if kind == "drift" else ("B",): coefficient} for kind, coefficient in stages]
    defects = _defects(_product(factors, order), exponential({("A",): 1.0, ("B",): 1.0}, order), order)
    if nystrom and order == 4:
        # [B,[B,[B,A]]] = BBBA − 3 BBAB + 3 BABB − ABBB
        harmless = {"BBBA": 1.0, "BBAB": -3.0, "BABB": 3.0, "ABBB": -1.0}
        along = defects[4].get(tuple("BBBA"), 0.0)
        for word, x in harmless.items():
            defects[4][tuple(word)] = defects[4].get(tuple(word), 0.0) - along * x
    return max(_largest(d) for d in defects)


def composition_defect(coefficients: Sequence[float], order: int) -> float:
    """The largest violated order condition up to `order` of S(γ₁h)∘…∘S(γₛh), for any symmetric S of order 2."""
    odd = [k for k in (1, 3, 5, 7) if k <= order]
    factors = [{(str(k),): gamma**k for k in odd} for gamma in coefficients]
    defects = _defects(_product(factors, order), exponential({("1",): 1.0}, order), order)
    return max(_largest(d) for d in defects)
