"""Functions whose ranges are known by sampling: of one number, of two, and of arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from geomint.numerics.intervals import Interval

# --- primitives -----------------------------------------------------------------------------------------------------
ONE = {
    "abs": (jnp.abs, -3, 3),
    "sign": (jnp.sign, -3, 3),
    "neg": (lambda x: -x, -3, 3),
    "floor": (jnp.floor, -3, 3),
    "ceil": (jnp.ceil, -3, 3),
    "round": (jnp.round, -3, 3),
    "square": (jnp.square, -3, 3),
    "twice the same factor": (lambda x: x * x, -3, 3),
    "cube": (lambda x: x**3, -3, 3),
    "fourth": (lambda x: x**4, -3, 3),
    "zeroth": (lambda x: x**0, -3, 3),
    "inverse": (lambda x: x**-1, 0.1, 3),
    "-2": (lambda x: x**-2, -4, -0.2),
    "-3": (lambda x: x**-3, -4, -0.2),
    "-14": (lambda x: x**-14, 0.5, 3),
    "12": (lambda x: x**12, -3, 3),
    "pow 1.5": (lambda x: x**1.5, 0, 4),
    "pow -.7": (lambda x: x**-0.7, 0.1, 4),
    "pow 2.0": (lambda x: jax.lax.pow(x, 2.0), -3, 3),
    "2 to the": (lambda x: 2.5**x, -3, 3),
    "sqrt": (jnp.sqrt, 0, 9),
    "rsqrt": (jax.lax.rsqrt, 0.01, 9),
    "cbrt": (jnp.cbrt, -8, 8),
    "exp": (jnp.exp, -20, 20),
    "exp2": (jnp.exp2, -500, 500),
    "expm1": (jnp.expm1, -5, 5),
    "log": (jnp.log, 0.01, 9),
    "log1p": (jnp.log1p, -0.9, 5),
    "sin": (jnp.sin, -20, 20),
    "cos": (jnp.cos, -20, 20),
    "sin in a quadrant": (jnp.sin, 1, 2),
    "cos in a quadrant": (jnp.cos, 2.5, 4),
    "tan": (jnp.tan, -1.5, 1.5),
    "tanh": (jnp.tanh, -5, 5),
    "sinh": (jnp.sinh, -300, 300),
    "cosh": (jnp.cosh, -5, 5),
    "atan": (jnp.arctan, -9, 9),
    "asin": (jnp.arcsin, -1, 1),
    "acos": (jnp.arccos, -1, 1),
    "asinh": (jnp.arcsinh, -9, 9),
    "acosh": (jnp.arccosh, 1, 9),
    "atanh": (jnp.arctanh, -0.9, 0.9),
    "logistic": (jax.nn.sigmoid, -9, 9),
    "erf": (jax.lax.erf, -3, 3),
    "erfc": (jax.lax.erfc, -3, 20),
    "twice": (lambda x: 2 * x, -3, 3),
    "scaled back": (lambda x: x * -0.3, -3, 3),
    "quotient": (lambda x: -3 / x, 0.1, 4),
    "relu": (jax.nn.relu, -3, 3),
    "clip": (lambda x: jnp.clip(x, -1, 2), -3, 3),
    "where": (lambda x: jnp.where(x > 0.5, x, -x), 1, 3),
    "ordered": (lambda x: jnp.where((x >= 0.5) & ~(x < 0.7) | (x != x), x, 2.0), 1, 3),
    "softplus": (jax.nn.softplus, -3, 3),
    "selu": (jax.nn.selu, -3, -0.1),
}


TWO = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "atan2": jnp.arctan2,
    "pow": lambda x, y: jnp.abs(x) ** y,
    "hypot": lambda x, y: jnp.sqrt(x * x + y * y),
    "le": lambda x, y: jnp.where(x <= y, x, y),
    "eq": lambda x, y: jnp.where(x == y, 1.0, 0.0),
}


@jax.custom_vjp
def own_gradient(x):
    return x**2


own_gradient.defvjp(lambda x: (x**2, x), lambda x, y: (2 * x * y,))


POINTS = jnp.array([3, 1, 1])


STRUCTURE = {
    "gather": lambda x: x[POINTS],
    "scatter": lambda x: x.at[POINTS[:2]].set(x[2:4] ** 2),
    "scatter-add": lambda x: x.at[POINTS].add(x[1:4]),
    "dynamic slice": lambda x: jax.lax.dynamic_slice(x, (POINTS[1],), (2,)),
    "update": lambda x: jax.lax.dynamic_update_slice(x, x[:2], (POINTS[1],)),
    "concatenate": lambda x: jnp.concatenate([x, jnp.zeros(2), -x]),
    "pad": lambda x: jnp.pad(x, 2),
    "rev": lambda x: x[::-1],
    "cumsum": jnp.cumsum,
    "diff": jnp.diff,
    "roll": lambda x: jnp.roll(x, 2),
    "split": lambda x: sum(jnp.split(x, 3)),
    "max": jnp.max,
    "min": jnp.min,
    "sum": lambda x: x.reshape(2, 3).sum(0),
    "mean": jnp.mean,
    "matrix": lambda x: jnp.asarray(np.arange(24.0).reshape(4, 6) - 11.5) @ x,
    "dot": lambda x: x @ x,
    "matrix product": lambda x: x.reshape(2, 3) @ x.reshape(3, 2),
    "batched": lambda x: jnp.einsum("bij,bj->bi", x[:, None, None] * jnp.ones((1, 2, 3)), jnp.outer(x, x[:3])),
    "norm": jnp.linalg.norm,
    "transpose": lambda x: x.reshape(2, 3).T,
    "iota": lambda x: x * jnp.arange(6),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c * y, c + y), 1.0, x),
    "loop": lambda x: jax.lax.fori_loop(0, 6, lambda i, s: s + x[i] ** 2, 0.0),
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda y: y**2, lambda y: -y, x),
    "certain cond": lambda x: jax.lax.switch(POINTS[1], [jnp.sin, jnp.cos, jnp.exp], x),
    "remat": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "jit": jax.jit(jnp.sum),
    "custom": jax.nn.silu,
    "custom vjp": own_gradient,
    "long loop of constants": lambda x: x * jax.lax.fori_loop(0, 200, lambda i, c: c / 2 + POINTS[0], 1.0),
    "vmap": jax.vmap(lambda y: y * jnp.cos(y)),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.maximum(x, 0.5) ** 3) + jnp.prod(x[:2])),
    "expand": lambda x: jnp.expand_dims(x, 1) - x,
    "triangle": lambda x: jnp.tril(jnp.outer(x, x)),
    "largest": lambda x: x * jnp.argmax(x),
    "float32": lambda x: x.astype(jnp.float32) * 3,
    "three ways": lambda x: jnp.select([x > 1, x > 0], [x, 2 * x], -x),
}


def inside(values, box: Interval) -> bool:
    """Are all values in the interval? Those that do not exist do not count."""
    values = np.asarray(values)
    return bool(np.all(~((values < np.asarray(box.low)) | (values > np.asarray(box.high)))))
