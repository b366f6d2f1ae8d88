"""The archive: one HDF5 file that stays readable and resumable when the run is killed at any moment.

HDF5 itself does not guarantee that, since it updates its own tables in place. So h5py only makes the file, before the
first step: all datasets at their final size (contiguous, allocated, not filled); the file is closed and renamed into
place. From then on rows are written directly to their known offsets, and no table of HDF5 changes again. Two checkpoint
slots are written in turn, each with a checksum, after the rows that it covers are on the disk. The newest intact slot
says how many rows count. A longer run needs a larger file: a copy beside the old one, renamed over it.

Layout:  /t  /q  /p  /energy  …            one row per saved point
         /momentum_maps/<name>             likewise
         /checkpoint  (2, size) bytes      sequence, step, rows, carry, checksum
         /rows_saved                       for other readers: how many rows count
         /reduced/<name>/mean  …           of reduced ensembles: results of reductions, one row per saved point
         /start/q  /start/p  /kept  …      of reduced ensembles: initial states of all members, members that are kept;
                                           written once (the entry `fixed` of the attribute names such datasets)
         attribute `geomint`               JSON: method, grid, fingerprint of the system, versions, and a checksum of
                                           all that is written once (the JSON, the tables of HDF5, the fixed datasets)
         NAME.events                       a second file, for the events of event-driven methods (events_file.py)

layout.py has the places of all this in the file; writer.py makes archives and appends to them; reader.py reads them.
Reading does not use h5py: hdf5_tables.py reads the tables, and archive_checks.py checks them before anything is mapped,
since a file may come from anywhere. This module has the names that other packages use.
"""

from __future__ import annotations

from .events_file import check_events, events_path, read_events, truncate_events
from .layout import Column, describe_carry, versions
from .reader import Contents, enlarged, read
from .writer import Writer, check_writable, create

__all__ = [
    "Column",
    "Contents",
    "Writer",
    "check_events",
    "check_writable",
    "create",
    "describe_carry",
    "enlarged",
    "events_path",
    "read",
    "read_events",
    "truncate_events",
    "versions",
]
