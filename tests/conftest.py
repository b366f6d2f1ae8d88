"""What all tests share: a cache of compiled programs, and a bound on how many of them one process keeps."""

from __future__ import annotations

import helpers.program_cache  # before JAX  # isort: skip # noqa: F401
import gc
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import geomint as gm
from geomint.engines.llvm import engine as native
from geomint.engines.pallas import engine as kernel
from geomint.numerics.frames import in_one_chunk
from helpers.zoo import Problem

MAPS = Path("/proc/self/maps")
MANY = 40_000  # Linux gives a process 65,530 memory maps; beyond, LLVM crashes without a message
# Groups that take longest, for the number of their tests: started first, so that no worker is left with one at the end.
LONG = (
    "test_papers", "test_singular_positions", "test_docs", "test_executors", "test_interval_curvature", "three-bodies",
    "test_rattle", "test_elastic", "Rattle()", "test_engines", "test_assemblies", "test_hard_spheres",
    "test_scalar_edges", "test_first_exit", "test_filtered", "test_variational", "test_random_programs",
    "EnergyStepping(height=0.05)", "test_compilation", "test_reductions", "test_stability", "test_langevin",
    "test_gradients", "test_driven", "Shake()", "test_certify", "SymmetricMultistep(order=4)", "test_energy_stepping",
    "test_energy_stepping_runs", "test_trigonometric", "test_oscillatory", "SymmetricMultistep(order=6)",
    "test_sharded", "test_archive", "harmonic-bonds", "test_examples", "test_fluid", "test_pairs",
)  # fmt: skip
BETWEEN_LOOKS = 25  # tests; reading 10,000 maps takes 30 ms, which after every test was 3 % of the time of all
_tests_done = itertools.count(1)
gc.set_threshold(10_000, 20, 20)  # tracing makes millions of objects; with fewer collections tests take 8 % less time


@pytest.fixture(autouse=True)
def forget_old_programs():
    """A thousand tests compile more programs than one process has memory maps for: forget them from time to time.
    Programs that are kept live long: collections of garbage pass over them."""
    yield
    if next(_tests_done) % BETWEEN_LOOKS:
        return
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        for programs in (native._program, native.size_of, kernel._program):
            programs.cache_clear()
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@in_one_chunk
def _called(test: Callable, arguments: dict[str, Any]) -> None:
    test(**arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """A test that calls JAX takes a tenth less time in one chunk."""
    _called(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    return True


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False  # by the number of tests, which says little about the time they take


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and tests live until the end, and half a million objects of theirs took each full collection 0.4 s."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The same for what the tests have compiled: pytest and the interpreter collect it several times before they end,
    which takes each worker a second or two."""
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: tests that share compiled programs run in one worker. Those on a problem of the zoo share
    its reference solutions, those of a method its programs; all others are grouped by file. The groups that take
    longest come first."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    groups: dict[int, str] = {}
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        method, problem = params.get("method"), params.get("problem")
        group = method.name if isinstance(method, gm.methods.Method) else item.path.stem
        group = problem.name if isinstance(problem, Problem) else group
        item.add_marker(pytest.mark.xdist_group(group))
        groups[id(item)] = group
    if getattr(config.option, "dist", "no") == "loadgroup" or hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONG.index(groups[id(item)]) if groups[id(item)] in LONG else len(LONG))
