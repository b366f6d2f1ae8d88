"""Frames for other programs: what ASE and MDAnalysis read, and files of runs that were killed and resumed."""

from __future__ import annotations

import io
import shutil
import sys

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.io import frame_files, hdf5_frames, sinks, text, writer
from geomint.run import loop

EDGES = (7.0, 8.0, 9.0)
NANOMETRES = gm.units.KJ  # nm, amu, kJ/mol
RANDOM = np.random.default_rng(3)
Q0, V0 = RANDOM.uniform(1, 4, (2, 3, 3)), RANDOM.normal(size=(2, 3, 3))
MASS = np.array([15.999, 1.008, 1.008])[None, :, None]
ENDINGS = ("xyz", "pdb", "h5md", "vtkhdf")


def springs(units=None, box=True):
    atoms = gm.md.Atoms("OHH", gm.md.Box(EDGES) if box else None, molecule="HOH", units=units)
    return gm.System(lambda q: 0.5 * jnp.sum(q**2), mass=MASS, atoms=atoms)


SYSTEM = springs()


def run(steps=100, system=SYSTEM, **settings):
    return gm.simulate(system, Q0, V0, method=gm.Verlet(), dt=0.01, t_end=0.01 * steps, save_every=2, **settings)


def contents(path):
    """The bytes of a text; the numbers of an HDF5 file."""
    if path.suffix not in (".h5md", ".vtkhdf"):
        return path.read_bytes()
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, x: found.update({name: x[()].tobytes()}) if isinstance(x, h5py.Dataset) else None)
        about = file["h5md" if path.suffix == ".h5md" else "VTKHDF"].attrs
        return found, {name: np.asarray(x).tobytes() for name, x in about.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of 50 frames in each format."""
    folder = tmp_path_factory.mktemp("whole")
    for ending in ENDINGS:
        run(output=folder / f"x.{ending}")
    return folder


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_killed_run_is_continued_as_if_it_had_not_been(whole, ending, tmp_path, monkeypatch):
    """The files are copied in the middle of a run, with frames behind the last checkpoint: a kill leaves the same."""
    monkeypatch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (grid.save_every, 5))
    real, calls = sinks.DiskWithFrames.write, []

    def write(self, seen, t):
        real(self, seen, t)
        calls.append(t)
        if len(calls) == 4:
            self.frames.synchronise()
            for name in (f"x.{ending}", f"x.{ending}.h5"):
                shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")

    monkeypatch.setattr(sinks.DiskWithFrames, "write", write)
    monkeypatch.setattr("geomint.io.writer.CHECKPOINT_SECONDS", 0.0)
    run(output=tmp_path / f"x.{ending}")
    killed = tmp_path / f"killed-x.{ending}"
    assert len(gm.load(killed)) == 11  # of 16 frames in the file
    resumed = gm.resume(killed, system=SYSTEM)
    assert np.array_equal(resumed.q, run().q)
    for path in (tmp_path / f"x.{ending}", killed):
        assert contents(path) == contents(whole / f"x.{ending}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_interrupted_prolonged_and_lost_files(whole, ending, tmp_path, monkeypatch):
    """Ctrl-C between frames and checkpoint; a later end; a file of frames that is gone or damaged is made again."""
    path, real, calls = tmp_path / f"x.{ending}", sinks.DiskWithFrames.write, []

    def write(self, seen, t):
        real(self, seen, t)
        calls.append(t)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (grid.save_every, 5))
        patch.setattr(sinks.DiskWithFrames, "write", write)
        with pytest.raises(gm.Interrupted):
            run(50, output=path)
    frames_after_interrupt = frame_files.reopened_frames(path, path.with_name(f"{path.name}.h5"), SYSTEM, 2)[0]
    assert frames_after_interrupt.count == 6
    frames_after_interrupt.close()
    path.write_bytes(path.read_bytes()[:700])
    gm.resume(path, system=SYSTEM, t_end=0.5)
    path.unlink()
    gm.resume(path, system=SYSTEM, t_end=1.0)
    assert contents(path) == contents(whole / f"x.{ending}")
    saved = tmp_path / f"saved.{ending}"
    gm.load(path, system=SYSTEM).save(saved)
    assert contents(saved) == contents(whole / f"x.{ending}")


def test_frames_are_on_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    order = []
    for cls, name in ((text.TextFrames, "synchronise"), (writer.Writer, "checkpoint")):
        real = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *a, real=real, name=name, **k: (order.append(name), real(*a, **k))[1])
    run(4, output=tmp_path / "x.xyz")
    assert order == ["synchronise", "checkpoint"] * (len(order) // 2)
    assert len(order) >= 4


def test_an_h5md_file_left_open_is_made_again(tmp_path, whole):
    """Its tables may be damaged in any way, here in a number that no table shows."""
    path = tmp_path / "x.h5md"
    run(50, output=path)
    with h5py.File(path, "r+") as file:
        file["h5md"].attrs[hdf5_frames.OPEN] = 1
        file["particles/trajectory/position/value"][3] = 0.0
    gm.resume(path, system=SYSTEM, t_end=1.0)
    assert contents(path) == contents(whole / "x.h5md")


def test_text_is_what_ase_writes(whole):
    pytest.importorskip("ase")
    from ase.io.extxyz import write_xyz
    from ase.io.proteindatabank import write_proteindatabank

    images = run().to_ase()
    for atoms in images:
        atoms.info = {name: float(x) for name, x in atoms.info.items()}
    written = io.StringIO()
    write_xyz(written, images, write_results=False)
    assert written.getvalue() == (whole / "x.xyz").read_text()
    written = io.StringIO()
    for atoms in images:
        atoms.set_array("residuenames", np.array(["HOH"] * 6))
        atoms.set_array("residuenumbers", np.array([1, 1, 1, 2, 2, 2]))
    write_proteindatabank(written, images)
    assert written.getvalue() == (whole / "x.pdb").read_text()


def test_ase_reads_positions_momenta_masses_and_the_box(tmp_path):
    """In nanometres and picoseconds: ASE has ångströms, and momenta of √(amu eV)."""
    ase = pytest.importorskip("ase")
    from ase.io import read

    done = run(20, springs(NANOMETRES), output=tmp_path / "x.xyz")
    last = read(tmp_path / "x.xyz", index=-1)
    np.testing.assert_allclose(last.positions, 10 * done.q[-1].reshape(6, 3), atol=1e-8)
    np.testing.assert_allclose(last.get_velocities() * 1e3 * ase.units.fs, 10 * done.v[-1].reshape(6, 3), rtol=1e-6)
    np.testing.assert_allclose(last.cell.lengths(), 10 * np.array(EDGES))
    assert last.pbc.all()
    assert last.get_chemical_formula() == "H4O2"
    assert abs(last.info["time"] - 0.2) < 1e-9
    assert abs(last.info["total_energy"] - done.energy[-1] * ase.units.kJ / ase.units.mol) < 1e-8
    kinetic = done.kinetic[-1] * ase.units.kJ / ase.units.mol
    assert abs(last.get_kinetic_energy() - kinetic) < 1e-6 * kinetic
    done.save(tmp_path / "x.pdb")
    np.testing.assert_allclose(read(tmp_path / "x.pdb", index=-1).positions, last.positions, atol=6e-4)
    # And back: as a start in the same units.
    start = gm.from_ase(done[-1:].to_ase()[0], units=NANOMETRES)
    np.testing.assert_allclose(start.q0, done.q[-1].reshape(6, 3), rtol=1e-14)
    np.testing.assert_allclose(start.v0, done.v[-1].reshape(6, 3), rtol=1e-12)
    np.testing.assert_allclose(start.mass, np.tile(MASS[0], (2, 1)), rtol=1e-12)
    assert start.atoms.symbols == tuple("OHHOHH")
    np.testing.assert_allclose(start.atoms.box.lengths, EDGES)


def test_mdanalysis_opens_h5md(tmp_path, whole):
    mda = pytest.importorskip("MDAnalysis")
    done = run(20, springs(NANOMETRES), output=tmp_path / "x.h5md")
    universe = mda.Universe(str(tmp_path / "x.h5md"), to_guess=())
    assert universe.trajectory.n_frames == 11
    frame = universe.trajectory[7]
    np.testing.assert_allclose(frame.positions, 10 * done.q[7].reshape(6, 3), rtol=1e-6)
    np.testing.assert_allclose(frame.velocities, 10 * done.v[7].reshape(6, 3), rtol=1e-6)
    np.testing.assert_allclose(frame.dimensions, [*(10 * np.array(EDGES)), 90, 90, 90])
    assert abs(frame.time - done.t[7]) < 1e-9
    assert frame.data["step"] == 14
    plain = mda.Universe(str(whole / "x.pdb"), str(whole / "x.h5md"), convert_units=False, to_guess=())
    assert plain.trajectory.n_frames == 51
    assert list(plain.residues.resnames) == ["HOH", "HOH"]
    np.testing.assert_allclose(plain.trajectory[0].positions, Q0.reshape(6, 3), rtol=1e-6)


def test_planes_and_matrix_masses(tmp_path):
    """In the plane the third coordinate is 0; velocities follow from a full mass matrix."""
    mass = np.eye(4) + 0.3
    system = gm.System(lambda q: jnp.sum(q**2), mass=mass, atoms=gm.md.Atoms(["Ar", "Ne"], gm.md.Box((5.0, 6.0))))
    done = gm.simulate(
        system, [[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 0.5]], method=gm.Verlet(), dt=0.1, t_end=0.2,
        output=tmp_path / "x.h5md",
    )  # fmt: skip
    with h5py.File(tmp_path / "x.h5md") as file:
        particles = file["particles/trajectory"]
        assert particles["position/value"][0].tolist() == [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
        np.testing.assert_allclose(particles["velocity/value"][:, :, :2], done.v, rtol=1e-13, atol=1e-15)
        assert particles["box"].attrs["boundary"].tolist() == [b"periodic", b"periodic", b"none"]
        assert particles["species"][()].tolist() == [18, 10]
        assert "mass" not in particles
        assert file["h5md"].attrs[hdf5_frames.OPEN] == 0


def test_what_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.xyz"
    with pytest.raises(gm.InputError, match=r"output='x.xyz' needs to know which atoms .*gm.md.Atoms"):
        run(10, gm.System(lambda q: jnp.sum(q**2)), output=path)
    with pytest.raises(gm.InputError, match=r"holds one trajectory: .*gm.load\('run.h5'\)\[0\].save\('x.xyz'\)"):
        gm.ensemble(SYSTEM, Q0[None], method=gm.Verlet(), dt=0.1, t_end=0.2, output=path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(gm.ArchiveError, match=r"x.xyz has no archive x.xyz.h5 beside it"):
        gm.load(path)
    path.write_text("mine")
    with pytest.raises(gm.ArchiveError, match=r"x.xyz exists. Choose another name"):
        run(10, output=path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.xyz"]
    assert path.read_text() == "mine"
    with pytest.raises(gm.InputError, match=r"coordinate of 10000 does not fit the columns of a PDB"):
        gm.simulate(SYSTEM, 1e4 + 0 * Q0, method=gm.Verlet(), dt=0.1, t_end=0.2, output=tmp_path / "far.pdb")
    assert [p.name for p in tmp_path.iterdir()] == ["x.xyz"]
    run(10, output=tmp_path / "y.xyz")
    (tmp_path / "y.xyz.h5").rename(tmp_path / "z.h5")
    with pytest.raises(gm.InputError, match=r"has to be called NAME.xyz.h5"):
        gm.resume(tmp_path / "z.h5", system=SYSTEM, t_end=1.0)
    monkeypatch.setitem(sys.modules, "ase", None)
    for call in (run(10).to_ase, lambda: gm.from_ase(None)):
        with pytest.raises(gm.GeomintError, match=r"needs the package ase: pip install geomint\[md\]"):
            call()


def test_boxes_of_ase_that_are_none():
    ase = pytest.importorskip("ase")
    with pytest.raises(gm.InputError, match="takes an ase.Atoms"):
        gm.from_ase("H2O")
    with pytest.raises(gm.InputError, match="no atoms"):
        gm.from_ase(ase.Atoms())
    for cell, pbc in (([3, 3, 3, 60, 90, 90], True), ([3, 3, 3], [True, True, False])):
        with pytest.raises(gm.InputError, match="periodic along all three axes and have right angles"):
            gm.from_ase(ase.Atoms("Ar", cell=cell, pbc=pbc))
    free = gm.from_ase(ase.Atoms("CO", [[0, 0, 0], [0, 0, 1.1]]))
    assert free.atoms.box is None
    assert free.q0.shape == (2, 3)
    assert not free.v0.any()
    assert text.ExtendedXYZ is frame_files.FORMATS[".extxyz"]
