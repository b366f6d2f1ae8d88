"""What is kept of a run on disk and handed to other programs.

archive               the format of archives, and the names that other packages use; start reading there
layout, writer, reader, events_file     the parts of the archive
hdf5_tables, archive_checks             reading files that may be damaged or come from anywhere
files, locks          file operations and locks on Linux, macOS and Windows
fingerprint           a hash of the traced functions of a system: whether a run is resumed with the system it began with
sinks                 where the host loop puts the rows of a run: memory, or an archive
labelled              a run as an xarray.Dataset
frames                saved points as atoms with positions and velocities, for other programs
frame_files           which format a file name asks for; text: extended XYZ and PDB; h5md: H5MD
ase_atoms             ASE's Atoms as the start of a run, and saved points as ASE's Atoms

It may import errors, numerics, system, methods, engines and md, but not run: run makes Trajectories of archives.
"""
