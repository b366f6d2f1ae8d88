"""Solids in motion: energy-stepping along lines, implicit methods and a stiff inclusion, the model of the cube."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import fem
from geomint.methods.base import State
from geomint.system.mechanics import Mechanics

MODEL = gm.models.elastic_cube(cells=2)


def test_the_model_of_the_cube():
    """That of the paper: kinetic energy ½ω²I, I = ρ/6 for a solid cube, and the lumped masses lie further out."""
    paper = gm.models.elastic_cube()
    assert len(paper.q0) == 2969
    kinetic = 0.5 * float(np.sum(paper.system.mass * paper.v0**2))
    np.testing.assert_allclose(kinetic, 8.431e-3, rtol=1e-4)
    exact = fem.consistent_mass(paper.system.potential.mesh, 0.1)
    np.testing.assert_allclose(0.5 * np.sum(paper.v0 * (exact @ paper.v0)), 0.1 / 12, rtol=1e-12)
    # Verlet's limit is 4 dt; a step of the model is far below it for each number of cells.
    q, root = jnp.asarray(MODEL.q0), jnp.sqrt(MODEL.system.mass)
    product = jax.jit(jax.vmap(lambda y: jax.jvp(jax.grad(MODEL.system.potential), (q,), (y / root,))[1] / root))
    matrix = product(jnp.eye(q.size).reshape(-1, *q.shape)).reshape(q.size, q.size)
    limit = 2 / np.sqrt(np.linalg.eigvalsh(np.asarray(matrix))[-1])
    np.testing.assert_allclose(limit / MODEL.dt, 3.91, rtol=0.01)


def test_energy_stepping_along_lines():
    """The same events as by the potential itself, and energy and momenta to rounding."""
    system, h = MODEL.system, 1e-5
    go = lambda system: gm.simulate(
        system, MODEL.q0, MODEL.v0, method=gm.EnergyStepping(h, offset=-1e-6 * h), dt=0.1, t_end=0.8
    )
    run, other = go(system), go(gm.System(lambda q: system.potential(q), mass=system.mass))
    assert len(run.events) > 100
    np.testing.assert_array_equal(run.events.codes, other.events.codes)
    np.testing.assert_allclose(run.events.times, other.events.times, rtol=1e-9)
    np.testing.assert_allclose(run.energy, run.energy[0], rtol=1e-13)
    rotation = run.momentum_maps["rotation"]
    np.testing.assert_allclose(rotation, np.broadcast_to(rotation[0], rotation.shape), atol=1e-13 * rotation[0, 2])
    np.testing.assert_allclose(run.momentum_maps["translation"], 0, atol=1e-16)


def test_a_body_at_rest_starts_inside_a_terrace():
    """There ∇V is rounding, and its direction has no meaning: by default the edges lie half a height off. Where it is
    exactly 0, as V'', the start is on an edge and goes to the upper terrace, whatever the rounding of V''."""
    method = gm.EnergyStepping(1e-5)
    mech = Mechanics(MODEL.system, MODEL.q0.shape)
    begin = jax.jit(lambda q, p: method.init(mech, State(q, p), 0.1))
    p = mech.momentum(jnp.asarray(MODEL.v0))
    turned = jnp.asarray(MODEL.q0) @ jnp.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0, 1.0]])
    np.testing.assert_allclose(begin(turned, p).base, -0.5e-5, rtol=1e-9)
    exact = begin(jnp.asarray(MODEL.q0), p)
    assert (float(exact.base), int(exact.level)) == (0.0, 0)


def test_implicit_methods_and_a_stiff_inclusion():
    """Newmark by a dense matrix and by conjugate gradients; IMEX with an inclusion a hundred times as stiff, at a step
    where Verlet fails. Both are of order two."""
    mesh = MODEL.system.potential.mesh
    inclusion = np.flatnonzero(np.linalg.norm(mesh.nodes[mesh.cells].mean(axis=1) - 0.5, axis=1) < 0.4)
    shear = np.full(len(mesh.cells), 0.0066)
    shear[inclusion] *= 1000
    stiff = fem.solid(mesh, fem.NeoHookean(1.5 * shear, shear), 0.1, stiff=inclusion)
    whole = fem.solid(mesh, fem.NeoHookean(1.5 * shear, shear), 0.1)
    q = jnp.asarray(MODEL.q0) * 1.01
    both = jax.jit(lambda q: stiff.potential(q) + stiff.fast(q))(q)
    np.testing.assert_allclose(both, jax.jit(whole.potential)(q), rtol=1e-13)
    go = functools.partial(gm.simulate, q0=MODEL.q0, v0=MODEL.v0)
    imex = go(stiff, method=gm.IMEX(), dt=0.05, t_end=1.0)
    assert np.max(np.abs(imex.energy_error)) < 0.01 * imex.energy[0]
    with pytest.raises(gm.RunStopped, match="inverted"):
        go(whole, method=gm.Verlet(), dt=0.05, t_end=1.0)
    soft = MODEL.system
    runs = [go(soft, method=gm.Newmark(solver=s), dt=0.1, t_end=1.0) for s in ("dense", "matrix-free")]
    np.testing.assert_allclose(runs[0].q[-1], runs[1].q[-1], atol=1e-11)
    fine = go(soft, method=gm.Verlet(), dt=0.01, t_end=1.0)
    assert np.max(np.abs(runs[0].q[-1] - fine.q[-1])) < 5e-3


def test_filtered_methods_follow_the_body():
    """Of order two, and with the angular momentum to rounding."""
    small = gm.models.elastic_cube(cells=1)
    go = functools.partial(gm.simulate, small.system, small.q0, small.v0, t_end=1.0)
    exact = go(method=gm.Composition(gm.Verlet(), order=4), dt=0.01).q[-1]
    for method in (gm.ZhangSkeel(), gm.PushforwardNewmark()):
        runs = [go(method=method, dt=dt) for dt in (0.05, 0.025)]
        errors = [np.max(np.abs(run.q_filtered[-1] - exact)) for run in runs]
        assert errors[0] < 1e-3
        np.testing.assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.15)
        assert np.ptp(runs[0].momentum_maps["rotation"], axis=0).max() < 1e-15


def test_a_heat_bath():
    """½ kT for each of 45 momenta and for each of the 39 vibrations, which are nearly harmonic at this temperature."""
    small, temperature = gm.models.elastic_cube(cells=1), 1e-5
    bath = gm.GeometricLangevin(gm.Verlet(), friction=1.0, temperature=temperature)
    rest = np.zeros_like(small.v0)
    run = gm.simulate(small.system, small.q0, rest, method=bath, dt=0.02, t_end=2000.0, save_every=50, seed=1)
    late = run.t > 100.0
    kinetic, total = (np.mean(np.asarray(x)[late]) / (0.5 * temperature) for x in (run.kinetic, run.energy))
    np.testing.assert_allclose((kinetic / 45, (total - kinetic) / 39), 1, atol=0.05)
