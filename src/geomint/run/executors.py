"""Tasks on an executor: any object with the `submit` of concurrent.futures.

Dask      a distributed.Client. Dask replaces lost workers and repeats their tasks; a task whose workers were lost
          several times ends with KilledWorker, and is submitted again here as long as it makes progress.
MPI       mpi4py.futures.MPIPoolExecutor.
local     concurrent.futures.ProcessPoolExecutor. One process that dies breaks the pool: the run ends with ProcessLost,
          and gm.resume continues it. Processes that it forks (the default on Linux) relay their tasks (relay.py).

Only `submit` of the executor, and `done`, `result` and `cancel` of its futures are used, so that futures of Dask, which
concurrent.futures.wait does not know, are like all others.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import GeomintError, InputError, ProcessLost
from .relay import RelayLost

POLL_SECONDS = 0.02
LOOK_SECONDS = 0.5  # between two looks at the progress of the tasks
LOST_SECONDS = 30.0  # without a connection to the scheduler
AHEAD = 4  # tasks submitted for each worker
LEAST_AHEAD = 64
ATTEMPTS = 5  # of a task that makes no progress
LONG = 2**20  # bytes that are not sent with every task


class TaskLost(Exception):
    """A task was lost with its worker, and may be submitted again."""


class TaskFailed(Exception):
    """A task raised an error."""

    def __init__(self, number: int, error: BaseException):
        super().__init__(number, error)
        self.number, self.error = number, error


def checked_executor(executor: Any) -> Any:
    """The argument executor=."""
    if executor is None:
        return None
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise InputError(
            "executor must have the method submit of concurrent.futures, as a dask.distributed.Client, an "
            f"MPIPoolExecutor and a ProcessPoolExecutor have, not {type(executor).__name__}."
        )
    if is_asynchronous(executor):
        raise InputError("executor: give a dask.distributed.Client that is not asynchronous.")
    return executor


def is_asynchronous(executor: Any) -> bool:
    return getattr(executor, "asynchronous", False) is True


def worker_count(executor: Any) -> int:
    """How many workers there are, as far as an executor says."""
    if executor is None:
        return 1
    with contextlib.suppress(Exception):  # a client of Dask
        return max(1, len(executor.scheduler_info(n_workers=-1)["workers"]))
    for name in ("_max_workers", "num_workers", "_num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    return 1


class InThisProcess:
    """The executor of executor=None: a task runs when it is submitted."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def _same(x: Any) -> Any:
    return x


class Tasks:
    """Runs function(shared, *arguments of a task) for all tasks, on an executor."""

    def __init__(self, executor: Any, function: Callable[..., Any], shared: Any):
        self.executor, self.function = executor, function
        self.is_dask = hasattr(executor, "scheduler_info")
        self.content, self.shared = shared, None
        self.ahead = 1 if isinstance(executor, InThisProcess) else max(LEAST_AHEAD, AHEAD * worker_count(executor))
        self.running: dict[Any, int] = {}  # future: number of the task
        self.lost_since: float | None = None

    def _sent(self) -> Any:
        """What is sent with every task. A long content is the result of a task of its own, so that Dask keeps it once
        and makes it again after the loss of a worker; data that were scattered would be lost with the workers that hold
        them. That task too may be given up by Dask, after the loss of several workers, and is submitted again."""
        if not self.is_dask or len(self.content) < LONG:
            return self.content
        if self.shared is None or self.shared.status not in ("pending", "finished"):
            self.shared = self.executor.submit(_same, self.content, pure=False)
        return self.shared

    def submit(self, number: int, *arguments: Any) -> None:
        keywords = {"pure": False} if self.is_dask else {}
        try:
            with warnings.catch_warnings():
                # JAX warns of forks, after which it can't be used; relay.py does not use it there.
                warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
                future = self.executor.submit(self.function, self._sent(), number, *arguments, **keywords)
            self.running[future] = number
        except (concurrent.futures.BrokenExecutor, RuntimeError, OSError) as error:
            raise executor_lost(error) from error

    def finished(self) -> list[tuple[int, Any]]:
        """The tasks that have ended since the last call, with their results. It waits a moment where there are none.
        An exception of a task is returned as its result; TaskLost where the task may be submitted again."""
        ended = [future for future in self.running if future.done()]
        if not ended:
            self._check_connection()
            time.sleep(POLL_SECONDS)
        return [(self.running.pop(future), _outcome(future)) for future in ended]

    def _check_connection(self) -> None:
        """Raise ProcessLost where the scheduler of Dask is gone; its client tries to reconnect for a while."""
        status = getattr(self.executor, "status", "running") if self.is_dask else "running"
        if status == "running":
            self.lost_since = None
            return
        self.lost_since = self.lost_since or time.monotonic()
        if status in ("closed", "failed") or time.monotonic() - self.lost_since > LOST_SECONDS:
            raise ProcessLost("The scheduler of Dask is gone.")

    def cancel(self) -> None:
        for future in self.running:
            with contextlib.suppress(Exception):
                future.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until no task runs any more; False where some still do after so many seconds."""
        until = time.monotonic() + seconds
        while any(not future.done() for future in self.running):
            if time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        return True


def executor_lost(error: BaseException) -> ProcessLost:
    """The error for an executor that takes no tasks any more."""
    why = str(error).strip().rstrip(".") or type(error).__name__
    return ProcessLost(f"A worker of the executor was lost, and with it the executor ({why[:300]}).")


def _outcome(future: Any) -> Any:
    """The result of a future that is done, or its exception."""
    try:
        return future.result()
    except concurrent.futures.BrokenExecutor as error:
        return executor_lost(error)
    except concurrent.futures.CancelledError as error:  # Dask cancels the tasks of a scheduler that is gone
        return ProcessLost(f"The executor has cancelled its tasks ({type(error).__name__}).")
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if "FutureCancelledError" in names:
            return ProcessLost("The executor has cancelled its tasks: its scheduler is gone, or it was closed.")
        if names & {"KilledWorker", "CommClosedError"}:
            return TaskLost(str(error)[:300])
        return error


def run_tasks(
    tasks: Tasks,
    arguments: Callable[[int], Sequence[Any]],
    numbers: Iterable[int],
    ended: Callable[[int, Any], None],
    progress_of: Callable[[int], Any],
    look: Callable[[], None],
    retried: tuple[type[Exception], ...] = (),
) -> None:
    """Run the tasks of these numbers, some ahead of the workers, until all have ended.

    ended(number, result): called for every result; TaskFailed is raised where a task raised an error.
    progress_of(number): any value that changes when the task makes progress; a lost task is submitted again as long as
    it does, and a few times without.
    look(): called about twice a second.
    """
    waiting, looked = iter(numbers), time.monotonic()
    attempts: dict[int, tuple[Any, int]] = {}
    more = True
    while more or tasks.running:
        while more and len(tasks.running) < tasks.ahead:
            number = next(waiting, None)
            more = number is not None
            if number is not None:
                tasks.submit(number, *arguments(number))
        for number, result in tasks.finished():
            if isinstance(result, (TaskLost, RelayLost, *retried)):
                _count_attempt(attempts, number, progress_of(number), result)
                tasks.submit(number, *arguments(number))
            elif isinstance(result, BaseException):
                raise TaskFailed(number, result)
            else:
                ended(number, result)
        if time.monotonic() - looked > LOOK_SECONDS:
            looked = time.monotonic()
            look()


def _count_attempt(attempts: dict[int, tuple[Any, int]], number: int, reached: Any, why: Exception) -> None:
    before, count = attempts.get(number, (None, 0))
    count = 1 if reached != before else count + 1
    attempts[number] = reached, count
    if count > ATTEMPTS:
        if isinstance(why, GeomintError):
            raise why
        raise ProcessLost(
            f"Task {number} was lost {count} times with its worker at the same place ({why}). Workers that run out of "
            "memory are ended by Dask: give them more, or take a smaller shard=."
        )
