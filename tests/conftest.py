"""What all tests share: a cache of compiled programs, and a bound on how many of them one process keeps."""

from __future__ import annotations

import helpers.program_cache  # before JAX  # isort: skip # noqa: F401
from pathlib import Path

import jax
import pytest

import geomint as gm
from geomint.engines.llvm import engine as native
from geomint.engines.pallas import engine as kernel

MAPS = Path("/proc/self/maps")
MANY = 25_000  # Linux gives a process 65,530 memory maps; beyond, LLVM crashes without a message


@pytest.fixture(autouse=True)
def forget_old_programs():
    """A thousand tests compile more programs than one process has memory maps for: forget them from time to time."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        for programs in (native._program, native._probably_faster_than_xla, kernel._program):
            programs.cache_clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: the tests of one method run in one worker, which keeps its compiled programs; all others
    are grouped by file."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        method = item.callspec.params.get("method") if hasattr(item, "callspec") else None
        group = method.name if isinstance(method, gm.methods.Method) else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
