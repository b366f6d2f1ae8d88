"""On the manifold: every way to solve the constraint gives the same motion, and every way to fail says so."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.analysis.measure import Point, independent_reference
from geomint.numerics.linalg import cpu_kernels as native


def gravity(q):
    return jnp.sum(q[..., 1])


def circle(q):
    return jnp.sum(q**2, keepdims=True) - 1


PENDULUM = gm.System(gravity, constraint=circle)


def run(model, method, dt, steps, engine="xla", **more):
    """By XLA, which compiles these steps in less time; tests/engines/ compares machine code with it."""
    more |= {"dt": dt, "t_end": steps * dt, "engine": engine}
    return gm.simulate(model.system, model.q0, model.v0, method=method, **more)


# --- the methods against each other and against an independent solution ---------------------------------------------
def test_shake_and_lobatto_with_two_stages_are_rattle():
    model = gm.models.triple_pendulum()
    rattle, shake, lobatto = (run(model, m, 0.01, 100) for m in (gm.Rattle(), gm.Shake(), gm.LobattoIIIAB(2)))
    assert np.max(np.abs(shake.q - rattle.q)) < 1e-13
    assert np.max(np.abs(rattle.velocity_residual)) < 1e-14
    assert np.max(np.abs(shake.velocity_residual)) > 1e-6  # its momenta are not tangent
    np.testing.assert_allclose(lobatto.q, rattle.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lobatto.p, rattle.p, rtol=0, atol=1e-11)


@functools.cache
def exact_multipliers():
    """λ of the exact motion of the triple pendulum at t = .05, .1, .15, .2, by dense algebra at the independent
    solution; and −Gᵀλ as a function of rows q and λ."""
    model = gm.models.triple_pendulum()
    exact = independent_reference(model.system, Point(model.q0, model.v0), 0.05 * np.arange(1, 5))
    mech = gm.Mechanics(model.system, model.q0.shape)
    pulled = jax.jit(jax.vmap(lambda q, x: -mech.constraint_force(q, x)))
    return np.asarray(jax.jit(jax.vmap(mech.multipliers))(exact.q, exact.p)), pulled


@pytest.mark.parametrize(
    "method", [gm.Rattle(), gm.Shake(), gm.SymmetricMultistep(6), gm.LobattoIIIAB(3)], ids=lambda m: m.name
)
def test_multipliers_belong_to_the_saved_positions(method):
    seen = run(gm.models.triple_pendulum(), method, 0.001, 200, save_every=50)
    expected, pulled = exact_multipliers()
    np.testing.assert_allclose(seen.multipliers[1:], expected, rtol=0, atol=3e-6)
    assert seen.constraint_forces.shape == seen.q.shape
    np.testing.assert_allclose(seen.constraint_forces, pulled(seen.q, seen.multipliers), rtol=0, atol=1e-13)


def test_multistep_momenta_from_the_first_on():
    """The start is made of differences of positions a step apart, divided by the step: rounding would stay in the
    momenta as 2e-16/h for the whole run. Against the motion of a harmonic oscillator, from the given momentum on."""
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2))
    run = gm.simulate(system, [1.0], [0.3], method=gm.SymmetricMultistep(8), dt=1e-3, t_end=1.0, save_every=10)
    np.testing.assert_allclose(run.q[:, 0], np.cos(run.t) + 0.3 * np.sin(run.t), rtol=0, atol=3e-15)
    np.testing.assert_allclose(run.p[:, 0], -np.sin(run.t) + 0.3 * np.cos(run.t), rtol=0, atol=2e-14)
    coarse = gm.simulate(system, [1.0], [0.3], method=gm.SymmetricMultistep(4), dt=0.1, t_end=0.1)
    assert coarse.p[0, 0] == 0.3


# --- ways to solve the constraint -----------------------------------------------------------------------------------
CHAIN = gm.models.chain(n=8)


@pytest.mark.parametrize("solver", ["auto", "dense", "matrix-free", "least-squares", "sweep"])
def test_solvers_agree(solver):
    """With the band, which "auto" finds, in machine code."""
    other = run(CHAIN, gm.Rattle(solver=solver), 0.01, 50)
    assert (other.solver == banded().solver) is (solver in ("auto", "sweep"))
    np.testing.assert_allclose(other.q, banded().q, rtol=0, atol=3e-12)
    assert np.max(np.abs(other.constraint_residual)) < 3e-13


@functools.cache
def banded():
    return run(CHAIN, gm.Rattle(solver="banded"), 0.01, 50, engine="native")


def test_relaxation_saves_sweeps():
    from geomint.manifold.discovery import find_solver

    model = gm.models.chain(n=40)
    mech = gm.Mechanics(model.system, model.q0.shape)
    p = jnp.asarray(1e-3 * np.random.default_rng(0).normal(size=model.q0.shape))
    counts = []
    for relaxation in (1.0, 1.85):
        solver = find_solver("sweep", relaxation, [(model.system, model.q0)])
        placed = solver.place(mech, jnp.asarray(model.q0), p, jnp.asarray(1.0), jnp.zeros(40))
        assert placed.converged
        counts.append(int(placed.rounds))
    assert counts[1] < counts[0] / 5, counts


@pytest.mark.parametrize("model", [gm.models.sphere_bodies(n=3), gm.models.heavy_top()], ids=lambda model: model.name)
def test_closed_forms_agree_with_newton(model):
    closed, general = (run(model, gm.Rattle(solver=solver), 0.01, 200) for solver in ("auto", "newton"))
    assert closed.solver != general.solver
    np.testing.assert_allclose(closed.q, general.q, rtol=0, atol=1e-11)
    assert np.max(np.abs(closed.constraint_residual)) < 2e-15
    np.testing.assert_allclose(closed.multipliers, general.multipliers, rtol=0, atol=1e-9)


def test_structure_is_found():
    water, chain = gm.models.water(n=8), gm.models.chain(n=40)
    found = lambda model, **solver: (
        gm.methods.protocols.prepare(gm.Rattle(**solver), [(model.system, model.q0)]).linear_solver
    )
    assert "8 independent blocks" in found(water, solver="newton")
    assert "SETTLE" in found(water)
    assert "band" in found(chain)


@pytest.mark.parametrize(
    ("method", "dt"), [(gm.Rattle(), 0.01), (gm.Composition(gm.Rattle(), order=8), 0.05)], ids=["Rattle", "Composition"]
)
def test_a_light_particle_does_not_disturb_the_heavy_ones(method, dt):
    """What counts as rounding is measured in positions, whatever the masses are."""
    mass, q0 = np.array([[1.0], [1.0], [1e-14]]), np.array([[0.6, -0.8], [1.4, -1.4], [0.5, -0.5]])
    system = gm.System(lambda q: jnp.sum(q[:2, 1]), mass=mass, constraint=gm.Distances([(None, 0), (0, 1)], 1.0))
    found = gm.simulate(system, q0, method=method, dt=dt, t_end=100 * dt)
    assert np.max(np.abs(found.constraint_residual)) < 2e-15


def test_through_the_origin():
    """A bead on a parabola leaves the origin and returns to it, where positions are far smaller than their rounding on
    the way."""
    system = gm.System(lambda q: q[1], constraint=lambda q: jnp.array([q[1] - q[0] ** 2]))
    out = gm.simulate(system, np.zeros(2), np.array([0.5, 0.0]), method=gm.Rattle(), dt=0.01, t_end=0.4)
    back = gm.simulate(system, out.q[-1], -out.v[-1], method=gm.Rattle(), dt=0.01, t_end=0.6)
    assert np.max(np.abs(back.q[40])) < 1e-15
    assert np.max(np.abs(back.constraint_residual)) < 1e-16


def test_machine_code_is_used_here():
    assert native.available()


SPIN = np.stack([-CHAIN.q0[:, 1], CHAIN.q0[:, 0]], axis=1)  # velocities of a turn about the origin


def test_gradients_pass_through_a_constrained_run():
    """Through the machine code of a chain too: reverse and forward mode against a difference quotient."""

    def end(push):
        v0 = push * SPIN
        seen = gm.simulate(CHAIN.system, CHAIN.q0, v0, method=gm.Rattle(), dt=0.01, t_end=0.2, save_every=20)
        return (seen.q[-1] ** 3).sum()

    difference = (end(0.1 + 1e-6) - end(0.1 - 1e-6)) / 2e-6
    reverse, forward = jax.jit(lambda x: (jax.grad(end)(x), jax.jvp(end, (x,), (1.0,))[1]))(0.1)
    np.testing.assert_allclose(reverse, difference, rtol=1e-7)
    np.testing.assert_allclose(forward, difference, rtol=1e-7)


def test_an_ensemble_of_chains_equals_single_runs():
    v0s = np.stack([0.1 * k * SPIN for k in range(3)])
    together = gm.ensemble(CHAIN.system, np.stack([CHAIN.q0] * 3), v0s, method=gm.Rattle(), dt=0.01, t_end=0.5)
    for k in range(3):
        alone = gm.simulate(CHAIN.system, CHAIN.q0, v0s[k], method=gm.Rattle(), dt=0.01, t_end=0.5)
        np.testing.assert_allclose(together.q[k], alone.q, rtol=0, atol=1e-12)


# --- dependent constraints ------------------------------------------------------------------------------------------
def test_redundant_constraints_move_by_least_squares():
    """One circle stated three times, more often than there are coordinates, still leaves one motion."""
    thrice = gm.System(gravity, constraint=lambda q: jnp.concatenate([circle(q), 3 * circle(q), circle(q)]))
    q0, v0 = np.array([0.6, -0.8]), np.array([0.4, 0.3])
    with pytest.warns(UserWarning, match="constraints 0, 1, 2 depend on each other"):
        seen = gm.simulate(thrice, q0, v0, method=gm.Rattle(), dt=0.01, t_end=1.0, engine="xla")
    single = gm.simulate(PENDULUM, q0, v0, method=gm.Rattle(), dt=0.01, t_end=1.0)
    np.testing.assert_allclose(seen.q, single.q, rtol=0, atol=1e-12)
    # The smallest multipliers: proportional to the gradients, 1 to 3 to 1, and together the single one.
    np.testing.assert_allclose(seen.multipliers @ [1, 3, 1], single.multipliers[:, 0], atol=1e-9)
    np.testing.assert_allclose(seen.multipliers[:, 1:], seen.multipliers[:, :1] * [3, 1], atol=1e-9)


def test_contradicting_constraints_are_named():
    """A pendulum on its lowest point that is also held to a horizontal line through it: it can't move on."""
    system = gm.System(gravity, constraint=lambda q: jnp.stack([jnp.sum(q**2) - 1, q[1] + 1]))
    with pytest.raises(gm.InputError, match="v0 can't go on from q0: constraints 0, 1 depend on each other there"):
        gm.simulate(system, np.array([0.0, -1.0]), np.array([1.0, 0.0]), method=gm.Rattle(), dt=0.01, t_end=1.0)


def test_a_mechanism_passes_near_its_singular_position():
    """Crank and rod of one length fold onto each other; the rank of G falls there."""
    model = gm.models.slider_crank(rod=1.0, speed=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = run(model, gm.Rattle(), 0.0013, 3000)
    angle = np.unwrap(np.arctan2(seen.q[:, 0, 1], seen.q[:, 0, 0]))
    assert np.ptp(angle) > np.pi / 2  # it went through the singular position at 90°
    assert np.max(np.abs(seen.constraint_residual)) < 1e-9
    assert np.max(np.abs(seen.energy_error)) < 1e-2


def test_a_point_held_in_every_direction_stays_where_it_is():
    held = gm.System(gravity, constraint=lambda q: jnp.stack([q[0], q[1] + 1, jnp.sum(q**2) - 1]))
    with pytest.warns(UserWarning, match="depend on each other"):
        still = gm.simulate(held, np.array([0.0, -1.0]), method=gm.Rattle(), dt=0.01, t_end=0.1, engine="xla")
    np.testing.assert_allclose(still.q, np.broadcast_to([0.0, -1.0], still.q.shape), rtol=0, atol=1e-12)


# --- bad use --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", [gm.Rattle(), gm.SymmetricMultistep(8)], ids=lambda m: m.name)
def test_a_start_off_the_constraint(method):
    with pytest.raises(gm.InputError, match=r"\|g\(q0\)\| = 0.21.*gm.project"):
        gm.simulate(PENDULUM, np.array([0.0, -1.1]), method=method, dt=0.01, t_end=1.0)
    q0, v0 = gm.project(PENDULUM, np.array([0.0, -1.1]), np.array([1.0, 0.2]))
    assert gm.simulate(PENDULUM, q0, v0, method=method, dt=0.01, t_end=0.1).q.shape == (11, 2)


def test_a_start_slightly_off_the_constraint():
    """A part in a million of the length, or of the speed, is far above rounding, and would stay for the whole run."""
    go = lambda q0, v0: gm.simulate(PENDULUM, np.array(q0), np.array(v0), method=gm.Rattle(), dt=0.01, t_end=0.01)
    go([0.6, -0.8], [0.8, 0.6])
    for off in (1e-6, 1e-5):
        with pytest.raises(gm.InputError, match=r"\|g\(q0\)\|.*gm.project"):
            go([0.6 + off, -0.8], [0.0, 0.0])
        with pytest.raises(gm.InputError, match=r"\|G\(q0\) v0\|.*gm.project"):
            go([0.6, -0.8], [0.8 + off, 0.6])


@pytest.mark.parametrize("method", [gm.Rattle(), gm.Shake(), gm.LobattoIIIAB(2)], ids=lambda m: m.name)
def test_a_step_too_long_for_newton(method):
    """The step grows with the speed: on a circle of radius 1 no step longer than about 1 can be completed."""
    system = gm.System(lambda q: 40 * gravity(q), constraint=circle)
    with pytest.raises(gm.RunStopped, match="dt") as stopped:
        gm.simulate(system, np.array([0.0, 1.0]), np.array([1.5, 0.0]), method=method, dt=0.14, t_end=14.0)
    error = stopped.value
    assert error.step >= 2
    assert len(error.run) == error.step
    assert np.max(np.abs(error.run.constraint_residual)) < 1e-12
    assert "try dt" in str(error) or "smaller" in str(error)


def test_bad_arguments():
    with pytest.raises(gm.InputError, match="symmetric splitting"):
        gm.Rattle(gm.SymplecticEuler())
    with pytest.raises(gm.InputError, match="solver must be one of"):
        gm.Rattle(solver="bandd")
    with pytest.raises(gm.InputError, match="between 0 and 2"):
        gm.Rattle(solver="sweep", relaxation=2.5)
    with pytest.raises(gm.InputError, match="modulus 1.3146"):
        gm.SymmetricMultistep(a=(-0.1, 0.4))
    assert gm.SymmetricMultistep(a=(-0.1, 0.4), unsafe=True).traits.energy is None
    with pytest.raises(gm.InputError, match="order must be one of 4, 6, 8"):
        gm.SymmetricMultistep(5)
    with pytest.raises(gm.InputError, match="one-step"):
        gm.Composition(gm.SymmetricMultistep(8))
    with pytest.raises(gm.InputError, match="needs a system with a constraint"):
        gm.simulate(gm.System(gravity), np.array([0.0, 1.0]), method=gm.Shake(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match=r"Composition\(Rattle"):
        run(gm.models.chain(n=200), gm.LobattoIIIAB(3), 0.01, 1)


# --- ready constraints ----------------------------------------------------------------------------------------------
def test_distances_join_particles_origin_and_fixed_points():
    q = jnp.array([[0.0, -1.0], [1.0, -2.0], [1.0, 0.5]])
    rods = gm.Distances([(None, 0), (0, 1), (2, (1.0, 1.5)), (1, 2)], [1.0, 2**0.5, 1.0, 2.0])
    np.testing.assert_allclose(rods(q), [0, 0, 0, 2.5**2 - 4], atol=1e-15)
    both = rods & gm.OnSphere(2.0, particles=[1]) & (lambda q: q[2, :1])
    np.testing.assert_allclose(both(q)[4:], [1.0, 1.0], atol=1e-15)
    chain = gm.Distances([(None, 0), (0, 1), (1, 2)], 1.0)
    np.testing.assert_allclose(chain(q), [0, 1, 2.5**2 - 1], atol=1e-15)


def test_a_star_of_rods_is_no_chain():
    """Three particles, each on its own rod from the origin; two hung up at different points."""
    q = jnp.array([[0.0, -1.0], [1.0, -2.0], [1.0, 0.5]])
    star = gm.Distances([(None, 0), (None, 1), (None, 2)], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(star(q), [0, 5 - 4, 1.25 - 9], atol=1e-15)
    np.testing.assert_allclose(gm.Distances([(0, 1), (0, 2)], 1.0)(q), [2 - 1, 1 + 2.25 - 1], atol=1e-15)
    hung = gm.Distances([((0.0, 1.0), 0), ((3.0, 0.0), 1), (None, 2)], [2.0, 2.0, 1.0])
    np.testing.assert_allclose(hung(q), [4 - 4, 8 - 4, 1.25 - 1], atol=1e-15)


def test_six_equations_of_a_rotation_have_the_size_of_the_matrix():
    """Σg² = |QᵀQ − I|², the sum over all nine entries, and no rotation changes it."""
    q = np.random.default_rng(8).normal(size=(2, 3, 3))
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(3, 3)))[0]
    size = sum(np.sum((x.T @ x - np.eye(3)) ** 2) for x in q)
    assert np.sum(np.asarray(gm.Orthogonal()(jnp.asarray(q))) ** 2) == pytest.approx(size, rel=1e-14)
    assert np.sum(np.asarray(gm.Orthogonal()(jnp.asarray(q @ turn))) ** 2) == pytest.approx(size, rel=1e-13)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: gm.Distances([]), "list of pairs"),
    (lambda: gm.Distances([(0, 0)]), "two particles"),
    (lambda: gm.Distances([(0, 1)], [1.0, 2.0]), "one for each of the 1 pairs"),
    (lambda: gm.Distances([(0, 1)], -1.0), "positive"),
    (lambda: gm.Distances([(0, 1)], 0.0), "positive"),
    (lambda: gm.Distances([(-1, 1)]), "numbered from 0"),
    (lambda: gm.Distances([(0, 5)], 1.0)(jnp.zeros((2, 2))), "particle 5 in pairs, but q has 2"),
    (lambda: gm.OnSphere(-1.0), "positive"),
    (lambda: gm.Orthogonal()(jnp.zeros((2, 2))), r"\(3, 3\)"),
])  # fmt: skip
def test_ready_constraints_say_what_is_wrong(make, message):
    with pytest.raises(gm.InputError, match=message):
        make()


# --- long runs ------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_ten_million_multistep_steps_without_a_slope(tmp_path):
    """Order 8 on the two bodies on the sphere; and a resumed run is the same, history included."""
    model = gm.models.sphere_bodies()
    go = lambda steps, **more: run(model, gm.SymmetricMultistep(8), 0.0125, steps, save_every=10_000, **more)
    whole = go(10_000_000)
    slope, level = np.polyfit(whole.t, whole.energy_error, 1)
    band = np.ptp(whole.energy_error - (slope * whole.t + level))
    assert abs(slope) * whole.t[-1] < 0.5 * band, (slope, band)
    assert np.max(np.abs(whole.energy_error)) < 2e-5
    go(4_000_000, output=tmp_path / "run.h5")
    resumed = gm.resume(tmp_path / "run.h5", t_end=0.0125 * 10_000_000)
    for name in ("q", "p", "energy", "multipliers"):
        assert np.array_equal(getattr(resumed, name), getattr(whole, name)), name
