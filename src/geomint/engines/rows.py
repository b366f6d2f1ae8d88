"""Methods of an engine that interpret the rows that it has saved, for the host loop.

`StateRows` implements them for rows that are states of trajectories. The engine of reduced ensembles
(run/reducing_engine.py), whose rows are statistics over members, overrides them. The host loop therefore never tests
the type of an engine.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..methods import Carry, Method, protocols
from ..system.system import Stated
from .block import Layout, Observed, is_good
from .device_rows import DeviceRows


def statuses(method: Method, carry: Carry) -> Any:
    """The status of each member; None where a method can't fail."""
    return jax.vmap(lambda each: protocols.status(method, each))(carry)


class StateRows:
    """Rows (saves, width) of one trajectory, or (members, saves, width)."""

    method: Method
    system: Stated
    spread: str
    layout: Layout

    @property
    def rows_per_member(self) -> bool:
        """Whether rows have a leading member axis."""
        return self.spread != "one"

    def states_in(self, rows: np.ndarray) -> Observed | None:
        """The saved quantities of each trajectory; None where rows are not those of trajectories."""
        return self.layout.unpack(rows)

    def first_row(self, seen: Observed) -> Observed:
        """The row of the initial state, from what `begin` returned."""
        return seen

    def bad_rows(self, rows: np.ndarray | DeviceRows) -> np.ndarray:
        """Which rows are not good, as `is_good` defines it: (saves,) or (members, saves)."""
        if isinstance(rows, DeviceRows):
            if rows.good(self.layout):
                return np.zeros(rows.shape[:-1], bool)
            rows = np.asarray(rows)
        seen = self.layout.unpack(rows)
        if np.isfinite(rows).all() and not np.any(seen.get("status", 0)):  # ten times faster than row by row
            return np.zeros(rows.shape[:-1], bool)
        return ~is_good(seen, rows.ndim - 1)

    def all_unrecoverable(self, rows: np.ndarray, buffer: Any) -> bool:
        """Whether no trajectory can recover, judged by the first row: q or p not finite, or a status. An energy that is
        not finite may recover."""
        return not np.any(is_good(self.layout.unpack(rows[..., 0, :]), rows.ndim - 2, energy=False))

    def status_after(self, carry: Any, row: np.ndarray) -> Any:
        """The status of each trajectory in its last row; None where the method can't fail."""
        return self.layout.unpack(row).get("status")

    # --- what is kept of a run ---
    @property
    def archive_entries(self) -> dict[str, Any]:
        """Further entries of the JSON of an archive."""
        return {}

    @property
    def fixed_arrays(self) -> dict[str, np.ndarray]:
        """What an archive has besides rows and checkpoints, by the path of the dataset."""
        return {}

    def method_carry(self, carry: Carry) -> Carry:
        """The method's own carry, without what the engine adds to it."""
        return carry

    def results(self, columns: Observed, carry: Carry) -> tuple[Observed, Any]:
        """What a run in memory returns: the columns, and a summary where members were reduced."""
        return columns, None
