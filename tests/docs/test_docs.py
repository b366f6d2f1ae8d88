"""The documentation tells the truth: its code runs, its tables are fresh, its skeleton is a method."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path

import pytest

import geomint as gm
from geomint import papers
from geomint.methods import base

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/families/*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def own_registry(monkeypatch):
    """Methods registered by a test are forgotten after it; docs/ can be imported from."""
    monkeypatch.setattr(base, "_classes", dict(base._classes))
    monkeypatch.setattr(base, "_variants", dict(base._variants))
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.delitem(sys.modules, "skeleton_method", raising=False)
    yield
    sys.modules.pop("skeleton_method", None)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_code_runs(page, tmp_path, monkeypatch, own_registry):
    """All python blocks of a page in order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    text, namespace = page.read_text(), {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block.group(1), str(page), "exec"), namespace)  # line numbers are those of the page


def test_no_python_block_escapes():
    """A block marked in another way would not be run; only the included skeleton is, elsewhere."""
    for page in PAGES:
        kinds = re.findall(r"^```(\S+)", page.read_text(), re.MULTILINE)
        assert set(kinds) <= {"python", "sh", "py"}, page.name
        assert kinds.count("py") == (1 if page.name == "add-a-method.md" else 0), page.name


PAPERS = {e.paper for e in papers.all()}


@pytest.fixture
def generate(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import generate

    yield generate
    sys.modules.pop("generate", None)


def test_tables_are_fresh(generate, own_registry, capsys):
    assert generate.main(check=True) == 0, capsys.readouterr().out + "run `python docs/generate.py`"


@pytest.mark.parametrize(
    ("old", "measured", "new"),
    [
        ("0.094", 0.1479, "0.148"),
        ("2.6e-9", 3.14159e-8, "3.1e-8"),
        ("41 %", 0.2588, "26 %"),
        ("39,232", 40123.0, "40,123"),
        ("531", 12345.0, "12,345"),
        ("−3.36", -2.999, "−3.00"),
        ("0.02", 1.3e-5, "1.3e-5"),
        ("13", 0.0, "0"),
        ("5e4", 48476.7, "5e4"),
    ],
)
def test_numbers_of_experiments_are_written_in_the_form_that_stands_there(generate, old, measured, new):
    tag = "<!--=one: largest error-->"
    results = {"one": {"largest |error|, t ≤ 30": measured, "another row": 7.0}}
    assert generate.with_numbers(f"| a | {old}{tag} |", results) == f"| a | {new}{tag} |"


def test_a_number_of_no_experiment_is_refused(generate):
    for tag, message in (("two: x", "no experiment 'two'"), ("one: z", "names 0 rows"), ("one: x", "names 2 rows")):
        with pytest.raises(SystemExit, match=message):
            generate.with_numbers(f"1.0<!--={tag}-->", {"one": {"x of a": 1.0, "x of b": 2.0}})


@pytest.mark.parametrize("paper", sorted(PAPERS))
def test_the_tables_of_a_paper_hold_measured_numbers(paper):
    """In the section of measurements, every row of a table has a number that carries the name of a row of an
    experiment."""
    text = (ROOT / f"docs/{paper}.md").read_text().partition("## What the experiments measure")[2]
    text = text.partition("<!-- checks:begin -->")[0]
    tables = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| :-:"))]
    bodies = [
        line
        for line, after in itertools.pairwise([*text.splitlines(), ""])
        if line in tables and not after.startswith(("| ---", "| :-:"))
    ]
    assert bodies
    assert [line for line in bodies if "<!--=" not in line] == []


def test_a_stale_number_is_found(generate, monkeypatch, tmp_path):
    """Where an experiment gives another number than the page has, the check fails and names the page."""
    (tmp_path / "docs/results").mkdir(parents=True)
    page = ROOT / "docs/stern-grinspun-2009.md"
    (tmp_path / "docs/stern-grinspun-2009.md").write_text(page.read_text())
    results = json.loads((ROOT / "docs/results/stern-grinspun-2009.json").read_text())
    [row] = [row for row in results["fpu"]["full"]["checks"] if row["claim"] == "IMEX, h = 0.1: first time I₁ = I₃"]
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    (tmp_path / "docs/gallery.md").write_text("<!-- gallery:begin --><!-- gallery:end -->")
    (tmp_path / "docs/corrections.md").write_text("<!-- corrections:begin --><!-- corrections:end -->")

    def stale():
        (tmp_path / "docs/results/stern-grinspun-2009.json").write_text(json.dumps(results))
        changed = [path for path, text in generate.paper_pages().items() if path.read_text() != text]
        for path, text in generate.paper_pages().items():
            path.write_text(text)
        return {path.stem for path in changed}

    stale()
    assert stale() == set()
    row["measured"] += 1.0
    assert stale() == {"stern-grinspun-2009"}
    row |= {"verdict": "chaotic", "paper": 71.0, "low": 60.0, "high": 80.0}
    assert stale() == {"stern-grinspun-2009", "gallery", "corrections"}
    row["verdict"] = "corrected"
    assert stale() == {"stern-grinspun-2009", "gallery", "corrections"}


def test_skeleton_is_a_method(own_registry):
    """Importing it registers it; its name is found, it runs, and its claims are measured."""
    from skeleton_method import Ruth3

    assert any(isinstance(m, Ruth3) for m in gm.methods.all())
    method = gm.methods.named("ruth3")
    model = gm.models.henon_heiles()
    run = gm.simulate(model.system, model.q0, model.v0, method=method, dt=0.1, t_end=1000.0, save_every=10)
    assert abs(run.energy_error).max() < 1e-3
    certificate = gm.certify(model.system, method, model.q0, model.v0, dt=0.1)
    assert certificate.ok, certificate
    assert certificate["order"].measured == pytest.approx(3, abs=0.15)
    assert not certificate["symmetry"].holds


def test_registry_is_left_alone():
    assert "Ruth3" not in base._classes
