"""Tasks for processes that `papers.run_all` starts: found there by name."""

import os
import signal
import time
from pathlib import Path


def answer(each, quick, folder: Path):
    """Whether Ctrl-C reaches this process; a process named "killed" dies, one named "wrong" raises, one named "slow"
    writes its number and sleeps."""
    if each.id == "p/killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if each.id == "p/wrong":
        raise ValueError("a wrong number")
    if each.id == "p/slow":
        (folder / "started").write_text(str(os.getpid()))
        time.sleep(60)
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
