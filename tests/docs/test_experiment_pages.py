"""The gallery, the tables of checks and the page of corrections show what docs/results has."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from geomint import papers

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import experiment_pages

    yield experiment_pages
    sys.modules.pop("experiment_pages", None)


INFORMATION = {"claim": "largest |ΔH|", "measured": 1.23456e-13, "low": None, "high": 1e-12, "verdict": "information"}
ROWS = [
    INFORMATION,
    {
        "claim": "q* of *one* x_1",
        "measured": 2.5,
        "low": 2,
        "high": 3,
        "verdict": "reproduced",
        "paper": 2.4,
        "ok": True,
    },
    {"claim": "a sign", "measured": -0.5, "verdict": "corrected", "paper": "+0.5", "where": "(18)", "note": "f | −f"},
    {"claim": "mean", "measured": 4.0, "spread": 0.125, "low": 3, "high": 5, "verdict": "chaotic", "paper": 3.9},
    {"claim": "limit", "measured": 160000.0, "low": 1e5, "high": None, "verdict": "contradicted", "paper": "none"},
    {"claim": "broken", "measured": None, "low": 0, "high": 1, "verdict": "reproduced", "ok": False},
]


@pytest.fixture
def results(pages, tmp_path):
    """One experiment with a row of each verdict, and an older one without verdicts, of one paper."""
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/images").mkdir()
    (tmp_path / "docs/images/tao-dna.png").write_bytes(b"")
    old = {"quick": {"checks": []}, "full": {"checks": [{"claim": "old", "measured": 1.0}]}}
    entries = {"dna": {"title": "DNA", "figure": "Fig. 8", "full": {"checks": ROWS}}, "structure": old}
    (tmp_path / "docs/results/tao-owhadi-2015.json").write_text(json.dumps(entries))
    return pages.recorded(tmp_path)


def test_experiments_are_in_the_order_of_the_paper(results):
    structure, dna = results["tao-owhadi-2015"]
    assert (structure.name, dna.name) == ("structure", "dna")
    assert structure.title == papers.find("tao-owhadi-2015/structure")[0].title  # not in the file
    assert structure.counts == "1 number"
    assert dna.counts == "1 reproduced, 1 corrected, 1 contradicted, 1 chaotic, 1 information, 1 FAILED"


def test_table_of_checks(pages, results):
    section = pages.checks_section(results["tao-owhadi-2015"])
    lines = [line.strip() for line in section.splitlines() if line.strip().startswith("|")]
    assert lines[:3] == ["| claim | measured |", "| --- | :-: |", "| old | 1 |"]
    assert lines[3] == "| claim | the paper | measured | verdict | note |"
    assert lines[5:] == [
        r"| largest \|ΔH\| | – | 1.23e-13 | information | – |",
        r"| q\* of \*one\* x\_1 | 2.4 | 2.5 | reproduced | – |",
        r"| a sign | +0.5, (18) | −0.5 | corrected | f \| −f |",
        "| mean | 3.9 | 4.00 ± 0.12 | chaotic | – |",
        "| limit | none | 160,000 | contradicted | – |",
        "| broken | – | not finite | FAILED | – |",
    ]
    assert '<a id="checks-dna"></a>' in section


def test_corrections(pages, results):
    wrong, chaotic = pages.corrections(results).split("## Chaotic motions")
    assert "1 reproduced, 1 corrected, 1 contradicted, 1 chaotic." in wrong
    rows = [line for line in wrong.splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| a sign", "| limit"]
    assert rows[1] == "| limit | none (Fig. 8) | 160,000 | contradicted | – |"
    assert "| mean | 3.9 (Fig. 8) | 4.00 ± 0.12 | 3 … 5 |" in chaotic


def test_gallery_leads_to_the_section_with_the_picture(pages, results, tmp_path):
    page = "## DNA: `h` & (Fig. 8)\n\n```\n## no heading\n```\n\n![Angles over time](images/tao-dna.png)\n"
    cards = pages.gallery(results, {"tao-owhadi-2015": page}, tmp_path)
    assert "[![Angles over time](images/tao-dna.png)](tao-owhadi-2015.md#dna-h-fig-8)" in cards
    assert "Fig. 8: [1 reproduced, 1 corrected" in cards
    assert "tao-structure.png" not in cards  # there is no such picture
    assert "tao-owhadi-2015.md#checks-structure" in cards


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.01512345, "0.015123"), (39232.0, "39,232"), (1e154, "1e154"), (-3e-14, "−3e-14"), (2.0, "2"), (0.0, "0")],
)
def test_numbers(pages, number, text):
    assert pages.number(number) == text


@pytest.mark.parametrize(
    ("number", "spread", "text"),
    [
        (0.084051, 0.1, "0.08 ± 0.10"),
        (-6824.2, 1290.0, "−6,800 ± 1,300"),
        (52.075, 1.06, "52.1 ± 1.1"),
        (2.5, 0.0, "2.5"),
        (1e-9, 3e-11, "1e-9 ± 3e-11"),
    ],
)
def test_a_number_has_the_digits_of_its_spread(pages, number, spread, text):
    assert pages.measured({"measured": number, "spread": spread}) == text


def test_every_experiment_has_a_card_and_a_section(pages):
    """Links of the gallery lead to headings and tables that exist; every experiment that is recorded has a picture."""
    gallery = (ROOT / "docs/gallery.md").read_text()
    links = set(re.findall(r"\]\(([\w-]+)\.md#([\w-]+)\)", gallery))
    for paper, anchor in links:
        page = (ROOT / f"docs/{paper}.md").read_text()
        anchors = {pages.slug(h) for h in pages.HEADING.findall(page)} | set(re.findall(r'<a id="([\w-]+)"', page))
        assert anchor in anchors, (paper, anchor)
    shown = {(paper, f"checks-{e.name}") for paper, found in pages.recorded(ROOT).items() for e in found}
    assert shown == {link for link in links if link[1].startswith("checks-")}
    assert len(re.findall(r"\(images/[\w-]+\.png\)", gallery)) == len(shown)
