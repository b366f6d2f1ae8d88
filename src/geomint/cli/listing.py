"""``geomint list``: the methods with their traits, the models, the papers' experiments."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from ..errors import GeomintError
from .output import console, table

if TYPE_CHECKING:
    from ..methods import Traits


class Kind(StrEnum):
    """What `list` can show alone."""

    methods = "methods"
    models = "models"
    papers = "papers"


def list_(kind: Annotated[Kind | None, typer.Argument(help="Only these.", show_default="all three")] = None) -> None:
    """The methods with their traits, the models, and the papers' experiments."""
    tables = {Kind.methods: _methods_table, Kind.models: _models_table, Kind.papers: _papers_table}
    for each in Kind if kind is None else (kind,):
        console().print(tables[each]())


def _methods_table() -> Table:
    from .. import methods

    headings = ("order", "symplectic", "symmetric", "reversible", "energy", "momentum maps", "moves", "needs", "forces")
    narrow = console().width < 150  # too narrow for a column per trait: the traits share one
    made = table("Methods", "name", *(("traits",) if narrow else headings))
    for method in methods.all():
        cells = _traits(method.traits)
        if narrow:
            claims = [
                name if cell == "yes" else f"{name} {cell}"
                for name, cell in zip(headings, cells, strict=True)
                if cell != "–"
            ]
            cells = (", ".join(claims),)
        made.add_row(*map(Text, (method.name, *cells)))
    made.caption = (
        "momentum maps: all of linear actions, or only those of translations (linear); "
        "forces: evaluations a step, where fixed"
    )
    made.caption_justify = "left"
    return made


def _traits(traits: Traits) -> tuple[str, ...]:
    """The cells of a method's row, in the order of the headings."""
    yes = lambda x: "yes" if x else "–"
    moves = " and ".join(kind for kind, able in (("free", traits.free), ("constrained", traits.constrained)) if able)
    return (
        f"weak {traits.weak_order}" if traits.stochastic else str(traits.order),
        yes(traits.symplectic),
        yes(traits.symmetric),
        yes(traits.reversible),
        traits.energy or "–",
        traits.momentum_maps or "–",
        moves,
        ", ".join(traits.needs) or "–",
        "–" if traits.forces is None else str(traits.forces),
    )


def _models_table() -> Table:
    from .. import models

    made = table("Models", "name", "description", "degrees of freedom", "method", "dt", "t_end")
    for name, make in models.all().items():
        try:
            model = make()
            cells = (model.description, str(np.size(model.q0)), model.method.name, f"{model.dt:g}", f"{model.t_end:g}")
        except GeomintError as error:  # a model that needs an extra package
            cells = (str(error), "–", "–", "–", "–")
        made.add_row(*map(Text, (name, *cells)))
    return made


def _papers_table() -> Table:
    from .. import papers

    made = table("Papers' experiments", "name", "title", "figure")
    for each in papers.all():
        made.add_row(*map(Text, (each.id, each.title, each.figure)))
    return made
