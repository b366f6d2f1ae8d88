"""Methods and models as text, for the command line and for archives: ``Composition(Verlet(), order=8)`` and nothing
more.

Only names from a given table, calls and literals are read; no Python is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError, nearest
from ..system.checks import shown

LONGEST = 100_000  # characters of an expression; an array of a model's settings may be among them


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def evaluate(text: str, table: Mapping[str, Callable], kind: str) -> Any:
    """What `text` names: a call of an entry of `table`, whose arguments are literals or such calls again.

    A bare name is called without arguments; case, hyphens and underscores in it do not count.
    """
    if not isinstance(text, str):
        raise InputError(f"the text of a {kind} must be a string, not {type(text).__name__}.")
    if len(text) > LONGEST:
        raise InputError(f"the text of a {kind} has {len(text)} characters, more than {LONGEST}.")
    lookup = {_plain(name): entry for name, entry in table.items()}

    def find(name: str) -> Callable:
        if _plain(name) not in lookup:
            where = "" if name == text else f" (in the text {shown(text)})"
            raise InputError(f"there is no {kind} named {shown(name)}{where}." + nearest(name, table))
        return lookup[_plain(name)]

    def build(node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return call(
                find(node.func.id), [build(a) for a in node.args], {str(k.arg): build(k.value) for k in node.keywords}
            )
        if isinstance(node, ast.Name):
            return call(find(node.id), [], {})
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise InputError(
                f"{ast.unparse(node)!r} in {text!r} is not a {kind}, a number, a string or a list."
            ) from None

    def call(entry: Callable, positional: list, keywords: dict) -> Any:
        try:
            return entry(*positional, **keywords)
        except TypeError as error:
            raise InputError(f"the text {shown(text)}: {error}") from None

    head, bracket, rest = text.strip().partition("(")
    if not bracket:
        return call(find(head.strip()), [], {})
    try:
        tree = ast.parse(head.replace("-", "") + bracket + rest, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(
            f"the text {shown(text)} is not a {kind}; write a name, or a call such as {next(iter(table))}(...)."
        ) from None
    return build(tree)
