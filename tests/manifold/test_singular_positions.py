"""Constraints that lose rank on the way, are redundant, change their sparsity, or are stated in any units."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from helpers.mechanisms import (
    bricard,
    four_bars,
    four_bars_exact,
    moved_by_least_squares,
    run,
    third_crank,
    third_crank_exact,
)

COMPOSED = gm.Composition(gm.Rattle(), order=4)


# --- through singular positions -------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [1298, 2000, 4999])
def test_four_bars_pass_their_singular_positions(steps):
    """IFToMM's N-four-bar, N = 2, to t = 10: all bars are in line six times on the way. At T/dt = 1298 Newton used to
    end on another branch without a word."""
    seen = run(four_bars(2), COMPOSED, steps, 10.0)
    exact = four_bars_exact(2, seen.t)
    error = np.max(np.abs(seen.q - exact), axis=(1, 2))
    assert np.max(error) < 3e-4 * (1000 / steps) ** 4
    assert np.max(np.abs(seen.energy_error)) < 2e-3 * (1000 / steps) ** 4
    assert np.max(np.abs(np.diff(seen.energy_error))) < 1e-3 * (1000 / steps) ** 4  # no jump
    assert np.max(np.abs(seen.constraint_residual)) < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("steps", np.round(np.geomspace(1000, 20_000, 15)).astype(int).tolist())
@pytest.mark.parametrize("order", [2, 4, 6])
def test_four_bars_at_fifteen_steps(order, steps):
    method = gm.Rattle() if order == 2 else gm.Composition(gm.Rattle(), order=order)
    seen = run(four_bars(2), method, steps, 10.0)
    error = np.max(np.abs(seen.q - four_bars_exact(2, seen.t)))
    assert error < {2: 2e-2, 4: 3e-4, 6: 1e-6}[order] * (1000 / steps) ** order + 2e-8
    assert (
        np.max(np.abs(np.diff(seen.energy_error))) < {2: 0.1, 4: 1e-3, 6: 1e-5}[order] * (1000 / steps) ** order + 1e-7
    )


@pytest.mark.slow
def test_forty_four_bars():
    seen = run(four_bars(40), COMPOSED, 2000, 20.0, save_every=20)
    assert np.max(np.abs(seen.q - four_bars_exact(40, seen.t))) < 1e-5
    assert np.max(np.abs(seen.energy_error)) < 1e-3


@functools.cache
def from_the_singular_position():
    """Started with all bars in line, which no method can tell from redundant constraints."""
    mechanism = four_bars(2)
    feet = mechanism.q0 - [0.0, 1.0]
    start = mechanism._replace(q0=feet + np.array([1.0, 0.0]), v0=np.broadcast_to([0.0, 5.0], feet.shape).copy())
    return start, run(start, COMPOSED, 100, 1.0, engine="xla")


def test_a_start_in_the_singular_position():
    _, seen = from_the_singular_position()
    assert "rank 3 of 5" in seen.solver
    # Without the direction that G loses there: 2e-6 and 1.3e-5.
    np.testing.assert_allclose(seen.q, four_bars_exact(2, seen.t, angle=0.0, rate=5.0), rtol=0, atol=1e-6)
    assert np.max(np.abs(seen.energy_error)) < 6e-6


@pytest.mark.parametrize("engine", ["native", "xla"])
def test_a_step_that_ends_in_the_singular_position(engine, tmp_path):
    """Back from where the run above went, on and through: symmetric methods land where it began, to rounding."""
    start, there = from_the_singular_position()
    back = start._replace(q0=there.q[-1], v0=-there.v[-1])
    with pytest.warns(UserWarning, match=r"t = 1(\.0\d*)?: constraints .* depend on each other .* singular position"):
        seen = gm.simulate(*back, method=COMPOSED, dt=0.01, t_end=2.0, engine=engine)
    assert np.max(np.abs(seen.q[100] - start.q0)) < 1e-8
    np.testing.assert_allclose(seen.q[100:], four_bars_exact(2, there.t, angle=0.0, rate=-5.0), rtol=0, atol=1e-5)
    assert np.max(np.abs(np.diff(seen.energy_error))) < 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm.simulate(*back, method=COMPOSED, dt=0.01, t_end=0.5, engine=engine, output=tmp_path / "run.h5")
        resumed = gm.resume(tmp_path / "run.h5", system=back.system, t_end=2.0)
    assert np.array_equal(resumed.q, seen.q)
    assert np.array_equal(resumed.p, seen.p)


# --- redundant constraints ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "steps", "bound"),
    [
        (gm.Composition(gm.Rattle(), order=8), 250, 1e-9),
        (gm.LobattoIIIAB(3), 1000, 1e-6),
        (gm.SymmetricMultistep(6), 1000, 1e-6),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_a_third_crank(method, steps, bound):
    """Redundant everywhere, and twice through the singular position in line."""
    seen = run(third_crank(), method, steps, 5.0, engine="xla")  # which solves these in any case
    assert "rank 3 of 4" in seen.solver
    exact = third_crank_exact(seen.t)
    assert np.min(exact[:, 0, 1]) < -0.9  # below the feet: it has passed the position in line
    assert np.max(np.abs(seen.q - exact)) < bound


def test_a_frame_with_one_bar_too_many():
    """A rigid square with both diagonals, held at a corner, swings as the square with one of them does."""
    along, across = np.array([0.6, -0.8]), np.array([-0.8, -0.6])
    corners = np.stack([along, along + across, across])
    bars, lengths = [(None, 0), (0, 1), (1, 2), (None, 2), (None, 1), (0, 2)], [1.0] * 4 + [2**0.5] * 2
    systems = [gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances(bars[:k], lengths[:k])) for k in (5, 6)]
    # The engine that solves redundant constraints in any case; "auto" would first translate the step to weigh it.
    go = lambda system: run((system, corners, 0 * corners), gm.Rattle(), 500, 5.0, save_every=50, engine="xla")
    plain, stiff = map(go, systems)
    assert "rank 5 of 6" in stiff.solver
    assert np.ptp(plain.q[:, 1, 0]) > 0.3
    np.testing.assert_allclose(stiff.q, plain.q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(stiff.constraint_forces, plain.constraint_forces, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_bricard():
    mechanism = bricard()
    seen = run(mechanism, gm.Composition(gm.Rattle(), order=8), 500, 10.0, save_every=50)
    assert "rank 23 of 24" in seen.solver
    assert np.ptp(seen.q[:, 0, 1]) > 0.4
    np.testing.assert_allclose(seen.q[1:], moved_by_least_squares(mechanism, seen.t[1:]), rtol=0, atol=1e-8)
    assert np.max(np.abs(seen.energy_error)) < 1e-9
    assert np.max(np.abs(seen.constraint_residual)) < 1e-13


# --- sparsity that changes ------------------------------------------------------------------------------------------
def test_a_pattern_that_changes_on_the_way():
    """Two points on circles of their own, until the first is at x > ½: then its position changes the second circle."""

    def circles(q):
        beyond = jnp.maximum(q[0, 0] - 0.5, 0.0) ** 3
        return jnp.stack([jnp.sum(q[0] ** 2) - 1, jnp.sum(q[1] ** 2) - 1 - beyond])

    start = (
        gm.System(lambda q: jnp.sum(q[:, 1]), constraint=circles),
        np.array([[0.0, 1.0], [0.6, -0.8]]),
        np.array([[1.0, 0.0], [0.8, 0.6]]),
    )
    seen = run(start, gm.Rattle(), 200, 2.0)
    assert "independent blocks" in seen.solver
    assert np.max(seen.q[:, 0, 0]) > 0.9
    assert np.max(np.abs(seen.velocity_residual)) < 1e-13
    dense = run(start, gm.Rattle(solver="dense"), 200, 2.0)
    np.testing.assert_allclose(seen.q, dense.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(seen.p, dense.p, rtol=0, atol=1e-11)
    np.testing.assert_allclose(seen.multipliers, dense.multipliers, rtol=0, atol=1e-9)


# --- constraints that can't be held ---------------------------------------------------------------------------------
def test_the_square_of_a_constraint_is_told():
    """(r² − 1)² = 0: its gradient vanishes on the circle, and no smaller step helps."""
    system = gm.System(lambda q: q[1], constraint=lambda q: jnp.atleast_1d((jnp.sum(q**2) - 1) ** 2))
    for angle in (0.0, 0.7):
        q0 = np.array([np.sin(angle), -np.cos(angle)])
        with pytest.raises(gm.InputError, match="constraint 0 vanishes .* without the square"):
            gm.simulate(system, q0, method=gm.Rattle(), dt=0.01, t_end=1.0)
    with pytest.raises(gm.InputError, match="without the square"):
        gm.simulate(system, gm.project(system, np.array([0.1, -1.1]))[0], method=gm.Rattle(), dt=0.01, t_end=1.0)


def test_positions_are_solved_to_rounding():
    """Newton's method must not end early: a residual of 1e-13 a step adds up to a drift. At long steps it converges
    slowly."""
    seen = gm.models.triple_pendulum()
    for engine in ("native", "xla"):
        found = gm.simulate(
            seen.system, seen.q0, seen.v0, method=gm.Rattle(), dt=0.1, t_end=40.0, save_every=2, engine=engine
        )
        assert np.max(np.abs(found.constraint_residual)) < 1e-14
        assert np.max(np.abs(found.velocity_residual)) < 1e-14


# --- what reviewers found -------------------------------------------------------------------------------------------
FEET = np.array([2.0, 0.0])
IN_LINE = np.array([[1.0, 0.0], [3.0, 0.0]])  # the singular position of the parallelogram


@functools.cache
def parallelogram():
    rods = lambda q: jnp.array(
        [jnp.sum(q[0] ** 2) - 1, jnp.sum((q[1] - q[0]) ** 2) - 4, jnp.sum((q[1] - FEET) ** 2) - 1]
    )
    return gm.System(lambda q: 0.3 * jnp.sum(q[:, 1]), constraint=rods)


def cranked(angle):
    arm, speed = np.array([np.cos(angle), np.sin(angle)]), np.array([np.sin(angle), -np.cos(angle)])
    return np.stack([arm, FEET + arm]), np.stack([speed, speed])


@pytest.mark.parametrize("speeds", [(1.0, 0.3), (1.0, -1.0)])
def test_a_velocity_between_the_branches_is_refused(speeds):
    """Motions through this position have crank speeds (w, w) or (w, −3w); G v = 0 admits any."""
    with pytest.raises(gm.InputError, match="v0 can't go on from q0.*singular position"):
        run((parallelogram(), IN_LINE, [[0, speeds[0]], [0, speeds[1]]]), gm.Rattle(), 10, 0.1)


def test_order_from_a_start_on_the_second_branch():
    """The kick turns v off the branch before the drift asks for the direction that G loses; an error of h² would
    remain."""
    start = parallelogram(), IN_LINE, np.array([[0, 0.3], [0, -0.9]])
    errors = [np.max(np.abs(run(start, COMPOSED, steps, 0.8, engine="xla").energy_error)) for steps in (20, 40)]
    assert errors[0] < 1e-8
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.1)


def test_one_member_starts_in_a_singular_position():
    """The solver of an ensemble covers every member, not only those that are looked at first."""
    (q1, v1), (q0, v0) = cranked(1.0), cranked(0.0)
    # Both cranks move alike, and the coupler pulls at neither: each is a pendulum of its own, step by step.
    crank = gm.System(lambda q: 0.3 * q[1], constraint=lambda q: jnp.atleast_1d(jnp.sum(q**2) - 1))
    both = [run((crank, q[0], v[0]), gm.Rattle(), 40, 2.0) for q, v in ((q1, v1), (q0, v0))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = np.stack([q1] * 5 + [q0] + [q1] * 58), np.stack([v1] * 5 + [v0] + [v1] * 58)
        seen = gm.ensemble(parallelogram(), *start, method=gm.Rattle(), dt=0.05, t_end=2.0, engine="xla")
    assert np.all(seen.failed_at == -1)
    for i in range(2):
        np.testing.assert_allclose(seen.q[4 + i] - [[0, 0], FEET], both[i].q[:, None] + np.zeros((2, 1)), atol=1e-10)


def redundant_pendulum():
    first, second = lambda q: jnp.sum(q[0] ** 2) - 1, lambda q: jnp.sum((q[1] - q[0]) ** 2) - 1
    system = lambda constraint: gm.System(potential=lambda q: jnp.sum(q[:, 1]), mass=1.0, constraint=constraint)
    plain = system(lambda q: jnp.stack([first(q), second(q)]))
    return plain, system(lambda q: jnp.stack([first(q), second(q), 2 * first(q) + second(q)]))


def test_multipliers_and_derivatives_with_redundant_constraints():
    q0, v0, along = np.array([[1.0, 0], [1, 1]]), np.array([[0, 0.4], [0.3, 0.4]]), np.array([[0, 1.0], [0.5, 1]])

    def end(system, t):
        seen = run((system, q0, v0 + t * along), gm.Shake(), 20, 0.4, gradient="stored")
        return seen.q[-1, 1, 0], (seen.q, seen.multipliers)

    independent, dependent = redundant_pendulum()
    found = jax.jit(jax.value_and_grad(functools.partial(end, dependent), has_aux=True))(0.0)
    (_, (q_redundant, redundant)), slope_redundant = jax.tree.map(np.asarray, found)
    q, plain = end(independent, 0.0)[1]
    np.testing.assert_allclose(q, q_redundant, atol=1e-13)
    # Richardson's extrapolation of central differences of the system without the redundant constraint.
    central = lambda h: (end(independent, h)[0] - end(independent, -h)[0]) / (2 * h)
    assert slope_redundant == pytest.approx((4 * central(5e-4) - central(1e-3)) / 3, rel=1e-9)
    # The same force, G of the redundant system being (a, b, 2a + b); and the smallest multipliers that give it.
    np.testing.assert_allclose(redundant[:, :2] + redundant[:, 2:] * [2, 1], plain, atol=1e-11)
    np.testing.assert_allclose(redundant @ [2, 1, -1], 0, atol=1e-11)


def test_derivatives_after_the_sparsity_has_changed():
    """The second circle is coupled to the first only once x < 0.9, which the blocks found at the start do not know."""

    def constraint(q):
        x, y, z, w = q
        return jnp.stack([x * x + y * y - 1, z * z + w * w - 1 + jnp.where(x < 0.9, (x - 0.9) ** 2, 0.0)])

    system = gm.System(lambda q, k: k * (q[1] + q[3]), mass=1.0, constraint=constraint, params=1.0)

    def end(solver, k):
        start = system.with_params(k), np.array([1.0, 0, 1, 0]), np.array([0, 1.0, 0, 0.5])
        seen = run(start, gm.Rattle(solver=solver), 100, 1.0, save_every=100, gradient="stored")
        return jnp.stack([seen.multipliers[-1, 1], seen.p[-1, 0]])

    # Of both numbers, by one program for a weighted sum of them: jacrev would compile for both at once.
    slope = jax.jit(jax.grad(lambda k, weights: end("blocks", k) @ weights))
    found = [slope(1.0, weights) for weights in np.eye(2)]
    # Differences by the solver that knows all entries; in longer ones another step would be the first with x < 0.9.
    np.testing.assert_allclose(found, (end("dense", 1 + 1e-5) - end("dense", 1 - 1e-5)) / 2e-5, rtol=1e-7)


@pytest.mark.parametrize("chunk", [25, 50, 100])
def test_a_step_with_infinite_energy_is_not_taken_again(chunk, monkeypatch):
    """Only the energy is not finite at some angles, and it is again at the next save or not; no solver can help
    there."""
    from geomint.run import loop

    whole = loop._chunk
    monkeypatch.setattr(loop, "_chunk", lambda grid, n, rows, budget: whole(grid, n, rows, chunk))

    def potential(q):
        step = jnp.arctan2(q[1], q[0]) / 0.01
        return jnp.where(((step > 109.5) & (step < 150.5)) | ((step > 194.5) & (step < 200.5)), jnp.inf, 0.0) + 0 * q[0]

    system = gm.System(potential, mass=1.0, constraint=lambda q: jnp.atleast_1d(q[0] ** 2 + q[1] ** 2 - 1))
    with pytest.raises(gm.RunStopped, match="The energy there is not finite, although q and p are"):
        run((system, [1.0, 0.0], [0.0, 1.0]), gm.Rattle(), 300, 3.0, save_every=100)


def test_the_square_among_constraints_is_named():
    from geomint.manifold import vanishing

    system = gm.System(
        lambda q: 0.0, constraint=lambda q: jnp.stack([(q[0] - 5) ** 2 - 1, (q[1] ** 2 + q[2] ** 2 - 1) ** 2])
    )
    assert "constraint 1 vanishes" in vanishing(system, np.array([5 + 1e-5, 1 + 1e-7, 0.0]))


def test_a_start_without_a_gradient_is_told_apart_from_a_square():
    rods = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0), (0, 1)], [1.0, 1.5]))
    with (
        pytest.warns(UserWarning, match="depend on each other"),
        pytest.raises(gm.InputError, match=r"The gradient of constraint 0 vanishes at q0, where g = -1; move q0"),
    ):
        gm.project(rods, np.zeros((2, 2)))
    with (
        pytest.warns(UserWarning, match="depend on each other"),
        pytest.raises(gm.InputError, match="The gradient of constraint 1 vanishes at q0"),
    ):
        gm.project(rods, np.array([[1.0, 0], [1.0, 0]]))


def test_a_constraint_without_numbers_is_refused():
    none = gm.System(lambda q: jnp.sum(q**2), constraint=lambda q: jnp.zeros(0))
    words = r"constraint\(q\) returns no numbers. Leave it out"
    with pytest.raises(gm.InputError, match=words):
        gm.simulate(none, [1.0, 0], [0, 1.0], method=gm.Rattle(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match=words):
        gm.project(none, [1.0, 0])
