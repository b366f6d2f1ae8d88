"""Docstrings and code as HTML."""

from __future__ import annotations

import html
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ITEM = re.compile(r"(?:[-*•]|\d+[.)])\s+")


def prose(text: str | None) -> str:
    """The paragraphs of a docstring; indented ones are formulas and keep their lines, those with bullets are lists."""
    made = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        lines = block.split("\n")
        if all(line.startswith("  ") for line in lines if line.strip()):
            made.append(f'<pre class="formula">{html.escape(textwrap.dedent(block))}</pre>' if block.strip() else "")
        elif all(ITEM.match(line) or line.startswith(" ") for line in lines) and ITEM.match(lines[0]):
            made.append(_list(lines))
        else:
            made.append(f"<p>{inline(' '.join(line.strip() for line in lines))}</p>")
    return "\n".join(part for part in made if part)


def _list(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        if ITEM.match(line):
            items.append(ITEM.sub("", line, count=1))
        else:
            items[-1] += " " + line.strip()
    kind = "ol" if lines[0][0].isdigit() else "ul"
    return f"<{kind}>" + "".join(f"<li>{inline(item)}</li>" for item in items) + f"</{kind}>"


def inline(text: str) -> str:
    """Text with `code` in it."""
    return re.sub(r"(`{1,2})(.+?)\1", r"<code>\2</code>", html.escape(text))


def first_sentence(text: str | None) -> str:
    """Up to the first full stop that ends a sentence."""
    whole = " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", whole)[0]


def source(function: Callable[..., Any]) -> tuple[str, str]:
    """(the code of a function as HTML, its file and line), as far as Python finds it."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return "", ""
    text = textwrap.dedent("".join(lines))
    where = f"{function.__module__.replace('.', '/')}.py, line {first}"
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)), where


def paper_title(function: Callable[..., Any], paper: str) -> str:
    """What the folder of a paper's experiments says it is: authors, title, journal; else the short name."""
    folder = sys.modules.get(function.__module__.rpartition(".")[0])
    about = inspect.cleandoc(folder.__doc__ or "").split("\n\n")[0] if folder and folder.__doc__ else ""
    named = paper.replace("-", "_") == (folder.__name__.rpartition(".")[2] if folder else "")
    return " ".join(about.split()).rstrip(".") if named and about else paper


def module_doc(function: Callable[..., Any]) -> str:
    """What the file of an experiment says of its problem, where it is one of the papers'."""
    module = sys.modules.get(function.__module__)
    return (module.__doc__ or "") if module and ".papers." in module.__name__ else ""
