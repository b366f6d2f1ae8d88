"""Several processes on this machine for one command: `geomint run … --processes N` starts N copies of itself, which find each other by
jax.distributed over the loopback interface.

The first copy speaks for all: it has the terminal. What the others print is shown only where one of them fails by itself. Ctrl-C, and
the SIGTERM of a batch system, are passed on, so that all stop after the same step, with a checkpoint. When one dies, the others end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from .errors import InputError, ProcessLost

WORKER = "GEOMINT_WORKER"  # "index/processes/address of the coordinator", in the environment of a copy
LOST = 3  # exit code of a copy that ended because another one did
GRACE_SECONDS = 10
_ABORTED = b"JAX distributed service detected fatal errors"  # how JAX ends a copy whose coordinator is gone


def is_copy(silent: bool = False) -> bool:
    """Whether this process is a copy; one that has nothing to say, since the first speaks for all."""
    told = os.environ.get(WORKER)
    return told is not None and not (silent and told.startswith("0/"))


def shared(ctx: typer.Context, processes: int, file: Path | None) -> bool:
    """Whether this process does the work of a command: it is alone, or one of the copies. The one that starts them waits for their end,
    and says what is left in `file` where one of them died."""
    told = os.environ.get(WORKER)
    if told is not None:
        _join(told)
        return True
    if processes == 1:
        return True
    if processes < 1:
        raise InputError(f"--processes must be at least 1, not {processes}.")
    if file is None:
        raise InputError("--processes needs -o FILE, which the processes write together.")
    code, culprit, died = together(processes, _again(ctx))
    if died:
        from .io import archive

        left = (
            f"{file} is whole up to step {archive.read(file).step}: `geomint resume {file}` goes on, on any number of processes."
            if file.exists()
            else ""
        )
        raise ProcessLost(died, left, process=culprit)
    if code:
        raise typer.Exit(code)
    return False


def _again(ctx: typer.Context) -> list[str]:
    """The command line of this command, for a copy of the process."""
    options, arguments = [], []
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if value is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(str(value))
        elif isinstance(value, bool):
            options += parameter.opts[:1] if value else parameter.secondary_opts[:1]
        else:
            options += [parameter.opts[0], str(value)]
    return [str(ctx.info_name), *options, "--", *arguments]


def _join(told: str) -> None:
    """One copy among the others. JAX must not have computed anything yet."""
    import jax

    index, processes, address = told.split("/")
    jax.distributed.initialize(
        address, int(processes), int(index), cluster_detection_method="deactivate", initialization_timeout=120
    )
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Standard input is a pipe that nobody writes to: it ends when the process that started this one does, however that ends."""
    while os.read(0, 1):
        pass
    os._exit(LOST)


@contextlib.contextmanager
def leaving_early() -> Iterator[None]:
    """A copy that fails ends at once, without JAX's wait for the others, which may be gone."""
    try:
        yield
    except BaseException as error:
        if not is_copy():
            raise
        code = error.exit_code if isinstance(error, typer.Exit) else 1
        if code == 0:
            raise
        if not isinstance(error, typer.Exit):
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def together(processes: int, command: Sequence[str]) -> tuple[int, int, str]:
    """Run `geomint COMMAND` in so many processes: the exit code, which of them failed, and what is to be said where it died."""
    with tempfile.TemporaryDirectory(prefix="geomint-") as folder:
        said = [Path(folder, str(k)) for k in range(processes)]
        copies = _started(processes, command, said)
        try:
            with _passed_on(copies):
                _wait(copies)
            codes = [
                LOST if copy.returncode is None else copy.returncode for copy in copies
            ]  # who is still there waits for another
        finally:
            _end(copies)
        culprit = next(
            (
                k
                for k, code in enumerate(codes)
                if code not in (0, LOST) and not (code == -signal.SIGABRT and _ABORTED in said[k].read_bytes())
            ),
            None,
        )
        if culprit is None:
            return max(codes), 0, ""
        if codes[culprit] < 0:
            return (
                LOST,
                culprit,
                f"process {culprit} of {processes} was ended by {signal.Signals(-codes[culprit]).name}.",
            )
        if culprit:  # it failed by itself, and the first one has nothing to say about that
            sys.stderr.write(said[culprit].read_text(errors="replace"))
        return codes[culprit], culprit, ""


def _started(processes: int, command: Sequence[str], said: Sequence[Path]) -> list[subprocess.Popen]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    copies = []
    for k in range(processes):
        environment = {
            **os.environ,
            WORKER: f"{k}/{processes}/{address}",
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            **_graphics_cards(k, processes),
        }
        out = None if k == 0 else said[k].open("wb")
        err = subprocess.STDOUT if k else None
        # A session of its own: Ctrl-C of the terminal comes here alone, and is passed on.
        copies.append(
            subprocess.Popen(
                [sys.executable, "-m", "geomint", *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        )
        said[k].touch()
        if out is not None:
            out.close()
    return copies


def _graphics_cards(k: int, processes: int) -> dict[str, str]:
    """Each copy gets its own cards where there are enough; JAX would give all of them to every copy."""
    cards = os.environ.get(
        "CUDA_VISIBLE_DEVICES", ",".join(str(i) for i in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*")))))
    ).split(",")
    cards = [c for c in cards if c]
    return (
        {"CUDA_VISIBLE_DEVICES": ",".join(cards[k * len(cards) // processes : (k + 1) * len(cards) // processes])}
        if len(cards) >= processes
        else {}
    )


@contextlib.contextmanager
def _passed_on(copies: Sequence[subprocess.Popen]) -> Iterator[None]:
    def pass_on(number: int, frame: Any) -> None:
        for copy in copies:
            if copy.poll() is None:
                copy.send_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(copies: Sequence[subprocess.Popen]) -> None:
    """Until all have ended; or one has failed, and the others have had time to notice."""
    failed_at = None
    while any(copy.poll() is None for copy in copies):
        if failed_at is None and any(copy.poll() not in (None, 0) for copy in copies):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > GRACE_SECONDS:
            return
        time.sleep(0.02)


def _end(copies: Sequence[subprocess.Popen]) -> None:
    for copy in copies:
        if copy.poll() is None:
            copy.kill()
        copy.wait()
        if copy.stdin is not None:
            copy.stdin.close()
