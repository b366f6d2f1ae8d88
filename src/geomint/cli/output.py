"""What the commands print: tables, one-line errors, JSON, a spinner."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """Stdout at the terminal's width; in a file or a pipe 200 columns, so that no table row is broken there."""
    stdout = Console(highlight=False)
    return stdout if stdout.is_terminal else Console(highlight=False, width=200)


def print_error(message: str) -> None:
    """Print one red line on stderr, without wrapping it and without reading brackets as markup."""
    Console(stderr=True, highlight=False).print(Text(" ".join(message.split()), style="red"), soft_wrap=True)


def table(title: str, *headings: str) -> Table:
    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def print_facts(title: str, facts: dict[str, Any]) -> None:
    """Print a two-column table."""
    made = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    made.add_column(no_wrap=True, style="cyan")
    made.add_column(overflow="fold")
    for name, fact in facts.items():
        made.add_row(Text(_printable(name)), Text(_printable(str(fact))))
    console().print(made)


def _printable(text: str) -> str:
    """Replace control characters, which in text from a file could move the terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


@contextlib.contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show `what` with a spinner on stderr while the block runs; nothing where stderr is not a terminal."""
    with Console(stderr=True).status(Text(what + " …")):
        yield


def to_json(content: Any) -> str:
    """Strict JSON: NaN and infinity become null, numpy numbers plain ones."""

    def plain(x: Any) -> Any:
        if isinstance(x, dict):
            return {str(k): plain(y) for k, y in x.items()}
        if isinstance(x, (list, tuple)):
            return [plain(y) for y in x]
        if isinstance(x, (np.ndarray, np.generic)):
            return plain(x.tolist())
        return None if isinstance(x, float) and not np.isfinite(x) else x

    return json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False, default=str)
