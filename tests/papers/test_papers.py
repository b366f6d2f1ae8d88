"""The papers' experiments: each at reduced size, and the registry that finds them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import geomint as gm
from geomint import papers
from geomint.papers import base
from geomint.papers.stern_grinspun_2009.fpu_chain import OscillatoryEnergies
from geomint.run.instability import unwatched

RESULTS = {
    f"{path.stem}/{name}": sizes
    for path in (Path(__file__).parents[2] / "docs/results").glob("*.json")
    for name, sizes in json.loads(path.read_text()).items()
}


def compare(experiment, size):
    """An experiment meets its numbers, and they are those from which the documentation is written."""
    with unwatched():  # as `papers.reproduce` runs them
        outcome = experiment(quick=size == "quick")
    failed = [f"{c.claim}: {c.measured_text}, expected {c.range_text}" for c in outcome.checks if not c.ok]
    assert not failed
    assert outcome.ok
    rows = {check.claim: check for check in outcome.checks}
    assert len(rows) == len(outcome.checks), "two rows of one claim"
    recorded = {row["claim"]: row for row in RESULTS[experiment.id][size]["checks"]}
    assert rows.keys() == recorded.keys(), "docs/results is stale; run docs/figures.py"
    other = [
        f"{claim}: {rows[claim].measured:g}, docs/results has {row['measured']:g}"
        for claim, row in recorded.items()
        if row["measured"] is not None and not rows[claim].agrees(row["measured"])
    ] + [
        f"{claim}: another verdict or place, or other words of the paper, in docs/results"
        for claim, row in recorded.items()
        if any(row[field] != getattr(rows[claim], field) for field in ("verdict", "where", "paper"))
    ]
    assert not other, "run docs/figures.py and docs/generate.py if this is right"
    silent = [check.claim for check in outcome.checks if check.judged and check.paper is None]
    assert not silent, "a verdict on something that the paper does not state"
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


def test_a_motion_shows_the_ball_on_its_terraces():
    [experiment] = papers.find("gonzalez-schmidt-ortiz-2010/turning-point")
    scene = experiment(quick=True).motion()
    assert 100 <= len(scene.times) <= 300
    on_terraces, smooth = scene.positions[:, 0], scene.positions[:, 1]
    levels = on_terraces[:, 1] / 0.099
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-12)
    np.testing.assert_allclose(smooth[:, 1], 0.5 * smooth[:, 0] ** 2, atol=1e-12)
    assert np.ptp(scene.positions[:, 2:], axis=0).max() == 0.0  # the stairs


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
