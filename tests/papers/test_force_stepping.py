"""Force-stepping: the motion in a piecewise linear potential, computed exactly."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import geomint as gm
from geomint.papers.gonzalez_schmidt_ortiz_2010.force_stepping import Grid, force_stepping
from geomint.papers.gonzalez_schmidt_ortiz_2010.force_stepping_runs import (
    Orbit,
    Swing,
    Terraces,
    energy_error,
    kepler_grid,
    planet,
    symplecticity,
)
from geomint.papers.gonzalez_schmidt_ortiz_2010.terraces import rate

ROUGH = gm.System(lambda q: (q[0] ** 2 - 1) ** 2 + 0.3 * q[0])
ISLANDS = gm.models.henon_heiles()
SPACE = gm.System(lambda q: 0.5 * q[0] ** 2 + q[1] ** 2 + 1.5 * q[2] ** 2 + 0.3 * q[0] * q[1] * q[2])


def value(system, q):
    return float(gm.Mechanics(system, np.shape(q)).potential(np.asarray(q)))


def test_the_interpolant_agrees_at_nodes_and_is_linear_between():
    grid = Grid.of(ISLANDS.system, [-1.0, -0.9], [1.0, 1.1], 0.25)
    for node in ([-1.0, -0.9], [0.25, 0.1], [-0.5, 0.35]):
        assert float(grid.potential(node)) == pytest.approx(value(ISLANDS.system, node), rel=1e-13)
    corner, right, top, opposite = (
        value(ISLANDS.system, [x, y]) for x, y in ((0.25, 0.1), (0.5, 0.1), (0.25, 0.35), (0.5, 0.35))
    )
    below, above = [0.25 + 0.25 * 0.7, 0.1 + 0.25 * 0.2], [0.25 + 0.25 * 0.2, 0.1 + 0.25 * 0.7]
    assert float(grid.potential(below)) == pytest.approx(0.3 * corner + 0.5 * right + 0.2 * opposite, rel=1e-12)
    assert float(grid.potential(above)) == pytest.approx(0.3 * corner + 0.5 * top + 0.2 * opposite, rel=1e-12)
    np.testing.assert_allclose(grid.potential([below, above]), [grid.potential(below), grid.potential(above)])


def test_a_linear_potential_is_a_throw():
    """V_h = V, whatever the grid: one parabola, through many faces."""
    grid = Grid.of(gm.System(lambda q: 3.0 * q[0] - 2.0 * q[1]), [-10.0, -10.0], [10.0, 40.0], 0.37)
    t = np.linspace(0, 2, 9)
    flight = force_stepping(grid, [0.1, 0.2], [4.0, 1.0], t, mass=0.5)
    force = np.array([-3.0, 2.0])
    np.testing.assert_allclose(
        flight.q, [0.1, 0.2] + t[:, None] * np.array([8.0, 2.0]) + t[:, None] ** 2 * force, atol=1e-12
    )
    np.testing.assert_allclose(flight.p, [4.0, 1.0] + t[:, None] * force, atol=1e-12)
    assert flight.events > 50


@pytest.mark.parametrize(
    ("system", "box", "q0", "p0"),
    [
        (ROUGH, 2.0, [-1.1], [1.6]),
        (ISLANDS.system, 1.2, ISLANDS.q0, ISLANDS.v0),
        (SPACE, 3.0, [1.0, 0.3, -0.2], [0.1, 0.7, -0.9]),
    ],
    ids=["line", "plane", "space"],
)
def test_energy_reversal_and_agreement_with_small_steps(system, box, q0, p0):
    """On a coarse grid; the reference moves in V_h by an integrator that finds the faces only as places where it needs
    small steps."""
    d = len(q0)
    grid = Grid.of(system, np.full(d, -box - 0.0417), np.full(d, box + 0.3), 0.2)
    t = np.linspace(0, 30, 301)
    flight = force_stepping(grid, q0, p0, t)
    assert energy_error(grid, flight) < 1e-13
    back = force_stepping(grid, flight.q[-1], -flight.p[-1], t)
    np.testing.assert_allclose(back.q[::-1], flight.q, atol=1e-8)
    np.testing.assert_allclose(back.p[::-1], -flight.p, atol=1e-8)

    def motion(_, z):
        step = 1e-7 * np.eye(d)
        return np.concatenate([z[d:], -(grid.potential(z[:d] + step) - grid.potential(z[:d] - step)) / 2e-7])

    reference = solve_ivp(
        motion, (0, 2), np.concatenate([q0, p0]), max_step=0.02, rtol=1e-9, atol=1e-10, t_eval=t[:21]
    ).y.T
    np.testing.assert_allclose(flight.q[:21], reference[:, :d], atol=1e-5)


def test_looking_more_often_changes_nothing():
    grid = Grid.of(ISLANDS.system, [-1.53, -1.53], [1.5, 1.5], 0.1)
    seldom, often = (force_stepping(grid, ISLANDS.q0, ISLANDS.v0, np.linspace(0, 50, n)) for n in (6, 5001))
    np.testing.assert_array_equal(seldom.q, often.q[::1000])
    np.testing.assert_array_equal(seldom.p, often.p[::1000])
    assert seldom.events == often.events


def test_the_flow_is_symplectic():
    assert symplecticity(kepler_grid(1 / 8), 3.0) < 1e-7
    assert symplecticity(kepler_grid(1 / 16), 5.0) < 1e-7


def test_order_two_but_for_turning_points():
    spacings = 2.0 ** -np.arange(4, 9)
    assert rate(spacings, Swing("", 2.5, spacings, 16).errors) == pytest.approx(2.0, abs=0.1)
    assert rate(spacings, Swing("", 1.0, spacings, 48).errors) == pytest.approx(1.5, abs=0.15)


def test_angular_momentum_is_lost():
    coarse, fine = Orbit(1 / 8), Orbit(1 / 64)
    assert coarse.momentum_error.max() > 0.01
    assert 1e-4 < fine.momentum_error.max() < 0.1 * coarse.momentum_error.max()
    assert max(coarse.energy_error.max(), fine.energy_error.max()) < 1e-13
    assert fine.return_error() < 1e-8


def energy_stepping_by_hand(height, q, v, t_end):
    """The planet on terraces of −1/r between the circles r = −1/(k·height): straight flights, and at a circle a change
    of the radial velocity only, by the step of the energy or by reflection. Every hit is the root of a quadratic;
    nothing is searched for."""
    q, v, t, level = np.array(q), np.array(v), 0.0, int(np.floor(-1 / np.hypot(*q) / height))
    events = []
    while True:
        along, speed = q @ v, v @ v
        inner, outer = along**2 + speed * (np.array([level, level + 1]) ** -2.0 / height**2 - q @ q)
        inward = along < 0 and inner > 0
        flight = (-along - np.sqrt(inner) if inward else -along + np.sqrt(outer)) / speed
        if t + flight > t_end:
            return np.array(events), q + (t_end - t) * v, v
        q, t = q + flight * v, t + flight
        normal = q / np.sqrt(q @ q)
        radial, rise = v @ normal, -height if inward else height
        reflected = radial**2 <= 2 * rise
        after = -radial if reflected else np.sign(radial) * np.sqrt(radial**2 - 2 * rise)
        v, level = v + (after - radial) * normal, level + (0 if reflected else -1 if inward else 1)
        events.append((t, level, 3 if reflected else 2 if inward else 1))


@pytest.mark.parametrize("height", [0.0937, 0.0213, 0.00497])
def test_energy_stepping_is_that_of_circles_by_hand(height):
    """From the end of the small axis, where it crosses the circles."""
    q0, v0, t_end = [-0.6, 0.8], [-1.0, 0.0], 20.0
    run = gm.simulate(planet().system, q0, v0, method=gm.EnergyStepping(height, offset=0.0), dt=t_end, t_end=t_end)
    events, q, v = energy_stepping_by_hand(height, q0, v0, t_end)
    np.testing.assert_array_equal(run.events.levels, events[:, 1])
    np.testing.assert_array_equal(run.events.codes, events[:, 2])
    np.testing.assert_allclose(run.events.times, events[:, 0], rtol=1e-10)
    np.testing.assert_allclose(run.q[-1], q, atol=1e-9)
    np.testing.assert_allclose(run.v[-1], v, atol=1e-9)


def test_energy_stepping_keeps_the_angular_momentum():
    terraces = Terraces(0.02)
    assert terraces.momentum_error.max() < 1e-13
    assert 1900 < len(terraces.run.events) < 2400  # about twice 94 levels a period


def test_out_of_the_grid_or_held_on_a_crease():
    grid = Grid.of(gm.models.harmonic_bowl().system, [-1.0, -1.0], [1.0, 1.0], 0.25)
    with pytest.raises(gm.InputError, match="no point of the grid"):
        force_stepping(grid, [2.0, 0.0], [0.0, 0.0], [1.0])
    with pytest.raises(gm.InputError, match="no point of the grid"):
        force_stepping(grid, [0.1], [0.0], [1.0])
    with pytest.raises(gm.RunStopped, match="left the grid"):
        force_stepping(grid, [0.1, 0.05], [3.0, 1.0], [1.0])
    with pytest.raises(gm.RunStopped, match="held on a crease"):
        force_stepping(grid, [0.0, 0.0], [0.0, 0.0], [1.0])  # at rest at the node where V_h is least
    through_corners = force_stepping(grid, [-0.25, -0.25], [0.3, 0.3], [0.5, 1.0])  # from a node along a diagonal
    assert energy_error(grid, through_corners) < 1e-14
