"""Tasks in forked processes: a forked copy of a process that has used JAX can't use it, since a fork copies no threads.

`ProcessPoolExecutor` forks its processes by default on Linux (Python before 3.14). There a task is relayed to a fresh
Python process, which the forked one starts once and keeps: it sends the arguments through a pipe and waits for the
result. The fresh process ends with the forked one and with the client, whatever ends them. Ctrl-C in a terminal reaches
the client only, which asks the tasks to stop at a checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, BinaryIO, TypeVar

_SIZE = struct.Struct("<Q")
_PARENT_SECONDS = 0.5  # between two looks whether the forked process still lives
_COMMAND = "from geomint.run.relay import serve; serve()"
_forked = False  # whether this process is a forked copy of one that had imported geomint
_fresh: subprocess.Popen | None = None
_lock = threading.Lock()
Task = TypeVar("Task", bound=Callable[..., Any])


class RelayLost(Exception):
    """The fresh process of a forked worker ended before its task did; the client submits the task again."""


def _note_fork() -> None:
    global _forked, _fresh, _lock
    _forked, _fresh, _lock = True, None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def relayed_after_fork(task: Task) -> Task:
    """Decorator of a task: in a forked process it runs in a fresh one."""

    @functools.wraps(task)
    def run(*arguments: Any) -> Any:
        return _relayed(task.__module__, task.__qualname__, arguments) if _forked else task(*arguments)

    return run  # pyright: ignore[reportReturnType]


def _relayed(module: str, name: str, arguments: tuple[Any, ...]) -> Any:
    global _fresh
    with _lock:
        if _fresh is None or _fresh.poll() is not None:
            _fresh = _started()
        assert _fresh.stdin is not None
        assert _fresh.stdout is not None
        try:
            with _without_interrupts():
                _send(_fresh.stdin, (module, name, arguments))
                raised, result = _receive(_fresh.stdout)
        except (OSError, EOFError):
            raise RelayLost(f"the process that ran {name} ended (exit status {_fresh.wait()}).") from None
        except BaseException:
            _fresh.kill()  # its reply would be taken for that of the next task
            raise
    if raised:
        raise result
    return result


def _started() -> subprocess.Popen:
    """A fresh process. -P: modules in the current folder do not hide those of the client."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(x for x in sys.path if x)}
    command = [sys.executable, "-P", "-c", _COMMAND, str(os.getppid())]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C. Signal handlers can only be set in the main thread, in which a pool runs its tasks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def serve() -> None:
    """The fresh process: run tasks until the forked one closes the pipe or ends."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the user's functions print must not be taken for a reply
    threading.Thread(target=_end_with, args=(os.getppid(), int(sys.argv[1])), daemon=True).start()
    while True:
        try:
            module, name, arguments = _receive(requests)
        except EOFError:
            return
        try:
            reply = False, getattr(import_module(module), name)(*arguments)
        except Exception as error:
            reply = True, error
        try:
            _send(replies, reply)
        except (pickle.PicklingError, TypeError, AttributeError):
            _send(replies, (True, RuntimeError(f"{type(reply[1]).__name__}: {reply[1]}")))


def _end_with(parent: int, client: int) -> None:
    """End this process when the forked one or the client has ended."""
    while os.getppid() == parent and _alive(client):
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _send(pipe: BinaryIO | Any, message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> Any:
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    size = _SIZE.unpack(head)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
