"""The processes that share an ensemble, and how they agree.

Members are independent, so that nothing is exchanged while stepping. Between chunks the processes agree: how long the
next chunk is, whether all members have failed, whether a checkpoint is due, that every share of it is on the disk. For
that each process has a connection to the first one, made when a run begins: each process sends its message there, and
receives the decision. A process that dies closes its connection, whatever kills it, so that the others notice within a
chunk. (The barriers of jax.distributed would wait a hundred seconds for it, and then abort the process without an error
that says where the run stands. jax.distributed is only used for the list of processes and the address of the first.)
"""

from __future__ import annotations

import atexit
import contextlib
import hmac
import json
import os
import secrets
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from ..errors import InputError, ProcessLost

JOIN_SECONDS = 300
LEAVE_SECONDS = 10
_SIZE = struct.Struct("<I")
# Number of runs so far that each group of processes has shared; the same on all processes of the group.
_joined: Counter[tuple[int, ...]] = Counter()


def first(words: Sequence[Any]) -> Any:
    """The first process decides."""
    return words[0]


class Alone:
    """A team of one process."""

    index, count = 0, 1

    def agree(self, what: str, mine: Any, decide: Callable[[Sequence[Any]], Any]) -> Any:
        """decide(the messages of all processes), the same result on all of them; it waits until all have sent
        theirs."""
        return decide([mine])

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """End of the shared work; an error here is sent to the others."""

    @contextlib.contextmanager
    def interruptions(self) -> Iterator[Callable[[], bool]]:
        """A function that returns whether Ctrl-C was pressed. In one process Python raises KeyboardInterrupt
        instead."""
        yield lambda: False


class Team(Alone):
    """Several processes; `index` is the position of this one among them."""

    def __init__(self, index: int, processes: Sequence[int], connections: dict[int, socket.socket]):
        """connections: from the first process to each of the others, or from another to the first, by their index."""
        self.index, self.count, self.processes, self.connections = index, len(processes), processes, connections

    def agree(self, what: str, mine: Any, decide: Callable[[Sequence[Any]], Any]) -> Any:
        if self.index:
            self._send(0, {"what": what, "word": mine})
            return self._heard(0, self._receive(0))["decision"]
        words = {0: mine}
        while len(words) < self.count:
            waiting = {self.connections[k]: k for k in range(1, self.count) if k not in words}
            for ready in select.select(list(waiting), [], [])[0]:
                k = waiting[ready]
                said = self._heard(k, self._receive(k))
                if said["what"] != what:
                    self._lose(
                        k,
                        f"is not where this one is ({said['what']} there, {what} here): all processes must make the "
                        "same calls of geomint, with the same arguments.",
                    )
                words[k] = said["word"]
        decision = decide([words[k] for k in range(self.count)])
        for k in self.connections:
            self._send(k, {"decision": decision})
        return decision

    # --- messages ---
    def _send(self, k: int, message: dict[str, Any]) -> None:
        try:
            _write(self.connections[k], message)
        except OSError:
            self._heard(k, self._receive(k))  # it may have sent the reason before it closed
            self._lose(k, GONE, gone=True)

    def _receive(self, k: int) -> dict[str, Any]:
        try:
            return _read(self.connections[k])
        except OSError:
            return {"lost": k, "why": GONE, "gone": True}

    def _heard(self, k: int, message: dict[str, Any]) -> dict[str, Any]:
        if "lost" in message:
            self._lose(message["lost"], message["why"], message["gone"])
        return message

    def _lose(self, k: int, why: str, gone: bool = False) -> None:
        self._tell(k, why, gone)
        if gone:
            _leave_without_waiting(self.index == 0)
        raise ProcessLost(f"process {self.processes[k]} of {jax.process_count()} {why}", process=self.processes[k])

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            for connection in self.connections.values():
                connection.close()
        elif not isinstance(error, ProcessLost):
            self._tell(self.index, f"stopped: {type(error).__name__}: {error}", gone=False)

    def _tell(self, lost: int, why: str, gone: bool) -> None:
        """Send the loss to all others. The connections stay open: the message may not have been read yet."""
        for connection in self.connections.values():
            _left_open.append(connection)
            with contextlib.suppress(OSError):
                _write(connection, {"lost": lost, "why": why, "gone": gone})

    @contextlib.contextmanager
    def interruptions(self) -> Iterator[Callable[[], bool]]:
        """Ctrl-C is only recorded here: the processes agree to stop after the same step. A second one stops this
        process immediately. Signal handlers can only be set in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield lambda: False
            return
        noted: list[int] = []

        def note(number: int, frame: Any) -> None:
            if noted:
                signal.default_int_handler(number, frame)
            noted.append(number)

        before = signal.signal(signal.SIGINT, note)
        try:
            yield lambda: bool(noted)
        finally:
            signal.signal(signal.SIGINT, before)


GONE = "ended without a word: it was killed, ran out of memory, or lost its connection."


def _write(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    connection.sendall(_SIZE.pack(len(data)) + data)


def _read(connection: socket.socket, most: int = 2**30) -> dict[str, Any]:
    size = _SIZE.unpack(_exactly(connection, _SIZE.size))[0]
    if size > most:
        raise ConnectionError("no message of geomint")
    return json.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    free = memoryview(data)
    while free:
        count = connection.recv_into(free)
        if not count:
            raise ConnectionError("closed")
        free = free[count:]
    return bytes(data)


_left_open: list[socket.socket] = []
_leaving = False


def _leave_without_waiting(first_one: bool) -> None:
    """At exit JAX waits for all processes of the job, for a hundred seconds where one is gone, and then aborts. A job
    that has lost a process has failed, and exits without that. The first process exits last: JAX aborts the others with
    it."""
    global _leaving
    if not _leaving:
        _leaving = True
        atexit.register(_leave, first_one)


def _leave(first_one: bool) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    until = time.monotonic() + LEAVE_SECONDS
    for connection in _left_open if first_one else ():
        with contextlib.suppress(OSError):
            connection.settimeout(max(0.01, until - time.monotonic()))
            while connection.recv(4096):
                pass
    os._exit(1)


# --- making a team ---
def devices_and_team(mesh: Any) -> tuple[Sequence[Any], Alone]:
    """The devices of mesh=, those of one process next to each other, and the team of processes that have them."""
    if mesh is None:
        return (None,), Alone()
    if isinstance(mesh, str):
        if mesh != "all":
            raise InputError(f'mesh must be a jax.sharding.Mesh, "all" or None, not {mesh!r}.')
        devices = jax.devices()
    elif isinstance(mesh, jax.sharding.Mesh):
        devices = list(mesh.devices.flat)
    else:
        raise InputError(f'mesh must be a jax.sharding.Mesh, "all" or None, not {type(mesh).__name__}.')
    devices = sorted(devices, key=lambda d: d.process_index)  # stable: the order of the mesh within a process
    processes = sorted({d.process_index for d in devices})
    if jax.process_index() not in processes:
        raise InputError(
            f"mesh has devices of the processes {processes} only, and this is process {jax.process_index()}: leave the "
            "call to those."
        )
    return devices, Alone() if len(processes) == 1 else _join(processes)


def _join(processes: Sequence[int]) -> Team:
    """Connect to the first process; on the first process, wait for the others."""
    _joined[tuple(processes)] += 1
    index = processes.index(jax.process_index())
    where = f"geomint/{_joined[tuple(processes)]}/{'-'.join(map(str, processes))}"
    try:
        if index == 0:
            return Team(0, processes, _welcome(where, len(processes)))
        return Team(index, processes, {0: _knock(where, index)})
    except Exception as error:
        who = f"process {processes[0]}" if index else "the other processes"
        late = isinstance(error, TimeoutError) or "DEADLINE_EXCEEDED" in str(error)  # the latter of jax.distributed
        why = (
            f"did not join this run within {JOIN_SECONDS} s: all processes of the mesh must make the same call"
            if late
            else "could not be joined for this run"
        )
        raise ProcessLost(f"{who} {why} ({error}).", process=processes[0]) from error


def _job() -> Any:
    """The state of jax.distributed: its `client`, a key-value store of all processes, and the address of its
    coordinator. It has no public name. The public function for passing a few bytes is a collective, which compiles a
    program, needs a network library and prints messages."""
    from jax._src.distributed import global_state

    return global_state


def _welcome(where: str, count: int) -> dict[int, socket.socket]:
    key = secrets.token_hex(16)
    one_machine = str(_job().coordinator_address).startswith(("127.", "localhost"))
    with socket.create_server(("127.0.0.1" if one_machine else "", 0), backlog=count) as server:
        _job().client.key_value_set(where, json.dumps([socket.gethostname(), server.getsockname()[1], key]))
        server.settimeout(JOIN_SECONDS)
        connections: dict[int, socket.socket] = {}
        while len(connections) < count - 1:
            connection, _ = server.accept()
            connection.settimeout(10)
            with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):  # not a process of the job
                said = _read(connection, most=1000)
                if hmac.compare_digest(said["key"], key):
                    connections[said["index"]] = _kept_alive(connection)
                    continue
            connection.close()
    return connections


def _knock(where: str, index: int) -> socket.socket:
    host, port, key = json.loads(_job().client.blocking_key_value_get(where, 1000 * JOIN_SECONDS))
    connection = socket.create_connection(("127.0.0.1" if host == socket.gethostname() else host, port), timeout=30)
    _write(connection, {"key": key, "index": index})
    return _kept_alive(connection)


def _kept_alive(connection: socket.socket) -> socket.socket:
    """Without delay and without a timeout (another process may compile for minutes); keep-alive messages detect a
    machine that is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return connection
