"""Gradients through runs: backwards against stored, forwards and differences; memory that stays flat; what is refused
and warned of."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from helpers.zoo import fitting

FPU, PENDULUM, TRIPLE = gm.models.fpu(), gm.models.pendulum(), gm.models.triple_pendulum()
HENON = gm.models.henon_heiles()
CIRCLE = gm.System(lambda q: 1.3 * q[1] + 0.2 * q[0] ** 3, constraint=gm.OnSphere(1.0))
ON_CIRCLE = np.array([0.6, -0.8]), np.array([0.4, 0.3])


def seen(system, q, p, method, dt, steps, every, **settings):
    """A number that everything enters: every saved point by its own weight, and what else is shown."""
    run = gm.simulate(system, q, p0=p, method=method, dt=dt, t_end=steps * dt, save_every=every, **settings)
    weighted = lambda x: jnp.sum(jnp.cos(jnp.arange(x.size).reshape(x.shape)) * x)  # p has its own shape on a group
    return weighted(jnp.sin(run.q)) + weighted(run.p**2) + run.energy[-1] ** 2 + jnp.sum(run.multipliers[-1]) / 10


def apart(a, b):
    """The largest difference of two gradients, relative to the second."""
    a, b = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (a, b))
    return np.max(np.abs(a - b)) / np.max(np.abs(b))


def both_ways(system, q, p, method, *grid, **settings):
    """How far a gradient run backwards is from a stored one."""
    there = lambda way: jax.jit(
        jax.grad(lambda q, p: seen(system, q, p, method, *grid, gradient=way, **settings), (0, 1))
    )(jnp.asarray(q, float), jnp.asarray(p, float))
    return apart(there("backwards"), there("stored"))


def momentum(model):
    return np.asarray(
        gm.simulate(
            model.system,
            model.q0,
            model.v0,
            method=gm.Verlet() if model.system.constraint is None else gm.Rattle(),
            dt=1.0,
            t_end=0.0,
        ).p[0]
    )


# --- the way back is the way there ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "method", "dt", "steps", "settings"),
    [
        (FPU, gm.Verlet(), 0.005, 4000, {}),
        (FPU, gm.Composition(gm.Verlet(), order=8), 0.02, 1000, {"compensated": True}),
        (FPU, gm.IMEX(), 0.03, 1000, {}),
        (PENDULUM, gm.ZhangSkeel(), 0.1, 2000, {}),
        (PENDULUM, gm.SymmetricMultistep(8), 0.05, 2000, {}),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_backwards_is_stored(model, method, dt, steps, settings):
    assert both_ways(model.system, model.q0, momentum(model), method, dt, steps, 100, **settings) < 1e-9


@pytest.mark.parametrize(
    "method", [gm.Rattle(), gm.Shake(), pytest.param(gm.SymmetricMultistep(4), marks=pytest.mark.slow)], ids=repr
)
def test_backwards_is_stored_on_a_manifold(method):
    """The derivative knows the part of a carried momentum that is normal to the manifold, and the motion does not."""
    assert both_ways(CIRCLE, *ON_CIRCLE, method, 0.02, 1000, 50) < 1e-9


@pytest.mark.slow
def test_a_triple_pendulum_backwards():
    assert both_ways(TRIPLE.system, TRIPLE.q0, momentum(TRIPLE), gm.Rattle(), 0.01, 400, 50) < 1e-9


SYMMETRIC = [m for m in gm.methods.all() if m.traits.symmetric and not m.traits.event_driven]


@pytest.mark.slow
@pytest.mark.parametrize("method", SYMMETRIC, ids=repr)
def test_every_symmetric_method_runs_backwards(method):
    for free in (True, False):
        for problem in [p for p in fitting(method) if (p.system.constraint is None) is free][:1]:
            assert both_ways(problem.system, problem.at.q, problem.at.p, method, problem.step(method), 60, 20) < 1e-9


def test_where_every_step_is_saved():
    assert both_ways(HENON.system, HENON.q0, momentum(HENON), gm.Verlet(), 0.05, 300, 1) < 1e-12


# --- against differences, in all that may be differentiated ---------------------------------------------------------
@pytest.mark.parametrize("gradient", ["backwards", "stored"])
def test_params_mass_method_and_what_a_potential_refers_to(gradient):
    def final(x):
        inner, params, mass, beta, start = x
        system = gm.System(lambda q, k: k * jnp.sum(q**4) / 4 + inner * q[0] * q[1], mass=mass, params=params)
        return seen(
            system,
            jnp.array([start, 0.5]),
            jnp.array([0.2, -0.3]),
            gm.ZhangSkeel(beta=beta),
            0.1,
            40,
            10,
            gradient=gradient,
        )

    at = np.array([0.4, 0.8, 1.3, 0.3, 0.7])
    value, gradient_of = jax.jit(final), jax.jit(jax.grad(final))
    assert apart(gradient_of(at), [(value(at + 1e-6 * e) - value(at - 1e-6 * e)) / 2e-6 for e in np.eye(5)]) < 1e-7


def test_the_whole_carry_at_the_end():
    end = lambda q, way: sum(
        jnp.sum(x**2)
        for x in jax.tree.leaves(
            gm.simulate(
                HENON.system, q, method=gm.Verlet(), dt=0.1, t_end=5.0, save_every=50, gradient=way
            ).checkpoint.carry
        )
    )
    assert apart(*(jax.grad(end)(jnp.array([0.3, 0.1]), way) for way in ("backwards", "stored"))) < 1e-13


# --- with the rest of JAX -------------------------------------------------------------------------------------------
def energetic(q, gradient="auto"):
    return seen(HENON.system, q, jnp.array([0.2, 0.1]), gm.Verlet(), 0.05, 40, 10, gradient=gradient)


AT = jnp.array([0.3, -0.1])


def test_forward_mode_and_second_derivatives():
    stored = jax.jit(jax.grad(lambda q: energetic(q, "stored")))
    assert apart(jax.jit(jax.jacfwd(energetic))(AT), stored(AT)) < 1e-12
    assert apart(jax.jvp(energetic, (AT,), (jnp.array([1.0, 2.0]),))[1], stored(AT) @ np.array([1.0, 2.0])) < 1e-12
    bends = [(stored(AT + 1e-6 * e) - stored(AT - 1e-6 * e)) / 2e-6 for e in np.eye(2)]
    assert apart(jax.jit(jax.hessian(energetic))(AT), bends) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(
    "second",
    [lambda f: jax.jacrev(jax.jacrev(f)), lambda f: jax.jacrev(jax.jacfwd(f)), lambda f: jax.jacfwd(jax.jacfwd(f))],
)
def test_second_derivatives_in_any_order(second):
    exact = jax.jit(jax.hessian(lambda q: energetic(q, "stored")))(AT)
    assert apart(jax.jit(second(energetic))(AT), exact) < 1e-11


def test_the_derivative_of_a_forward_derivative():
    """Forward over forward: the linear map J(q) t is differentiated by q too, not only by t."""
    grid = dict(method=gm.Verlet(), dt=0.1, t_end=2.0, save_every=20)
    end = lambda q, way: gm.simulate(PENDULUM.system, q, [0.3], **grid, gradient=way).q[-1, 0]
    second = lambda way: float(jax.jit(jax.jacfwd(jax.jacfwd(lambda q: end(q, way))))(jnp.array([1.2]))[0, 0])
    assert abs(second("stored")) > 0.01
    assert second("backwards") == pytest.approx(second("stored"), rel=1e-11)


def test_vmap_inside_and_outside():
    many = jnp.stack([AT, AT + 0.1, AT - 0.2])
    gradient = jax.jit(jax.grad(energetic))
    one_by_one = jnp.stack([gradient(q) for q in many])
    assert apart(jax.vmap(gradient)(many), one_by_one) < 1e-13
    assert apart(jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(energetic)(x))))(many), one_by_one) < 1e-13
    assert apart(jax.jit(jax.vmap(jax.jacfwd(energetic)))(many), one_by_one) < 1e-12


# --- memory ---------------------------------------------------------------------------------------------------------
def memory(gradient, method, steps):
    final = lambda q: jnp.sum(
        gm.simulate(
            FPU.system, q, FPU.v0, method=method, dt=1e-3, t_end=steps * 1e-3, save_every=steps, gradient=gradient
        ).q[-1]
        ** 2
    )
    return jax.jit(jax.grad(final)).lower(jnp.asarray(FPU.q0, float)).compile().memory_analysis().temp_size_in_bytes


def test_memory_is_flat_backwards():
    assert memory("auto", gm.Verlet(), 10**3) == memory("auto", gm.Verlet(), 10**6) < 10**4


def test_stored_memory_grows_with_the_root():
    few, many = (memory("auto", gm.SymplecticEuler(), n) for n in (10**4, 10**6))
    assert many < 11 * few
    assert many < 10**6 * FPU.q0.nbytes / 10


def test_a_block_of_steps_in_pieces_has_all_its_steps():
    """70 steps between two saves are stored as 8 pieces of 8 and 6 more; the motion is that without a gradient."""
    grid = dict(dt=0.02, t_end=2.8, save_every=70, gradient="stored")
    final = lambda q: gm.simulate(HENON.system, q, HENON.v0, method=gm.SymplecticEuler(), **grid).q[-1, 0]
    found, slope = jax.jit(jax.value_and_grad(final))(jnp.asarray(HENON.q0, float))
    assert found == pytest.approx(final(HENON.q0), rel=1e-13)
    aside = np.array([1e-6, 0.0])
    assert slope[0] == pytest.approx((final(HENON.q0 + aside) - final(HENON.q0 - aside)) / 2e-6, rel=1e-7)


# --- what is chosen, refused and warned of --------------------------------------------------------------------------
def test_rounding_is_told():
    """Over a thousand units of time the motion of FPU forgets where it began; a pendulum does not."""

    def go(model):
        p = momentum(model)
        gradient = jax.jit(jax.grad(lambda q: seen(model.system, q, p, gm.Verlet(), 0.01, 100_000, 100_000)))
        jax.block_until_ready(gradient(jnp.asarray(model.q0, float)))
        jax.effects_barrier()

    with pytest.warns(UserWarning, match="missed the start by"):
        go(FPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(PENDULUM)


def test_a_small_miss_is_told():
    """On the saddle V = −½q² rounding grows by eᵗ: the way back from t = 25 misses the start by 8e-6, from t = 10 by
    2e-12."""
    saddle = gm.System(lambda q: -0.5 * jnp.sum(q**2))

    def go(steps):
        end = lambda q: gm.simulate(saddle, q, method=gm.Verlet(), dt=0.05, t_end=0.05 * steps, save_every=steps).q[
            -1, 0
        ]
        jax.block_until_ready(jax.jit(jax.grad(end))(jnp.ones(1)))
        jax.effects_barrier()

    with pytest.warns(UserWarning, match=r"missed the start by \d\.\de-0[56] of the size of q"):
        go(500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(200)


def test_damped_motions_are_stored():
    """Backwards, damping drives: the rounding of q near its rest position 1 would grow by e²⁵ here."""
    damped = gm.LagrangianSystem(
        lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(jnp.cosh(q - 1)), force=lambda q, v: -0.5 * v
    )
    final = lambda q: (
        1e4 * gm.simulate(damped, q, method=gm.Variational(), dt=0.1, t_end=100.0, save_every=1000).q[-1, 0]
    )
    assert apart(jax.jit(jax.grad(final))(jnp.array([0.8])), jax.jit(jax.jacfwd(final))(jnp.array([0.8]))) < 1e-11


def test_what_is_not_symmetric_is_not_run_backwards():
    with pytest.raises(gm.InputError, match="RungeKutta4.* is not symmetric: take gradient='stored'"):
        jax.grad(lambda q: seen(HENON.system, q, q, gm.RungeKutta4(), 0.1, 4, 1, gradient="backwards"))(AT)
    with pytest.raises(gm.InputError, match="Did you mean backwards"):
        gm.simulate(HENON.system, HENON.q0, method=gm.Verlet(), dt=0.1, t_end=1.0, gradient="backward")


def test_events_have_forward_derivatives_only():
    final = lambda v: gm.simulate(
        PENDULUM.system, PENDULUM.q0, v, method=gm.EnergyStepping(height=0.05), dt=0.1, t_end=1.0
    ).q[-1, 0]
    there = jax.jit(lambda v: jax.jvp(final, (v,), (jnp.ones(1),)))
    at = jnp.array([0.3])
    assert apart(there(at)[1], (there(at + 1e-6)[0] - there(at - 1e-6)[0]) / 2e-6) < 1e-6
    with pytest.raises(gm.GeomintError, match="use jax.jvp or jax.jacfwd"):
        jax.make_jaxpr(jax.grad(final))(at)


# --- runs that fail -------------------------------------------------------------------------------------------------
ESCAPE = gm.System(lambda q: -jnp.sum(q**4))


def escaped(q, method, gradient="auto"):
    return gm.simulate(ESCAPE, q, method=method, dt=0.05, t_end=2.0, save_every=4, gradient=gradient)


@pytest.mark.parametrize("gradient", ["backwards", "stored"])
def test_a_run_that_fails_is_not_a_number_from_there_on(gradient):
    """Gauss(2) finds no solution near the pole, and then some number; it must not look like a result."""
    method = gm.Gauss(2)
    with pytest.raises(gm.RunStopped) as stopped:
        gm.simulate(
            ESCAPE, np.ones(1), method=method, dt=0.05, t_end=2.0, save_every=4, engine="xla"
        )  # whose rounding it is that the pole amplifies
    kept = stopped.value.run
    traced = jax.jit(lambda q: (lambda run: (run.q, run.energy, run.status))(escaped(q, method, gradient)))
    q, energy, status = traced(jnp.ones(1))
    np.testing.assert_allclose(q[: len(kept)], kept.q, rtol=1e-12)
    for x in (q, energy, jnp.where(status == 0, status, jnp.nan)):
        assert np.isnan(x[len(kept) :]).all()
    last = lambda q: escaped(q, method, gradient).q[-1, 0]
    slope = jax.jit(jax.grad(last))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the way back misses
        assert np.isnan(slope(jnp.ones(1))).all()
        found = jax.jit(jax.vmap(jax.value_and_grad(last)))(jnp.array([[0.1], [1.0]]))
    assert np.isnan(found[0]).tolist() == [False, True]
    assert apart(found[1][0], slope(jnp.array([0.1]))) < 1e-12


def test_a_way_back_that_is_lost_is_told():
    def go():
        jax.block_until_ready(jax.jit(jax.grad(lambda q: escaped(q, gm.Verlet()).q[-1, 0]))(jnp.ones(1)))
        jax.effects_barrier()

    with pytest.warns(UserWarning, match="ran backwards for a gradient and met numbers that are not finite"):
        go()
