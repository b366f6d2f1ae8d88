"""Taylor series: the derivatives are those of forward differentiation, whatever the function is made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.numerics.taylor import derivatives
from geomint.system.mechanics import Mechanics

FUNCTIONS = {
    "polynomial": lambda t: 1 - 2 * t + 3 * t**5,
    "powers": lambda t: jnp.stack([t**-3, t**7, t**0, t**2]),
    "quotient": lambda t: (1 + t**2) / (2 - t),
    "by a constant": lambda t: (t - 1) ** 2 / 3,
    "root": lambda t: jnp.sqrt(1 + t**2),
    "exponential": lambda t: jnp.exp(-(t**2)),
    "without rules": lambda t: jnp.sin(t) * jnp.log(t) + jnp.tanh(t) + t**1.5 + jnp.arctan2(t, 2.0),
    "decisions": lambda t: jnp.where(t > 0, t**3, t) + jnp.abs(t) * jnp.maximum(t, 0.2) + jnp.floor(t),
    "matrices": lambda t: jnp.sum((jnp.array([[t, 1.0], [2.0, t * t]]) @ jnp.array([t, jnp.exp(t)])) ** 2),
    "determinant": lambda t: jnp.linalg.det(jnp.array([[t, 1.0, t * t], [2.0, t, 3.0], [1.0, 2.0, 4.0]])),
    "its own derivative": lambda t: jax.nn.softplus(t) * t,
    "a loop": lambda t: jax.lax.fori_loop(0, 3, lambda _, x: x * x + t, t),
    "places": lambda t: jnp.cumsum(jnp.zeros(4).at[np.array([0, 2, 2])].add(t**2)[::-1])[1:],
    "a constant": lambda t: jnp.ones(3),
    "itself": lambda t: t,
    "stopped": lambda t: t * jax.lax.stop_gradient(t),
}


def forward(function, t, order):
    out = []
    for _ in range(order + 1):
        out.append(function(t))
        function = lambda s, f=function: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_forward_differentiation(name):
    for order in (2, 4):
        for t in (0.7, 1.6):
            found, expected = (f(FUNCTIONS[name], jnp.asarray(t), order) for f in (derivatives, forward))
            assert len(found) == order + 1
            for x, y in zip(found, expected, strict=True):
                assert x.shape == y.shape
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", ["argon_cluster", "kepler", "morse_cluster", "henon_heiles", "fpu", "double_pendulum"])
def test_potentials_along_a_ray(text):
    model = gm.models.named(text)
    mech = Mechanics(model.system, model.q0.shape)
    along = lambda t: mech.potential(model.q0 + t * (model.v0 + 0.1))
    found, expected = (jax.jit(lambda t, f=f: f(along, t, 4))(1e-3) for f in (derivatives, forward))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_it_may_be_traced_mapped_and_differentiated():
    def fourth(k, t):
        return derivatives(lambda s: jnp.exp(k * s), t, 4)[4]

    t, k = jnp.linspace(0.1, 1, 5), jnp.linspace(1, 2, 5)
    np.testing.assert_allclose(jax.jit(jax.vmap(fourth))(k, t), k**4 * jnp.exp(k * t), rtol=1e-13)
    np.testing.assert_allclose(jax.grad(fourth)(1.3, 0.4), (4 * 1.3**3 + 0.4 * 1.3**4) * np.exp(0.4 * 1.3), rtol=1e-13)


def test_there_are_fewer_operations():
    system = gm.models.argon_cluster()
    mech = Mechanics(system.system, system.q0.shape)
    along = lambda t: mech.potential(system.q0 + t * system.v0)
    size = lambda f: len(jax.make_jaxpr(lambda t: f(along, t, 4))(0.0).jaxpr.eqns)
    assert size(derivatives) < size(forward) / 2
