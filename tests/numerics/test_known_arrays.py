"""Primitives on known arrays: numpy gives the bits of JAX."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from geomint.numerics.known_arrays import RULES, on_known

X = np.random.default_rng(0).normal(size=(3, 4)) * 10.0 ** np.arange(-2, 2)
N = np.array([[2**62, -3, 0, 7], [5, 2**62, -(2**63), 1], [0, 0, -1, 4]])
B = X > 0
EDGES = np.array(list(itertools.product([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e-300], repeat=2))).T


def programs():
    """Of (x, n, b, edges); every rule is used."""
    yield from (
        lambda x, n, b, e: lax.broadcast_in_dim(x, (2, 3, 5, 4), (1, 3)),
        lambda x, n, b, e: lax.broadcast_in_dim(e[0, 0], (2, 3), ()),
        lambda x, n, b, e: lax.reshape(x, (2, 6)),
        lambda x, n, b, e: lax.reshape(x, (12,), (1, 0)),
        lambda x, n, b, e: lax.slice(x, (0, 1), (3, 4), (2, 1)),
        lambda x, n, b, e: lax.slice(n, (1, 1), (2, 4)),
        lambda x, n, b, e: lax.dynamic_slice(x, (n[2, 3], n[1, 2]), (2, 3)),  # beyond both ends
        lambda x, n, b, e: lax.pad(x, e[1, 4], ((1, 2, 0), (-1, 0, 2))),
        lambda x, n, b, e: lax.pad(x, e[1, 0], ((-2, 1, 1), (0, -3, 1))),
        lambda x, n, b, e: lax.pad(e[0, 0], e[1, 1], ()),
        lambda x, n, b, e: x + lax.broadcasted_iota(float, (3, 4), 1),
        lambda x, n, b, e: n + lax.broadcasted_iota(int, (3, 4), 0),
        lambda x, n, b, e: jnp.squeeze(x[None, :, :, None], (0, 3)),
        lambda x, n, b, e: lax.transpose(x, (1, 0)),
        lambda x, n, b, e: lax.rev(x, (0, 1)),
        lambda x, n, b, e: lax.concatenate([x, x + x], 1),
        lambda x, n, b, e: jnp.stack([x, -x], 1),
        lambda x, n, b, e: jnp.copy(x),
        lambda x, n, b, e: [n.astype(to) for to in (float, np.int32, np.uint32, bool)],
        lambda x, n, b, e: [y.astype(to) for y, to in ((x, np.float32), (x, int), (b, int), (b, float))],
        lambda x, n, b, e: lax.select_n(b, x, -x),
        lambda x, n, b, e: lax.select_n(n.astype(np.int32) % 3, x, -x, x * x),
        lambda x, n, b, e: [f(x, x[::-1]) for f in (lax.add, lax.sub, lax.mul, lax.div)],
        lambda x, n, b, e: [f(*e) for f in (lax.add, lax.sub, lax.mul, lax.div)],
        lambda x, n, b, e: [f(n, n[::-1]) for f in (lax.add, lax.sub, lax.mul, lax.bitwise_and, lax.bitwise_xor)],
        lambda x, n, b, e: lax.div(n, n * 0 + 7),
        lambda x, n, b, e: [lax.neg(y) for y in (x, n, e)],
        lambda x, n, b, e: [f(y, y[::-1]) for f in (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge) for y in (n, b, e)],
        lambda x, n, b, e: [~b, ~n, b & b[::-1], b | b[::-1], b ^ b[::-1], n | n[::-1]],
    )  # fmt: skip


def evaluated(program, arguments, used):
    """A jaxpr, equation by equation."""
    known = dict(zip((*program.jaxpr.constvars, *program.jaxpr.invars), (*program.consts, *arguments), strict=True))
    read = lambda x: np.asarray(x.val, x.aval.dtype) if isinstance(x, jax.extend.core.Literal) else known[x]
    for equation in program.jaxpr.eqns:
        operands = [np.asarray(read(x)) for x in equation.invars]
        inner = equation.params.get("jaxpr")
        used.add(equation.primitive.name)
        results = on_known(equation, *operands) if inner is None else evaluated(inner, operands, used)
        known.update(zip(equation.outvars, results, strict=True))
    return [np.asarray(read(x)) for x in program.jaxpr.outvars]


def test_numpy_gives_the_bits_of_jax():
    everything = lambda *arguments: [f(*arguments) for f in programs()]
    arguments, used = (X, N, B, EDGES), set()
    right = [np.asarray(x) for x in jax.tree.leaves(jax.jit(everything)(*arguments))]
    found = evaluated(jax.make_jaxpr(everything)(*arguments), arguments, used)
    assert len(found) == len(right)
    for a, b in zip(found, right, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.kind == "f":  # of NaN the sign is free
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            a, b = np.nan_to_num(a, nan=0.0), np.nan_to_num(b, nan=0.0)
        assert a.tobytes() == b.tobytes()
    assert set(RULES) - used <= {"copy_p", "copy"}
