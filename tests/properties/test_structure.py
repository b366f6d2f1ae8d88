"""Every registered method on problems of the zoo: what it claims holds, what it denies measurably fails."""

from __future__ import annotations

import pytest

import geomint as gm
from geomint.analysis import measure
from helpers.zoo import chosen, fitting, in_magnetic_fields

# Every pair is tested; those beyond the choice in the slow tests. The steps of stochastic methods have none of these
# properties but the constraint: tests/methods/test_langevin.py measures their averages.
SLOW = pytest.mark.slow
PAIRS = [
    pytest.param(m, p, id=f"{m.name}-{p.name}", marks=[] if p in chosen(m) else SLOW)
    for m in gm.methods.all()
    if not m.traits.stochastic
    for p in fitting(m)
]
ROUND_OFF = 2e-13  # of a step, its derivative, and four steps forth and back
FAILS = 1e-8  # a defect that is no round-off


def test_every_method_has_a_problem():
    assert all(chosen(method) for method in gm.methods.all())


@pytest.mark.parametrize(("method", "problem"), PAIRS)
def test_claims(method, problem):
    traits, dt = method.traits, problem.step(method)
    if not traits.event_driven:  # whose convergence is in other things than a step
        coarse = max(2, traits.order / 2) * dt  # room above round-off
        fine = 8 if traits.steps <= 2 else None  # a sixteenth of that is enough, but for multistep methods
        order = measure.order(method, problem.system, problem.at, coarse, refinements=fine, engine="xla")
        assert order.slopes == pytest.approx((traits.order, traits.order), abs=0.15), order
        assert max(order.uncertainties) < 0.2, order
    if traits.symplectic:
        assert measure.symplecticity(method, problem.system, problem.at, 2 * dt) < ROUND_OFF
    if traits.volume and problem.system.constraint is None:
        assert measure.volume(method, problem.system, problem.at, 2 * dt) < ROUND_OFF
    if traits.symmetric:
        assert measure.symmetry(method, problem.system, problem.at, 2 * dt) < ROUND_OFF
    if traits.reversible:
        assert measure.reversibility(method, problem.system, problem.at, 2 * dt) < ROUND_OFF
    long = measure.long_run(method, problem.system, problem.at, dt, steps=10_000, engine="xla")
    if traits.energy == "bounded":
        assert long.excess < 0.5, long
    if traits.energy == "exact":
        assert long.band + abs(long.drift) * 10_000 * dt < 1e-10, long
    for name, symmetry in problem.system.named_symmetries.items():
        if traits.momentum_maps == "all" or (traits.momentum_maps == "linear" and symmetry.degree == 0):
            assert long.momentum[name] < 1e-12, name
    assert long.constraint < 1e-12
    if traits.tangent:
        assert long.tangency < 1e-12
    if problem is chosen(method)[0] and not in_magnetic_fields(method):
        denials(method, problem, long)


def denials(method, problem, long):
    """A property that is not claimed must measurably fail on the first problem chosen for the method; otherwise the
    claim was too modest, or the measurement can't see. Called after the claims, whose programs and run it needs."""
    traits, place = method.traits, (method, problem.system, problem.at, 2 * problem.dt)
    assert traits.symplectic or measure.symplecticity(*place) > FAILS
    if traits.free and traits.steps == 1:
        assert traits.volume or traits.symplectic or measure.volume(*place) > FAILS
    assert traits.symmetric or measure.symmetry(*place) > FAILS
    assert traits.reversible or measure.reversibility(*place, n=20) > FAILS
    assert traits.tangent or long.tangency > FAILS
    assert traits.energy is not None or long.excess > 1
    turns = [name for name, symmetry in problem.system.named_symmetries.items() if symmetry.degree == 1]
    assert traits.momentum_maps == "all" or any(long.momentum[name] > FAILS for name in turns)


MAGNETIC = [m for m in gm.methods.all() if in_magnetic_fields(m) and not m.traits.stochastic]


@pytest.mark.parametrize("method", MAGNETIC, ids=lambda m: m.name)
def test_denials_in_magnetic_fields(method):
    """As `denials`, on some of the problems: without a field these methods keep more than they claim."""
    traits, problems = method.traits, fitting(method)
    fails = lambda f: any(f(method, p.system, p.at, 2 * p.dt) > 1e-8 for p in problems)
    long = lambda p: measure.long_run(method, p.system, p.at, p.step(method), steps=10_000, engine="xla")
    assert traits.symplectic or fails(measure.symplecticity)
    if traits.free and traits.steps == 1:
        assert traits.volume or traits.symplectic or fails(measure.volume)
    assert traits.symmetric or fails(measure.symmetry)
    assert traits.reversible or fails(lambda *place: measure.reversibility(*place, n=20))
    assert traits.tangent or any(long(p).tangency > 1e-8 for p in problems)
    assert traits.energy is not None or any(long(p).excess > 1 for p in problems)
    if traits.momentum_maps != "all":
        turning = [(p, name) for p in problems for name, s in p.system.named_symmetries.items() if s.degree == 1]
        assert any(long(p).momentum[name] > 1e-8 for p, name in turning)
