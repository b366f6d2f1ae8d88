"""What numba compiles, kept on disk beside geomint's compiled programs: compiling a loop takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from .. import disk_cache


def cached_on_disk(compile_with: Callable[[bool], Any], version: str = "") -> Any:
    """compile_with(cache), which compiles at once, with or without numba's cache; `version`: what the compiled code
    depends on besides the modules here."""
    folder = disk_cache.folder()
    if folder is None:
        return compile_with(False)
    # Numba's own key has the processor, but neither the modules that a loop uses nor `version`.
    key = disk_cache.key(numba.__version__, disk_cache.sources(Path(__file__).parent), version)
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder / f"numba-{key[:16]}")
    try:
        return compile_with(disk_cache.usable(folder / f"numba-{key[:16]}"))
    except Exception:  # a damaged cache, or a folder that numba can't use
        return compile_with(False)
    finally:
        settings.CACHE_DIR = before
