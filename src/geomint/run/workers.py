"""What a task does first in a worker process: it limits the threads of that process, and unpickles what tasks share.

Systems and methods hold functions, which only cloudpickle can send. They travel between the processes of one user and
are never written to a file.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax

from ..errors import InputError
from ..numerics.cores import available_cores, limit_cores

LOCAL_PROCESSES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")  # on this machine, by MPI
KEPT_PAYLOADS = 4
# One task at a time in a process: each uses all threads that the process has.
one_at_a_time = threading.RLock()
_unpickled: collections.OrderedDict[str, Any] = collections.OrderedDict()


class Shared:
    """The settings of JAX and the limit of threads of a client, with the object that its tasks share."""

    def __init__(self, content: Any, threads: int | None):
        self.content, self.threads = content, threads
        self.x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def pickled(content: Any, executor: Any) -> bytes:
    """What all tasks of a run share, as bytes: a header with the number of threads, then a pickle."""
    try:
        import cloudpickle
    except ImportError:
        raise InputError("executor= needs the package cloudpickle: pip install geomint[cluster]") from None
    threads = _threads_of_pool(executor)
    try:
        data = cloudpickle.dumps(Shared(content, threads))
    except Exception as error:  # of the user's functions
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(
            f"executor=: the system, the method or a reduction can't be sent to other processes ({why}). Functions "
            "that refer to open files, locks or generators are not sent; state the numbers that they need as params."
        ) from error
    return b"%d %s %d\n" % (threads or 0, socket.gethostname().encode(), os.getpid()) + data


def _threads_of_pool(executor: Any) -> int | None:
    """Threads for each process of a pool on this machine; None where the workers know better."""
    if isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return max(1, available_cores() // max(1, getattr(executor, "_max_workers", 1)))
    return None


@contextlib.contextmanager
def opened(payload: bytes | Any) -> Iterator[Any]:
    """The shared object of a task, in a process that runs no other task meanwhile. It is unpickled once in a process:
    compiled programs are cached by the identity of the functions in it."""
    if not isinstance(payload, bytes):  # a task in the process of the client
        with one_at_a_time:
            yield payload
        return
    head, _, data = payload.partition(b"\n")
    threads, host, process = head.split()
    with one_at_a_time:
        if (host.decode(), int(process)) != (socket.gethostname(), os.getpid()):
            _limit_threads(int(threads))
        key = hashlib.sha256(data).hexdigest()
        if key not in _unpickled:
            import cloudpickle

            _unpickled[key] = cloudpickle.loads(data)
            if len(_unpickled) > KEPT_PAYLOADS:
                _unpickled.popitem(last=False)
        _unpickled.move_to_end(key)
        shared = _unpickled[key]
        if bool(jax.config.jax_enable_x64) != shared.x64:  # pyright: ignore[reportAttributeAccessIssue]
            jax.config.update("jax_enable_x64", shared.x64)
        yield shared.content


def _limit_threads(stated: int) -> None:
    """Use as many threads as the environment of this worker gives it: the threads of a Dask worker, the cores of a
    process of a pool or of MPI. A number that the user has set ($NPROC) stays."""
    if "NPROC" in os.environ:
        return
    limit_cores(_threads_of_dask() or stated or _threads_of_mpi() or available_cores())


def _threads_of_dask() -> int | None:
    """Where this task runs in a Dask worker; without importing Dask elsewhere."""
    if "distributed.worker" not in sys.modules:
        return None
    try:
        return int(sys.modules["distributed.worker"].get_worker().state.nthreads)
    except ValueError:  # no task of Dask
        return None


def _threads_of_mpi() -> int | None:
    """The cores of this machine, shared by the processes of MPI here that are not bound to cores of their own."""
    counts = [os.environ.get(name, "") for name in LOCAL_PROCESSES]
    count = next((int(x) for x in counts if x.isdigit() and int(x) > 0), None)
    bound = available_cores() < (os.cpu_count() or 1)
    return None if count is None or bound else max(1, available_cores() // count)
