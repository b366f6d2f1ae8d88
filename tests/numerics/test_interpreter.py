"""The interpreter of jaxprs, with the simplest rule set: evaluation by JAX itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geomint.numerics.interpreter import Interpreter


class Evaluator(Interpreter):
    """Values are arrays, and every primitive is its own rule."""

    def __init__(self):
        self.names = []

    def constant(self, x):
        return jnp.asarray(x)

    def literal(self, x):
        return jnp.asarray(x.val, x.aval.dtype)

    def decided(self, x):
        return int(x)

    def row(self, x, k):
        return x[k]

    def stack(self, rows, aval):
        return jnp.stack(rows) if rows else jnp.zeros(aval.shape, aval.dtype)

    def without_rule(self, equation, operands):
        self.names.append(equation.primitive.name)
        results = equation.primitive.bind(*operands, **equation.params)
        return list(results) if equation.primitive.multiple_results else results


@jax.custom_jvp
def cube(x):
    return x**3


cube.defjvp(lambda x, v: (cube(*x), 3 * x[0] ** 2 * v[0]))


def scanned(reverse, length=3):
    def body(carry, x):
        return carry * x + 1.0, (carry, x - carry)

    return lambda q: jax.lax.scan(body, q[0], q[:length], reverse=reverse)


PROGRAMS = {
    "a constant array": lambda q: q * np.arange(3.0),
    "jit": lambda q: jax.jit(jnp.sin)(q) + 1,
    "checkpoint": lambda q: jax.checkpoint(lambda x: jnp.sin(x) * x)(q),
    "custom derivatives": lambda q: cube(q),
    "scan": scanned(False),
    "a scan backwards": scanned(True),
    "a scan of no rows": scanned(False, 0),
    "while": lambda q: jax.lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] * 2, s[1] + q), (1.0 + q[0], q)),
    "a while that never begins": lambda q: jax.lax.while_loop(lambda s: s[0] > 10, lambda s: 2 * s, q),
    "cond": lambda q: [jax.lax.cond(q[0] > k, jnp.sin, jnp.cos, q) for k in (0.0, 1.0)],
    "an index of a branch out of range": lambda q: [
        jax.lax.switch(i + q[0].astype(int), [jnp.sin, jnp.cos, jnp.tan], q) for i in (-5, 0, 1, 2, 7)
    ],
    "a linear solve": lambda q: jax.lax.custom_linear_solve(
        lambda x: x * (1 + q), q, lambda _, r: r / (1 + q), symmetric=True
    ),
    "a result that is an argument": lambda q: (q, 2.0, q),
}
INSIDE = {"jit", "pjit", "scan", "while", "cond", "custom_jvp_call", "custom_linear_solve", "checkpoint", "remat"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_evaluated(name):
    q = jnp.array([0.3, 1.7, 2.2])
    interpreter = Evaluator()
    found = interpreter.evaluate(jax.make_jaxpr(PROGRAMS[name])(q), [q])
    expected = jax.tree.leaves(PROGRAMS[name](q))
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)
    assert not INSIDE & {*interpreter.names}  # programs inside equations were interpreted, not handed to JAX


def test_a_rule_may_be_a_method_an_entry_of_the_table_or_absent():
    class Rules(Evaluator):
        table = {"cos": lambda equation, x: x + 10, "sin": lambda equation, x: x + 20}
        rule_scan = None

        def rule_sin(self, equation, x):
            return x + 1

    q, rules = jnp.array([0.3, 1.7, 2.2]), Rules()
    found = rules.evaluate(jax.make_jaxpr(lambda q: (jnp.sin(q), jnp.cos(q), scanned(False)(q)))(q), [q])
    np.testing.assert_allclose(found[0], q + 1)
    np.testing.assert_allclose(found[1], q + 10)
    assert "scan" in rules.names
