"""What a check states, and when it holds."""

import json
import math

import pytest
from matplotlib.figure import Figure

from geomint.papers import Check, Outcome


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
    check = Check("x", measured, (low, high))
    assert check.ok is ok
    assert check.outcome == ("reproduced" if ok else "FAILED")


def test_ranges_and_numbers_print_readably():
    ranges = (1, 2), (1, None), (None, 1e-13), (4, 4), (0.93472891, 0.94104111), (1.31412, 1.31434)
    texts = ["1 … 2", "≥ 1", "≤ 1e-13", "= 4", "0.9347 … 0.941", "1.3141 … 1.3143"]
    assert [Check("x", 0.0, bounds).range_text for bounds in ranges] == texts
    assert Check("x", 0.1, verdict="information").range_text == "–"
    assert Check("x", 0.123456789, (0, 1)).measured_text == "0.12346"
    assert Check("x", 0.5, (0, 1), spread=0.0123).measured_text == "0.5 ± 0.012"
    assert [Check("x", 0.5, (0, 1), paper=p).paper_text for p in (None, 0.25, "no drift")] == ["–", "0.25", "no drift"]


def test_a_check_becomes_json():
    check = Check("x", math.nan, (0.0, None), paper=3, where="Fig. 2", verdict="corrected", note="a sign")
    assert json.loads(json.dumps(check.to_dict(), allow_nan=False)) == {
        "claim": "x", "measured": None, "spread": None, "low": 0.0, "high": None, "paper": 3.0, "where": "Fig. 2",
        "verdict": "corrected", "note": "a sign", "ok": False,
    }  # fmt: skip


def test_a_check_that_cannot_fail_is_refused():
    with pytest.raises(ValueError, match="has no bound, so it cannot fail"):
        Check("x", 1.0)
    with pytest.raises(ValueError, match="has no bound, so it cannot fail"):
        Check("x", 1.0, (None, None))
    assert Check("x", 1.0, verdict="information").ok
    with pytest.raises(ValueError, match="no verdict 'confirmed'; reproduced, corrected"):
        Check("x", 1.0, (0, 2), verdict="confirmed")


def test_verdicts_agree_with_the_number_of_the_paper():
    assert Check("x", 1.0, (0, 2), paper=1.5).outcome == "reproduced"
    with pytest.raises(ValueError, match="the paper's number, 3, is not in the range 0 … 2"):
        Check("x", 1.0, (0, 2), paper=3)
    assert Check("x", 1.0, (0, 2), paper=3, verdict="contradicted").outcome == "contradicted"
    with pytest.raises(ValueError, match="the paper's number, 1.5, is in the range 0 … 2"):
        Check("x", 1.0, (0, 2), paper=1.5, verdict="contradicted")
    assert Check("x", 1.0, (0, 2), paper=3, verdict="corrected").ok


def test_near_is_two_sided_for_both_signs():
    around = [Check.near("x", measured, 2.0, 0.1).ok for measured in (1.79, 1.81, 2.19, 2.21)]
    assert around == [False, True, True, False]
    assert [Check.near("x", measured, -2.0, 0.1).ok for measured in (-2.21, -2.0, -1.79)] == [False, True, False]


def test_numbers_are_compared_with_those_recorded():
    assert Check("x", 1.0, (0.0, 2.0)).agrees(1.01)
    assert not Check("x", 1.0, (0.0, 2.0)).agrees(1.05)
    assert Check("x", 1.0, (0.0, 2.0), rtol=None).agrees(1.9)
    assert not Check("x", 1.0, (0.0, 2.0), rtol=None).agrees(2.1)
    assert Check("x", 1e-15, (None, 1e-13)).agrees(9e-14)  # rounding errors: both are in range
    assert not Check("x", 1e-15, (None, 1e-13)).agrees(2e-13)
    assert Check("x", 1.0, verdict="information").agrees(5.0)


def test_an_outcome_without_a_verdict_proves_nothing():
    good, beside = Check("a", 1.0, (0.0, 2.0)), Check("b", math.nan, verdict="information")
    assert not Outcome([], Figure()).ok
    assert not Outcome([beside], Figure()).ok
    assert not Outcome([good, Check("b", math.nan, (0.0, None))], Figure()).ok
    assert not Outcome([good, Check("b", 3.0, (0.0, 2.0), verdict="information")], Figure()).ok
    assert Outcome([good, beside], Figure()).ok
