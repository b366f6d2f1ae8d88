"""The tutorials run, their stored outputs belong to their code, and their pages show both."""

from __future__ import annotations

import base64
import copy
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.ipynb"))


@pytest.fixture
def notebooks(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import notebooks

    yield notebooks
    sys.modules.pop("notebooks", None)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(notebooks, path, tmp_path, monkeypatch):
    """Every cell, in order; the cells have assertions of their own. What it prints and draws has the form of what is
    stored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "png", lambda figure: b"")
    notebook = notebooks.load(path)
    for cell, printed, shown in notebooks.execute(notebook, path.stem):
        kinds = lambda outputs: [(o["output_type"], sorted(o.get("data", ()))) for o in outputs]
        assert kinds(notebooks.outputs(printed, shown)) == kinds(cell["outputs"]), notebooks.source(cell)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_stored_outputs_belong_to_the_code(notebooks, path):
    notebook = notebooks.load(path)
    assert notebook["metadata"]["executed"] == notebooks.fingerprint(notebook), "run `python docs/notebooks.py`"
    assert path.stat().st_size < 250_000
    changed = copy.deepcopy(notebook)
    notebooks.code_cells(changed)[0]["source"].append("\nx = 1")
    assert notebooks.fingerprint(changed) != notebook["metadata"]["executed"]


def test_there_are_five(notebooks):
    assert len(TUTORIALS) >= 5
    nav = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(f"tutorials/{path.stem}.md" in nav for path in TUTORIALS)


def test_values_figures_and_semicolons(notebooks, tmp_path, monkeypatch):
    """A last expression is shown, unless a semicolon ends the cell; figures of pyplot are shown once."""
    figure = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()"
    cells = ["1 + 1", "1 + 1;", "print('a'); x = 3", figure, "fig", "x"]
    notebook = {"cells": [{"cell_type": "code", "source": [text]} for text in cells]}
    found = [(printed, [type(x).__name__ for x in shown]) for _, printed, shown in notebooks.execute(notebook)]
    assert found == [("", ["int"]), ("", []), ("a\n", []), ("", ["Figure"]), ("", ["Figure"]), ("", ["int"])]


def test_page_of_a_notebook(notebooks):
    figure = {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"picture").decode()}}
    text = {"output_type": "stream", "name": "stdout", "text": ["4\n"]}
    code = {"cell_type": "code", "source": ["print(2 + 2)\n", "draw()"], "outputs": [text, figure]}
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# [Title](other.ipynb)"]}, code]}
    page, pictures = notebooks.page(notebook, "sum")
    assert page.startswith(
        "# [Title](other.md)\n\n```python\nprint(2 + 2)\ndraw()\n```\n\n``` { .text .output }\n4\n```"
    )
    assert "(sum-1.png)" in page
    assert "(sum.ipynb)" in page
    assert pictures == {"sum-1.png": b"picture"}
    links = "[a](tutorials/sum.ipynb) [b](../tutorials/sum.ipynb) [c](https://x.org/tutorials/sum.ipynb)"
    shown = notebooks.on_page_markdown(links, None, None, None)
    assert shown == "[a](tutorials/sum.md) [b](../tutorials/sum.md) [c](https://x.org/tutorials/sum.ipynb)"
