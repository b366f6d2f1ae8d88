"""The papers' experiments: each at reduced size, and the registry that finds them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import geomint as gm
from geomint import papers
from geomint.papers import Check, Information, Outcome, base
from geomint.papers.stern_grinspun_2009.fpu_chain import OscillatoryEnergies
from geomint.run.instability import unwatched

RESULTS = json.loads((Path(__file__).parents[2] / "docs/results.json").read_text())


def compare(experiment, size):
    """An experiment meets its numbers, and they are those from which the documentation is written."""
    with unwatched():  # as `papers.reproduce` runs them
        outcome = experiment(quick=size == "quick")
    assert outcome.checks
    failed = [f"{c.name}: {c.measured:g}, expected {c.expected} ({c.range})" for c in outcome.checks if not c.ok]
    assert not failed
    rows = {row.name: row for row in (*outcome.checks, *outcome.information)}
    assert len(rows) == len(outcome.checks) + len(outcome.information), "two rows of one name"
    recorded = RESULTS[experiment.id][size]
    assert rows.keys() == recorded.keys(), "docs/results.json is stale; run docs/figures.py"
    other = [
        f"{name}: {rows[name].measured:g}, docs/results.json has {x:g}"
        for name, x in recorded.items()
        if not rows[name].agrees(x)
    ]
    assert not other, "run docs/figures.py and docs/generate.py if this is right"
    assert isinstance(outcome.figure, Figure)
    assert outcome.figure.axes


@pytest.mark.parametrize("experiment", papers.all(), ids=lambda e: e.id)
def test_every_experiment_meets_its_numbers(experiment):
    compare(experiment, "quick")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", papers.all(), ids=lambda e: e.id)
def test_every_experiment_meets_its_numbers_at_full_size(experiment):
    compare(experiment, "full")


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
    [
        (1.0, 0.0, 2.0, True),
        (0.0, 0.0, None, True),
        (2.1, None, 2.0, False),
        (-1.0, 0.0, None, False),
        (math.nan, None, 1.0, False),
        (math.nan, 0.0, 1.0, False),
        (math.inf, 0.0, None, True),
        (math.inf, 0.0, 1.0, False),
    ],
)
def test_in_range_or_not(measured, low, high, ok):
    assert Check("x", measured, low, high).ok is ok


def test_a_check_says_its_range_and_becomes_json():
    assert [Check("x", 0.0, *bounds).range for bounds in ((1, 2), (1, None), (None, 2))] == ["1 … 2", "≥ 1", "≤ 2"]
    assert Check("x", 0.0, 1, 2).expected == "1 … 2"
    assert json.loads(json.dumps(Check("x", math.nan, 0.0, expected="a number").to_dict(), allow_nan=False)) == {
        "name": "x", "measured": None, "low": 0.0, "high": None, "expected": "a number", "ok": False,
    }  # fmt: skip


def test_a_check_that_cannot_fail_is_refused():
    with pytest.raises(ValueError, match="has no bound, so it cannot fail. Use Information"):
        Check("x", 1.0)


def test_near_is_two_sided_for_both_signs():
    assert [Check.near("x", measured, 2.0, 0.1).ok for measured in (1.79, 1.81, 2.19, 2.21)] == [
        False,
        True,
        True,
        False,
    ]
    assert [Check.near("x", measured, -2.0, 0.1).ok for measured in (-2.21, -2.0, -1.79)] == [False, True, False]
    assert Check.near("x", 2.0, 2.0, 0.1).expected == "2 ± 10 %"


def test_numbers_are_compared_with_those_recorded():
    assert Check("x", 1.0, 0.0, 2.0).agrees(1.01)
    assert not Check("x", 1.0, 0.0, 2.0).agrees(1.05)
    assert Check("x", 1.0, 0.0, 2.0, rtol=None).agrees(1.9)
    assert not Check("x", 1.0, 0.0, 2.0, rtol=None).agrees(2.1)
    assert Check("x", 1e-15, None, 1e-13).agrees(9e-14)  # rounding errors: both are in range
    assert not Check("x", 1e-15, None, 1e-13).agrees(2e-13)
    assert Information("x", 1.0).agrees(5.0)
    assert not Information("x", 1.0, rtol=0.01).agrees(1.02)


def test_an_outcome_without_checks_proves_nothing():
    good = Check("a", 1.0, 0.0, 2.0)
    assert not Outcome([], Figure()).ok
    assert not Outcome([], Figure(), [Information("b", 1.0)]).ok
    assert not Outcome([good, Check("b", math.nan, 0.0)], Figure()).ok
    assert Outcome([good], Figure(), [Information("b", math.nan)]).ok


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("stern-grinspum-2009", "no paper 'stern-grinspum-2009'. Did you mean stern-grinspun-2009"),
        ("stern-grinspun-2009/fpu-baseline", "no experiment 'fpu-baseline'. Did you mean .*fpu-baselines"),
        ("stern-grinspun-2009/", "no experiment ''"),
    ],
)
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
