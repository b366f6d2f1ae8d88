"""Compiled programs on disk, so that a second process does not compile again what a first one has compiled.

    folder/code/<key>      machine code of the LLVM engine, or the reason why a program has none
    folder/numba-<key>/    numba's cache of the loops of numerics.linalg
    folder/xla-<cpu>/      JAX's own persistent compilation cache, one folder for each kind of processor

The folder is $GEOMINT_CACHE, else $XDG_CACHE_HOME/geomint, else ~/.cache/geomint (%LOCALAPPDATA%\\geomint on Windows).
GEOMINT_CACHE=off switches both caches off.

A key is a SHA-256 of everything that the stored bytes depend on: the program, the versions and the processor. The
caller passes all of these to `key`. A file holds a header, the SHA-256 of its content, and the content. It is written
under a temporary name and moved into place, so that another process sees all of it or nothing. A file that is damaged,
or that another user owns, counts as missing and is written again (of the files in code/; JAX and numba read their own:
a damaged one is compiled again, by JAX with a warning). Errors of the file system never stop a run: the cache
is then not used. When a process that has used the cache ends, the least recently used files are removed until at most
LARGEST bytes are left.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

LARGEST = 256 * 2**20  # bytes of all files together
HEADER = b"geomint cache 1\n"
_WARNING, _FATAL = 1, 3  # levels of XLA's log; JAX sets the first
_DIGEST = hashlib.sha256().digest_size


def folder() -> Path | None:
    """The folder of the cache, or None where it is switched off or there is no home folder."""
    stated = os.environ.get("GEOMINT_CACHE", "")
    if stated.strip().lower() in ("off", "0", "no", "false"):
        return None
    if stated:
        try:
            return Path(stated).expanduser()
        except RuntimeError:  # no such user
            return Path(stated)
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "geomint"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "geomint"
    try:
        return Path.home() / ".cache" / "geomint"
    except RuntimeError:
        return None


def usable(path: Path) -> bool:
    """Whether files can be written into that folder, which is made if need be, and no other user owns it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.access(path, os.W_OK | os.X_OK) and _owned_by_user(path.stat())
    except OSError:
        return False


def _owned_by_user(status: os.stat_result) -> bool:
    """What is read here is executed, so only files of the same user count."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


@functools.cache
def processor() -> str:
    """The processor, its features included, as a short text for a key or the name of a folder."""
    text = f"{platform.machine()} {platform.processor()} {platform.system()}"
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0].splitlines()
        changing = (
            "processor",
            "cpu MHz",
            "bogomips",
            "core id",
            "apicid",
            "initial apicid",
            "physical id",
            "BogoMIPS",
        )
        text += "\n".join(line for line in first if line.split(":")[0].strip() not in changing)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def key(*parts: str | bytes) -> str:
    """The key of a program: a SHA-256 of the parts and their lengths."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def sources(*paths: Path) -> bytes:
    """SHA-256 of Python files and of those in folders: part of a key wherever a result depends on code of geomint."""
    files = sorted(f for path in paths for f in ([path] if path.is_file() else path.rglob("*.py")))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.digest()


def read(name: str) -> bytes | None:
    """The content stored under a key; None where there is none, or none that can be trusted."""
    place = folder()
    if place is None:
        return None
    try:
        with (place / "code" / name).open("rb") as file:
            if not _owned_by_user(os.fstat(file.fileno())):
                return None
            data = file.read()
        start = len(HEADER) + _DIGEST
        content = data[start:]
        if data[:start] != HEADER + hashlib.sha256(content).digest():
            return None
        os.utime(place / "code" / name)  # used now: one of the last to be removed
    except OSError:
        return None
    return content


def write(name: str, content: bytes) -> None:
    """Stores the content under a key, if the folder can be written."""
    place = folder()
    if place is None or len(content) > LARGEST // 4 or not usable(place / "code"):
        return
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=place / "code", prefix=".new-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(HEADER + hashlib.sha256(content).digest() + content)
        os.replace(temporary, place / "code" / name)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    trim_at_exit()


@functools.cache
def trim_at_exit() -> None:
    """Keeps the folder within LARGEST bytes; once a process, when it ends."""
    atexit.register(trim)


def trim(largest: int | None = None) -> None:
    """Removes the files used longest ago until the others have at most `largest` bytes (default: LARGEST)."""
    place, files = folder(), []
    if place is None:
        return
    for directory in _folders(place):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_file(follow_symlinks=False):
                        files.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= (LARGEST if largest is None else largest):
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


def _folders(place: Path) -> list[Path]:
    """Those that geomint fills: nothing else is ever removed, whatever folder GEOMINT_CACHE names."""
    try:
        made = [x for x in place.iterdir() if x.name == "code" or x.name.startswith(("xla-", "numba-"))]
        return [*made, *(inside for x in made for inside in x.glob("*/"))]
    except OSError:
        return []


def share_with_jax(config: Any) -> None:
    """Lets JAX keep compiled programs in the same folder, unless the user has configured a folder, or switched JAX's
    cache off. Programs that compile in less than .1 s are not stored: loading them takes as long."""
    place = folder()
    if place is None or config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    # XLA compiles for the processor at hand, whose features are not part of JAX's own key.
    path = place / f"xla-{processor()}"
    if not usable(path):
        return
    config.update("jax_compilation_cache_dir", str(path))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    if "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES" not in os.environ:
        config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _silence_false_alarm()
    trim_at_exit()


def _silence_false_alarm() -> None:
    """Keeps XLA from printing errors while it loads a program from the cache.

    On processors with AVX-512 it writes 4 kB of "+prefer-no-gather is not supported on the host machine … could lead to
    SIGILL" for each program (openxla/xla#44565, jax-ml/jax#38445). That feature is a preference of the code generator,
    no instruction. Programs of another processor are in another folder, so that the check has no other use here. The
    function is private to JAX: where it is missing, the messages stay.
    """
    try:
        from jax._src import compilation_cache
        from jaxlib import utils  # pyright: ignore[reportAttributeAccessIssue]

        load, set_level = compilation_cache.get_executable_and_time, utils.absl_set_min_log_level
    except (ImportError, AttributeError):
        return

    @functools.wraps(load)
    def quiet(*arguments: Any, **named: Any) -> Any:
        set_level(_FATAL)
        try:
            return load(*arguments, **named)
        finally:
            set_level(int(os.environ.get("TF_CPP_MIN_LOG_LEVEL") or _WARNING))

    compilation_cache.get_executable_and_time = quiet
