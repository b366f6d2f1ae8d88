"""Experiments run here: one after another or in several processes, with what was found, how long it took and where."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib.metadata
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import platform
import signal
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from ..errors import GeomintError, ProcessLost
from ..run.instability import unwatched
from .base import Experiment, Outcome, holds
from .checks import Check

PACKAGES = ("geomint", "jax", "numpy", "scipy", "h5py", "llvmlite")


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """The result of running an experiment here; `error` says why there is no outcome."""

    experiment: Experiment
    quick: bool
    seconds: float
    checks: tuple[Check, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()
    left_out: tuple[str, ...] = ()
    picture: Path | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and holds(self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The rows out of their range."""
        return tuple(check for check in self.checks if not check.ok)

    def to_dict(self) -> dict[str, Any]:
        about = {
            "paper": self.experiment.paper,
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "figure": self.experiment.figure,
        }
        found = {"checks": [check.to_dict() for check in self.checks], "parameters": dict(self.parameters)}
        size = {"quick": self.quick, "seconds": round(self.seconds, 3), "left_out": list(self.left_out)}
        picture = self.picture and str(self.picture)
        return {**about, **size, "picture": picture, "ok": self.ok, **found, "error": self.error}


def machine() -> dict[str, Any]:
    """Where and when numbers were measured: versions, processor, date."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a folder that is not installed
            return "not installed"

    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _processor() -> str:
    """The name of the processor; on Linux from /proc, elsewhere what Python knows."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text(errors="replace").splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def reproduce(experiment: Experiment, quick: bool, folder: Path) -> Reproduction:
    """Run one experiment and write its figure to folder/PAPER-EXPERIMENT.png. A GeomintError is reported as a
    failure, so that the other experiments still run."""
    return reproduced(experiment, quick, folder)[0]


def reproduced(experiment: Experiment, quick: bool, folder: Path) -> tuple[Reproduction, Outcome | None]:
    """`reproduce`, and the outcome with its figure and its motion, for pages."""
    from ..plots.figures import save_figure

    began = time.perf_counter()
    try:
        with unwatched():  # experiments exceed limits of methods on purpose, and check the energy themselves
            outcome = experiment(quick=quick)
    except GeomintError as error:
        return Reproduction(experiment, quick, time.perf_counter() - began, error=str(error)), None
    seconds = time.perf_counter() - began
    picture = save_figure(outcome.figure, folder / f"{experiment.paper}-{experiment.name}.png")
    parameters, left_out = tuple(outcome.parameters.items()), tuple(outcome.left_out) if quick else ()
    done = Reproduction(experiment, quick, seconds, tuple(outcome.checks), parameters, left_out, picture)
    return done, outcome


def run_all(
    experiments: Sequence[Experiment],
    quick: bool,
    folder: Path,
    jobs: int = 1,
    task: Callable[[Experiment, bool, Path], Any] = reproduce,
) -> Generator[Any]:
    """Run experiments and yield the result of each when it is done: in their order with one job, else as they end.

    `task` is what is done with an experiment where it runs: `reproduce`, or more with its figure. With several jobs
    each experiment runs in a process of its own, started afresh, since a process that has used JAX cannot be forked.
    """
    if jobs == 1:
        for each in experiments:
            yield task(each, quick, folder)
        return
    waiting, running = list(reversed(experiments)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                each = waiting.pop()
                process, pipe = _started(functools.partial(task, each, quick, folder))
                running[pipe] = process, each
            for pipe in multiprocessing.connection.wait(list(running)):
                yield _result(pipe, *running[pipe])
                del running[pipe]
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _started(work: Callable[[], Any]) -> tuple[Any, Any]:
    """A new process that does this work, and the end of a pipe from which its result can be read.

    Ctrl-C is for this process, which ends the others: they are started with SIGINT blocked, and inherit that.
    """
    fresh = multiprocessing.get_context("spawn")
    ours, theirs = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_send_result, args=(theirs, work))
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        process.start()
    else:
        multiprocessing.resource_tracker.ensure_running()  # the first start does, and unblocks SIGINT
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return process, ours


def _send_result(pipe: Any, work: Callable[[], Any]) -> None:
    """In the new process: the result, or the error with its traceback as a note."""
    try:
        result, error = work(), None
    except Exception as caught:
        caught.add_note(traceback.format_exc())
        result, error = None, caught
    pipe.send((result, error))


def _result(pipe: Any, process: Any, experiment: Experiment) -> Any:
    """What a process has sent."""
    try:
        result, error = pipe.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        cause = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        raise ProcessLost(f"the process of {experiment.id} ended without a result ({cause}).") from None
    finally:
        pipe.close()
    process.join()
    if error is not None:
        raise error
    return result
