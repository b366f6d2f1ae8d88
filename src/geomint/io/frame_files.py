"""Which file of frames a name asks for, and the archive beside it: x.xyz has its archive in x.xyz.h5."""

from __future__ import annotations

from pathlib import Path

from ..errors import ArchiveError, InputError
from ..system.system import Stated
from .files import writing
from .frames import FrameFile, FrameTopology
from .h5md import H5MD
from .reader import Contents, read
from .text import PDB, ExtendedXYZ
from .vtkhdf import VTKHDF

FORMATS: dict[str, type[FrameFile]] = {
    ".xyz": ExtendedXYZ,
    ".extxyz": ExtendedXYZ,
    ".pdb": PDB,
    ".h5md": H5MD,
    ".vtkhdf": VTKHDF,
}
OTHER_FORMATS = (".dcd", ".xtc", ".trr", ".gro", ".cif", ".traj", ".lammpstrj", ".nc", ".netcdf")  # not written
ROWS = 256  # that are read at a time to make a file again


def is_frames(path: Path) -> bool:
    """Whether the name is that of a file of frames."""
    return path.suffix.lower() in FORMATS


def check_format(path: Path) -> None:
    """Refuse the name of a format of trajectories that is not written: the file would be an HDF5 archive."""
    if path.suffix.lower() in OTHER_FORMATS:
        raise InputError(
            f"{path.name!r}: geomint does not write {path.suffix}. Names of files for other programs end in "
            f"{', '.join(FORMATS)}; those of archives in .h5."
        )


def archive_of(path: Path) -> Path:
    """The archive of a run: the file itself, or the one beside a file of frames."""
    return path.with_name(f"{path.name}.h5") if is_frames(path) else path


def existing_archive_of(path: Path) -> Path:
    """As `archive_of`, with an error where frames have no archive beside them."""
    beside = archive_of(path)
    if beside != path and not beside.exists():
        raise ArchiveError(
            f"{path} has no archive {beside.name} beside it, which a run with output={path.name!r} writes: without it, "
            "the run can be neither loaded nor resumed."
        )
    return beside


def topology_for(path: Path, system: Stated | None, q_shape: tuple[int, ...], what: str) -> FrameTopology:
    """What the frames of a run share, in a file of this name."""
    return FORMATS[path.suffix.lower()].topology_class(system, q_shape, what)


def new_frames(path: Path, topology: FrameTopology) -> FrameFile:
    """A new file of frames."""
    try:
        with writing(path):
            return FORMATS[path.suffix.lower()].create(path, topology)
    except ArchiveError as error:
        if not isinstance(error.__cause__, FileExistsError) and not path.exists():
            raise
        exists = (
            f"{path} exists. Choose another name, remove it, or continue its run with gm.resume({str(path)!r}, ...)."
        )
        raise ArchiveError(exists, path) from None


def frames_path(contents: Contents) -> Path | None:
    """Where the frames of an archived run are; None where it has none."""
    ending = contents.meta.get("frames")
    if ending is None:
        return None
    path = contents.path.with_name(contents.path.name.removesuffix(".h5"))
    if path.name == contents.path.name or path.suffix.lower() != ending:
        raise InputError(
            f"{contents.path} is the archive of a run with output=NAME{ending}, and has to be called NAME{ending}.h5, "
            "beside that file."
        )
    return path


def reopened_frames(path: Path, archive: Path, system: Stated, save_every: int) -> tuple[FrameFile, FrameTopology]:
    """The frames of a run, cut to the rows that its archive counts; made again from these where the file is missing,
    damaged, or was left open by a run that was killed and can't be cut."""
    contents = read(archive)
    topology = topology_for(path, system, tuple(contents.meta["q_shape"]), str(path))
    with writing(path):
        kept = FORMATS[path.suffix.lower()].reopen(path, topology, contents.rows)
        if kept is not None:
            return kept, topology
        path.unlink(missing_ok=True)
        made = FORMATS[path.suffix.lower()].create(path, topology)
        for begin in range(0, contents.rows, ROWS):
            piece = slice(begin, min(begin + ROWS, contents.rows))
            rows = {name: contents.array(name)[piece] for name in ("q", "p", "energy")}
            made.append(topology.frames(rows, contents.array("t")[piece], begin, save_every))
    return made, topology
