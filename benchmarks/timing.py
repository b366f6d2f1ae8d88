"""Interleaved timing: each round runs every variant, and the best round counts, so that noise affects all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def best_times(variants: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Seconds of each variant; the first call of each, which compiles, is not counted."""
    for go in variants.values():
        go()
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, go in variants.items():
            began = time.perf_counter()
            go()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def of_a_step(run: Callable[[int], Any], steps: int) -> float:
    """µs a step: the least of three times of 3·steps steps less the least of three times of `steps` steps."""
    short = best_times({"run": lambda: run(steps)}, 3)["run"]
    return 1e6 * (best_times({"run": lambda: run(3 * steps)}, 3)["run"] - short) / (2 * steps)


def table(title: str, rows: list[tuple[str, str, str]]) -> None:
    """name, measured, target."""
    print(f"\n{title}")
    width = max(len(row[0]) for row in rows)
    for name, measured, target in rows:
        print(f"  {name:<{width}}  {measured:>14}  {target}")
