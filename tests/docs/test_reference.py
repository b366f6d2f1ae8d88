"""Every public name is in the reference, with its signature and the meaning of each of its arguments."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

import geomint as gm

DOCS = Path(__file__).parents[2] / "docs"
NOT_CALLED = {"Trajectory", "Average", "EnergyDrift", "TemperatureDistribution", "Certificate", "StabilityDiagram"}
NOT_CALLED |= {"Mechanics", "Constraint", "md.NeighbourList", "md.PairSum", "methods.Carry", "methods.Method"}
NOT_CALLED |= {"fem.Elastic", "fem.Collision", "fem.Material", "rigid.Space", "view.Page"}
NOT_CALLED |= {"Comparison", "Lyapunov", "Recommendation", "Section"}


def entries():
    """The text of every entry by its name."""
    text = (DOCS / "reference.md").read_text()
    found = dict(re.findall(r"^### gm\.(\S+)\n(.*?)(?=^##|\Z)", text, re.M | re.S))
    models = re.findall(r"^## (\w+)\n(.*?)(?=^##|\Z)", (DOCS / "models.md").read_text(), re.M | re.S)
    return found | {f"models.{name}": body for name, body in models}


def names():
    """Public names, and what they are."""
    for prefix, module in (
        ("", gm),
        ("fem.", gm.fem),
        ("md.", gm.md),
        ("methods.", gm.methods),
        ("models.", gm.models),
        ("rigid.", gm.rigid),
        ("units.", gm.units),
        ("view.", gm.view),
    ):
        for name in module.__all__:
            if not inspect.ismodule(getattr(module, name)):
                yield prefix + name, getattr(module, name)


def test_every_public_name_has_an_entry():
    found, listed = entries(), dict(names())
    missing = [n for n in listed if n not in found and n.removeprefix("methods.") not in found]
    assert not missing
    assert not [name for name in found if name not in listed and f"methods.{name}" not in listed]
    assert len(found) == len({id(x) for x in listed.values()})  # each once


@pytest.mark.parametrize("name", ["reference.md", "models.md"])
def test_no_markup_in_text(name):
    """Stars (q*, *args) and underscores of docstrings would be taken for emphasis, and tags for HTML."""
    text = re.sub(r"^```.*?^```", "", (DOCS / name).read_text().partition("-->")[2], flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    assert not re.findall(r"^.*(?<!\\)\*.*$", text, re.M)
    assert not re.findall(r"^.*(?<!\w)_\S.*$", text, re.M)
    assert not re.findall(r"^.*<[\w/!].*$", text, re.M)
    assert "<lambda>" not in text
    assert " at 0x" not in (DOCS / name).read_text()


def test_every_argument_has_a_meaning():
    found, count = entries(), 0
    for name, x in names():
        is_error = inspect.isclass(x) and issubclass(x, BaseException)
        if not callable(x) or is_error or name in NOT_CALLED:
            continue
        text = found.get(name) or found[name.removeprefix("methods.")]
        call = re.search(r"```\n(gm\..*?)\n```", text, re.S)[1]
        for argument in inspect.signature(x).parameters:
            assert re.search(rf"[(,*\s]{argument}\b", call), (name, argument)
            row = re.search(rf"^\| `{argument}` \|([^|]*)\|(.*)\|$", text, re.M)
            assert row, (name, argument)
            assert len(row[2].strip()) > 0, (name, argument)
            count += 1
    assert count > 300


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import reference_page

    yield reference_page
    sys.modules.pop("reference_page", None)


def test_new_names_and_arguments_are_asked_for(page, monkeypatch):
    def added(step_size):
        """Something new."""

    with pytest.raises(SystemExit, match=r"gm\.added has arguments without a meaning: step_size"):
        page.entry("added", added)
    monkeypatch.setattr(gm, "added", added, raising=False)
    monkeypatch.setattr(gm, "__all__", [*gm.__all__, "added"])
    with pytest.raises(SystemExit, match="no section, or no public name: added"):
        page.page()


def test_docstrings_are_divided(page):
    """Aligned and free entries, and what is neither."""
    doc = """Do it.

a:    one,
      continued
b or c: two
over lines

d:    not an argument
With more."""
    meanings, rest = page.divided(doc, ["a", "b", "c"])
    assert meanings == {"a": "one, continued", "b": "two over lines", "c": "two over lines"}
    assert rest == ["Do it.", "", "", "d:    not an argument", "With more."]
    assert page.escaped("x < `a*b` * 2") == "x &lt; `a*b` \\* 2"
