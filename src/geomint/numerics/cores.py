"""How many threads this process may use.

XLA reads the environment variable NPROC when its CPU backend starts (xla/pjrt/utils.cc, DefaultThreadPoolSize), and
otherwise counts the cores that the process may run on. The native engine follows the same rule, so that one number
limits both. Workers that stand side by side on one machine set it before they first use JAX (run/workers.py).
"""

from __future__ import annotations

import os


def cores() -> int:
    """$NPROC where it is set, otherwise the cores that this process may run on."""
    stated = os.environ.get("NPROC", "")
    return int(stated) if stated.isdigit() and int(stated) > 0 else available_cores()


def available_cores() -> int:
    """The cores that the operating system lets this process run on (affinity, as batch systems set it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_cores(count: int) -> None:
    """Use at most so many threads. It has no effect on a backend of JAX, or a thread pool of geomint, that has started
    already."""
    os.environ["NPROC"] = str(max(1, count))
