"""The documentation tells the truth: its code runs, its tables are fresh, its skeleton is a method."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import geomint as gm
from geomint.methods import base

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]
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


def test_tables_are_fresh():
    check = subprocess.run([sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr + "run `python docs/generate.py`"


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
