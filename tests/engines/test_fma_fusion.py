"""How operations are put together before they are written: exactly the same numbers, by fewer operations."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest

from geomint.engines.scalar.fma_fusion import OptimizingCode
from geomint.engines.scalar.values import constant


class Rational:
    """An exact number, and the operations that led to it."""

    def __init__(self, x, cost=0, parents=()):
        self.x, self.cost, self.parents = x, cost, parents

    def live(self, seen=None):
        """How many operations it took."""
        seen = set() if seen is None else seen
        if id(self) in seen:
            return 0
        seen.add(id(self))
        return self.cost + sum(x.live(seen) for x in self.parents if isinstance(x, Rational))


PLAIN = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "div": lambda x, y: x / y,
    "abs": abs,
    "rough": lambda x: 1 / x,
    "select": lambda which, yes, no: yes if which else no,
}


class Exact(OptimizingCode):
    longest = 10**6

    def number(self, x):
        return Fraction(x) if constant(x) else x.x

    def emit(self, operation, x):
        which = x[:1] if operation == "select" else []
        return Rational(
            PLAIN[operation](*which, *map(self.number, x[len(which) :])),
            int(operation not in ("select", "neg", "abs")),
            tuple(x),
        )

    def emit_fused(self, form, x, y, z):
        a, b, c = map(self.number, (x, y, z))
        return Rational({"xy+z": a * b + c, "z-xy": c - a * b, "xy-z": a * b - c}[form], 1, (x, y, z))

    def is_real(self, x):
        return True


class Unfused(Exact):
    can_fuse = False


CONSTANTS = (1.0, -1.0, 2.0, -2.0, 0.5, 4.0, -0.25, 3.0, 1250.0, 0.0)


def operations(random, count):
    """A program: operations on the results of earlier ones, and on constants."""
    out = []
    for k in range(count):
        operation = random.choice(["add", "sub", "mul", "neg", "div", "abs", "rough", "select", "mul", "add", "sub"])
        operands = 1 if operation in ("neg", "abs", "rough") else 2
        chosen = [
            int(random.integers(k + 4)) if random.random() < 0.75 else float(random.choice(CONSTANTS))
            for _ in range(operands)
        ]
        if all(isinstance(x, float) for x in chosen):
            chosen[0] = int(random.integers(k + 4))
        out.append((str(operation), chosen, bool(random.random() < 0.5)))
    return out


@pytest.mark.parametrize("code", [Exact, Unfused])
@pytest.mark.parametrize("seed", range(40))
def test_the_same_numbers(seed, code):
    random = np.random.default_rng(seed)
    code, values = code(), [Rational(Fraction(int(random.integers(-9, 10)), 7)) for _ in range(4)]
    for x in values[: seed % 4]:
        code.declare_argument(x)
    expected = [x.x for x in values]
    for operation, chosen, which in operations(random, 60):
        plain = [Fraction(x) if isinstance(x, float) else expected[x] for x in chosen]
        if (operation == "div" and plain[1] == 0) or (operation == "rough" and plain[0] == 0):
            operation, chosen, plain = "mul", [chosen[0], 2.0], [plain[0], Fraction(2)]  # nothing is divided by zero
        first = [which] if operation == "select" else []
        values.append(code.value(operation, *first, *(x if isinstance(x, float) else values[x] for x in chosen)))
        expected.append(PLAIN[operation](*first, *plain))
        if expected[-1].denominator > 10**40 or abs(expected[-1].numerator) > 10**40:  # numbers that grow tell no more
            values[-1], expected[-1] = Rational(Fraction(1, 3)), Fraction(1, 3)
    for value, number in zip(values, expected, strict=True):
        assert code.number(code.materialized(value)) == number


def test_fewer_operations():
    code = Exact()
    a, b, c, d = (Rational(Fraction(k)) for k in (3, 5, 7, 11))
    value, times = code.value, lambda factor, x: code.value("mul", x, factor)
    took = lambda x: code.materialized(x).live()
    assert took(value("mul", times(2.0, a), times(4.0, b))) == 2  # 8(ab)
    assert took(value("sub", times(2.0, value("mul", a, b)), times(2.0, value("mul", c, d)))) == 3  # 2(ab − cd)
    assert took(value("sub", a, value("neg", a))) == 1  # 2a
    assert took(value("add", c, times(-2.0, value("sub", a, b)))) == 2  # c − 2(a − b)
    assert took(times(0.25, times(4.0, value("mul", a, b)))) == 1
    assert took(times(1250.0, times(2.0, a))) == 1
    assert took(value("sub", times(2.0, a), b)) == 1
    assert took(value("select", True, times(2.0, value("mul", a, b)), 0.0)) == 2


@pytest.mark.parametrize("first", ["add", "sub"])
@pytest.mark.parametrize("second", ["add", "sub"])
def test_sums_of_two_products(first, second):
    for whole, other, cost in (
        (lambda v, pair, a, b, c, d: v(second, b, pair), "b ± (ab ± cd)", 2),
        (lambda v, pair, a, b, c, d: v(second, pair, b), "(ab ± cd) ± b", 2),
        (lambda v, pair, a, b, c, d: v(second, v("mul", b, c), pair), "bc ± (ab ± cd)", 3),
        (
            lambda v, pair, a, b, c, d: v(second, pair, v("sub", v("mul", a, c), v("mul", b, d))),
            "(ab ± cd) ± (ac − bd)",
            4,
        ),
    ):
        code, numbers = Exact(), [Rational(Fraction(k)) for k in (3, 5, 7, 11)]
        value = code.value
        pair = value(first, value("mul", numbers[0], numbers[1]), value("mul", numbers[2], numbers[3]))
        assert code.materialized(whole(value, pair, *numbers)).live() == cost, other


def test_what_was_asked_for_is_one_number():
    """A product or a pair that was written, for a comparison say, is the same number in a sum: not one that was never
    rounded."""
    for factor in (1.0, -2.0):
        for outside in (False, True):
            for make in (
                lambda v, a, b, c: v("mul", a, b),
                lambda v, a, b, c: v("sub", v("mul", a, b), v("mul", b, c)),
            ):
                code = Exact()
                a, b, c = (Rational(Fraction(k)) for k in (3, 5, 7))
                if outside:
                    a, b = code.materialized(code.value("add", a, c)), code.materialized(code.value("add", b, c))
                with code.scope() if outside else contextlib.nullcontext():
                    x = make(code.value, a, b, Rational(Fraction(2)))
                    written = code.materialized(code.value("mul", factor, x))
                    for operation, expected in (("add", written.x + 7), ("sub", written.x - 7)):
                        made = code.materialized(code.value(operation, code.value("mul", factor, x), c))
                        assert made.x == expected
                        assert (
                            made.live({id(written), *map(id, written.parents)}) == 1
                        )  # and −2x is −2 times what x was written as
                    assert code.number(code.materialized(code.value("sub", x, x))) == 0


def test_what_is_given_costs_nothing_in_a_loop():
    """x² + y² − L², and p − ½hg: L² and ½hg are there before."""
    code = Exact()
    length, h, gravity = (Rational(Fraction(k)) for k in (3, 5, 7))
    for x in (length, h, gravity):
        code.declare_argument(x)
    value = code.value
    with code.scope():
        x, y, p = (Rational(Fraction(k)) for k in (11, 13, 17))
        moving = lambda made: code.materialized(made).live({i for i, (depth, _) in code.depths.items() if depth == 0})
        assert (
            moving(value("sub", value("add", value("mul", x, x), value("mul", y, y)), value("mul", length, length)))
            == 2
        )
        assert moving(value("sub", p, value("mul", 0.5, value("mul", h, gravity)))) == 1


def test_what_is_used_often_is_whole():
    """p − (2a)x + (2b)y with 2a and 2b computed once: two operations for every x and y, not three."""
    code = Exact()
    a, b, p = (Rational(Fraction(k)) for k in (3, 5, 7))
    doubled = [code.materialized(code.value("mul", 2.0, x)) for x in (a, b)]
    for k in range(3):
        products = [code.value("mul", x, Rational(Fraction(k + i))) for i, x in enumerate(doubled)]
        made = code.value("sub", p, code.value("sub", *products))
        assert code.materialized(made).live({id(x) for x in doubled}) == 2
        assert code.number(code.materialized(made)) == 7 - 6 * k + 10 * (k + 1)


def test_products_leave_loops():
    """A factor of a product goes to the operand that was there before the loop: it is applied once, not in every
    round."""
    code = Exact()
    a, b = Rational(Fraction(3)), Rational(Fraction(5))
    outside = code.value("add", a, b)
    with code.scope():
        inside = Rational(Fraction(7))
        made = code.materialized(code.value("mul", code.value("mul", inside, outside), 2.0))
        doubled = code.materialized(code.value("mul", outside, 2.0))
        assert made.x == 112
        assert any(x is doubled for x in made.parents)
