"""What geomint says when something is wrong, in the user's words: which argument, which step and time, what to try."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class GeomintError(Exception):
    """The base of every error that geomint raises on purpose."""


class InputError(GeomintError, ValueError):
    """An argument does not fit; the message names it and says what would."""


class ArchiveError(GeomintError, OSError):
    """A file can't be opened, continued or written, or belongs to another system; `path` is the file."""

    def __init__(self, message: str, path: Any = None):
        super().__init__(message)
        self.path = path


class ArchiveBusy(ArchiveError):
    """Another process, or another run of this one, writes to a file."""


class RunStopped(GeomintError, RuntimeError):
    """A run ended before `t_end`; nothing saved is lost.

    `run` is the trajectory up to the last good saved point (an ensemble stops only where all members did),
    `step` and `time` say which step failed, and `q`, `p` are the state of the last good step before it. `reason` is the
    message without the sentence on what was kept.
    """

    def __init__(
        self,
        reason: str,
        kept: str = "",
        *,
        run: Any = None,
        step: int | None = None,
        time: float | None = None,
        q: Any = None,
        p: Any = None,
    ):
        super().__init__(f"{reason} {kept}".strip())
        self.reason, self.run, self.step, self.time, self.q, self.p = reason, run, step, time, q, p


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run: `run` holds everything saved so far, `reason` says where it stood."""

    def __init__(self, reason: str, kept: str = "", *, run: Any = None):
        super().__init__(f"{reason} {kept}".strip())
        self.reason, self.run = reason, run


class ProcessLost(GeomintError, RuntimeError):
    """The workers of an executor ended before the run did, and the executor can't replace them. What was checkpointed
    is on disk, and gm.resume goes on from there with any executor; `reason` is what is known of the loss, `path` the
    output where there is one."""

    def __init__(self, reason: str, kept: str = "", *, path: Any = None):
        super().__init__(f"{reason} {kept}".strip())
        self.reason, self.path = reason, path


class MeasurementError(GeomintError, RuntimeError):
    """What was to be measured can't be measured here: the step is too long, or the motion can't be known well
    enough."""


class InstabilityWarning(UserWarning):
    """The energy error of a run exceeds the scale of its energy: the step is too long, and the results are wrong."""


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' for a misspelt name, or the whole list where nothing is near."""
    known = sorted(known)
    lowered = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)
    if close:
        return " Did you mean " + " or ".join(lowered[c] for c in close) + "?"
    return " Known: " + ", ".join(known) + "."


def outside() -> int:
    """The stacklevel of a warning that points to the line outside geomint that called it."""
    # Equinox wraps the methods of modules: its frames lie between those of geomint.
    package, wrapper, frame, level = str(Path(__file__).parent), f"{os.sep}equinox{os.sep}", sys._getframe(1), 1
    inside = lambda file: file.startswith(package) or wrapper in file
    while frame.f_back is not None and inside(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level
