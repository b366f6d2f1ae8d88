"""load: a run from its archive, or from the index of its shards, as a Trajectory whose arrays are read when used."""

from __future__ import annotations

from pathlib import Path

from ..errors import ArchiveError
from ..io import archive
from ..io.frame_files import existing_archive_of
from ..io.index import read_index
from ..numerics.keywords import checked_keywords
from ..system.checks import as_path
from ..system.system import Stated, checked_system
from .archived import Archived
from .restore import matching
from .sharded_run import ShardedRun
from .trajectory import Trajectory


@checked_keywords
def load(path: str | Path, system: Stated | None = None) -> Trajectory:
    """A run from its archive, finished or not. Arrays are memory maps: nothing is read before it is used. Of a run in
    shards (ensemble(..., executor=...)), a shard is opened when its members are read; run.save(path) writes all of it
    into one archive.

    A run of gm.models knows its system; give `system` for others where velocities or plots of them are wanted.
    """
    path = existing_archive_of(as_path(path, "path"))
    if system is not None:
        checked_system(system)
    index = read_index(path)
    if index is not None:
        return ShardedRun(index, None if system is None else matching(index, system))
    contents = archive.read(path)
    if "shard" in contents.meta and "reduce" in contents.meta:
        raise ArchiveError(
            f"{path} has one shard of a reduced run; load the index of the run, beside the folder {path.parent}.", path
        )
    return Archived(contents, None if system is None else matching(contents, system))
