"""The memory that is available to this process."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path


def available_memory() -> float:
    """Bytes that a process can still allocate; infinite where that is not known."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024.0 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # not Linux
        try:
            return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        except (AttributeError, OSError, ValueError):
            return math.inf
    with contextlib.suppress(OSError, ValueError):  # the limit of a container, where there is one ("max" otherwise)
        limit, used = (float(Path(f"/sys/fs/cgroup/memory.{x}").read_text()) for x in ("max", "current"))
        free = min(free, limit - used)
    return free
