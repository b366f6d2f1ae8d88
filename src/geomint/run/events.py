"""Events: what happened when, in a run of an event-driven method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..methods import KINDS


class Events:
    """The events of a run, in order.

    times, levels, kinds    of each: when, on which level afterwards, and "up", "down", "reflected", "wall" or "contact"
    codes                   the kinds as integers, 1 to 5
    counts                  how many of each kind, evaluations of the potential's jets, the longest row of reflections
                            and the number of trapped stretches; for an ensemble an array over members, and no single
                            events
    """

    def __init__(self, records: np.ndarray | None, counts: dict[str, Any], path: Path | None = None):
        self._records, self._path = records, path
        self.counts = {name: int(x) if np.ndim(x) == 0 else np.asarray(x) for name, x in counts.items()}

    @property
    def records(self) -> np.ndarray:
        if self._records is None:
            where = (
                f"the file {self._path}.events is missing or too short"
                if self._path
                else "an ensemble only counts its events; simulate a member alone to see them"
            )
            raise AttributeError(f"single events are not kept: {where}.")
        return self._records

    @property
    def times(self) -> np.ndarray:
        return np.asarray(self.records[:, 0])

    @property
    def levels(self) -> np.ndarray:
        return np.asarray(self.records[:, 1]).astype(int)

    @property
    def codes(self) -> np.ndarray:
        return np.asarray(self.records[:, 2]).astype(int)

    @property
    def kinds(self) -> np.ndarray:
        return np.array(["", *KINDS.values()])[self.codes]

    def __len__(self) -> int:
        return int(np.sum(self.counts["events"]))

    def __getitem__(self, name: str) -> Any:
        """events["up"], a count; events["times"], an array."""
        return self.counts[name] if name in self.counts else getattr(self, name)

    def __repr__(self) -> str:
        said = ", ".join(
            f"{np.sum(x)} {name}" for name, x in self.counts.items() if name in KINDS.values() and np.sum(x)
        )
        return f"<{len(self)} events: {said or 'none'}>"
