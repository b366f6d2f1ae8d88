"""The papers' experiments: each at reduced size, and the registry that finds them."""

import json
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

import geomint as gm
from geomint import papers
from geomint.papers import Check, Outcome, base
from geomint.papers.stern_grinspun_2009 import OscillatoryEnergies


@pytest.mark.parametrize("experiment", papers.all(), ids=lambda e: e.id)
def test_every_experiment_meets_its_numbers(experiment):
    outcome = experiment(quick=True)
    assert outcome.checks
    failed = [f"{c.name}: {c.measured:g}, expected {c.expected} ({c.range})" for c in outcome.checks if not c.ok]
    assert not failed
    assert isinstance(outcome.figure, Figure)
    assert outcome.figure.axes


@pytest.mark.parametrize("experiment", papers.all(), ids=lambda e: e.id)
def test_every_experiment_says_what_it_is(experiment):
    assert experiment.title
    assert experiment.figure
    assert experiment.function.__doc__
    assert papers.find(experiment.id) == (experiment,)
    assert experiment in papers.find(experiment.paper)


def test_the_reference_of_the_chain_does_not_depend_on_its_step():
    method = gm.Composition(gm.Verlet(), order=8)
    coarse, fine = (OscillatoryEnergies("", method, dt, 100.0, round(0.1 / dt)) for dt in (0.02, 0.01))
    np.testing.assert_allclose(coarse.parts, fine.parts, atol=5e-4)  # against ranges of 0.0075 and more
    assert abs(coarse.exchange_time - fine.exchange_time) < 1e-3


def test_an_exchange_that_does_not_come_is_no_number():
    early = OscillatoryEnergies("", gm.Verlet(), 0.005, 5.0)
    assert math.isnan(early.exchange_time)
    assert early.total[0] == pytest.approx(1.0, abs=1e-14)  # q₁₁ = 1/ω, p₁₁ = 1


@pytest.mark.parametrize(
    ("measured", "low", "high", "ok"),
    [(1.0, 0.0, 2.0, True), (0.0, 0.0, None, True), (2.1, None, 2.0, False), (-1.0, 0.0, None, False), (5.0, None, None, True),
     (math.nan, None, None, False), (math.nan, 0.0, 1.0, False), (math.inf, 0.0, None, True), (math.inf, 0.0, 1.0, False)],
)  # fmt: skip
def test_in_range_or_not(measured, low, high, ok):
    assert Check("x", measured, low, high).ok is ok


def test_a_check_says_its_range_and_becomes_json():
    assert [Check("x", 0.0, *bounds).range for bounds in ((1, 2), (1, None), (None, 2), (None, None))] == ["1 … 2", "≥ 1", "≤ 2", "any number"]
    assert Check("x", 0.0, 1, 2).expected == "1 … 2"
    assert json.loads(json.dumps(Check("x", math.nan, 0.0, expected="a number").to_dict(), allow_nan=False)) == {
        "name": "x", "measured": None, "low": 0.0, "high": None, "expected": "a number", "ok": False,
    }  # fmt: skip


def test_an_outcome_without_checks_proves_nothing():
    assert not Outcome([], Figure()).ok
    assert not Outcome([Check("a", 1.0), Check("b", math.nan)], Figure()).ok
    assert Outcome([Check("a", 1.0)], Figure()).ok


@pytest.mark.parametrize(
    ("selector", "message"),
    [("stern-grinspum-2009", "no paper 'stern-grinspum-2009'. Did you mean stern-grinspun-2009"),
     ("stern-grinspun-2009/fpu-baseline", "no experiment 'fpu-baseline'. Did you mean .*fpu-baselines"), ("stern-grinspun-2009/", "no experiment ''")],
)  # fmt: skip
def test_unknown_names_are_answered_with_near_ones(selector, message):
    with pytest.raises(gm.InputError, match=message):
        papers.find(selector)


def test_two_experiments_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(base, "_experiments", dict(base._experiments))
    register = papers.experiment("paper", "name", "title", "figure")
    register(lambda quick: None)
    assert [e.name for e in papers.find("paper")] == ["name"]
    with pytest.raises(ValueError, match="two experiments paper/name"):
        register(lambda quick: None)


def test_an_experiment_that_stops_is_a_failed_one(tmp_path):
    def stops(quick):
        raise gm.RunStopped("it grew beyond all bounds")

    done = papers.reproduce(papers.Experiment("paper", "name", "title", "figure", stops), True, tmp_path)
    assert not done.ok
    assert done.error == "it grew beyond all bounds"
    assert not list(tmp_path.iterdir())
