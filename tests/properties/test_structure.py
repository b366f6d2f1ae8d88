"""Every registered method against every problem of the zoo: what it claims holds, what it denies fails somewhere."""

from __future__ import annotations

import pytest

import geomint as gm
from geomint.analysis import measure
from helpers.zoo import chosen, fitting

# Every pair is tested; those beyond the choice in the slow tests.
SLOW = pytest.mark.slow
PAIRS = [
    pytest.param(m, p, id=f"{m.name}-{p.name}", marks=[] if p in chosen(m) else SLOW)
    for m in gm.methods.all()
    for p in fitting(m)
]
ROUND_OFF = 2e-13  # of a step, its derivative, and four steps forth and back


def test_every_method_has_a_problem():
    assert all(fitting(method) for method in gm.methods.all())


@pytest.mark.parametrize(("method", "problem"), PAIRS)
def test_claims(method, problem):
    traits, dt = method.traits, problem.step(method)
    if not traits.event_driven:  # whose convergence is in other things than a step
        order = measure.order(
            method, problem.system, problem.at, max(2, traits.order / 2) * dt, engine="xla"
        )  # room above round-off
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


@pytest.mark.parametrize("method", gm.methods.all(), ids=lambda m: m.name)
def test_denials(method):
    """A property that is not claimed must measurably fail on some problem; otherwise the claim was too modest, or the
    measurement can't see."""
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
