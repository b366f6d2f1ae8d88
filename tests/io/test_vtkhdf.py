"""VTKHDF files as VTK reads them."""

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import fem


def frame(path, step):
    """Time, points, velocities, bodies, cells and energy of a frame, read by VTK."""
    vtk_io = pytest.importorskip("vtkmodules.vtkIOHDF")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    reader = vtk_io.vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetStep(step)
    reader.Update()
    found = reader.GetOutputDataObject(0)
    if found.IsA("vtkPartitionedDataSet"):
        found = found.GetPartition(0)
    # GetCell returns the same object for every cell.
    corners = lambda cell: [cell.GetPointId(i) for i in range(cell.GetNumberOfPoints())]
    at, cells = found.GetPointData(), [corners(found.GetCell(k)) for k in range(found.GetNumberOfCells())]
    return (
        reader.GetTimeValue(),
        vtk_to_numpy(found.GetPoints().GetData()),
        vtk_to_numpy(at.GetArray("velocity")),
        vtk_to_numpy(at.GetArray("body")),
        cells,
        vtk_to_numpy(found.GetFieldData().GetArray("energy")),
    )


def test_an_elastic_body_with_a_held_node(tmp_path):
    mesh, path, second = fem.cube(1), tmp_path / "run.vtkhdf", tmp_path / "second.vtkhdf"
    system = fem.solid(mesh, fem.NeoHookean(1.0, 1.0), fixed=[3])
    q0 = np.delete(mesh.nodes, 3, axis=0)
    v0 = np.random.default_rng(0).normal(size=q0.shape) * 0.1
    run = gm.simulate(system, q0, v0, method=gm.Verlet(), dt=0.01, t_end=0.1, save_every=2, output=path)
    run.save(second)
    for file in (path, second):
        with h5py.File(file) as opened:
            root = opened["VTKHDF"]
            assert root.attrs["Type"] == b"UnstructuredGrid"
            assert root["Steps"].attrs["NSteps"] == len(run.t) == 6
            np.testing.assert_array_equal(root["Steps/Values"][()], run.t)
            np.testing.assert_array_equal(root["FieldData/energy"][()], run.energy)
    for k in (0, 4):
        t, points, velocities, bodies, cells, energy = frame(path, k)
        assert t == run.t[k]
        assert energy[-1] == run.energy[k]
        np.testing.assert_array_equal(points, np.insert(run.q[k], 3, mesh.nodes[3], axis=0))
        np.testing.assert_allclose(velocities, np.insert(run.v[k], 3, 0.0, axis=0), rtol=1e-14)
        np.testing.assert_array_equal(cells, mesh.cells)
        assert not bodies.any()


def test_velocities_of_nodes_that_are_moved(tmp_path):
    mesh, path = fem.cube(1), tmp_path / "run.vtkhdf"
    side = mesh.where(lambda x: x[:, 2] == 0)
    moved = lambda t: jnp.asarray(mesh.nodes[side]) + jnp.array([0.1, 0.0, 0.0]) * jnp.sin(3 * t)
    system = fem.solid(mesh, fem.NeoHookean(1.0, 1.0), prescribed=(side, moved))
    q0 = np.delete(mesh.nodes, side, axis=0)
    run = gm.simulate(system, q0, 0 * q0, method=gm.Verlet(), dt=0.02, t_end=0.2, save_every=5, output=path)
    t, points, velocities, _, _, _ = frame(path, 2)
    np.testing.assert_array_equal(points[side], moved(t))
    np.testing.assert_allclose(velocities[side], np.tile([0.3 * np.cos(3 * t), 0, 0], (len(side), 1)), rtol=1e-14)
    np.testing.assert_allclose(np.delete(velocities, side, axis=0), run.v[2], rtol=1e-14)


def test_particles_are_vertices_and_angles_are_refused(tmp_path):
    model = gm.models.kepler()
    run = gm.simulate(model, method=gm.Verlet(), dt=0.01, t_end=0.05)
    with pytest.raises(gm.InputError, match=r"q of shape \(n, 3\)"):
        gm.simulate(gm.models.double_pendulum_angles(), dt=0.01, t_end=0.01)[:1].save(tmp_path / "angles.vtkhdf")
    run.save(tmp_path / "run.vtkhdf")
    _, points, _, bodies, cells, _ = frame(tmp_path / "run.vtkhdf", 3)
    np.testing.assert_array_equal(points, np.pad(run.q[3].reshape(1, -1), ((0, 0), (0, 1))))
    assert cells == [[0]]
    assert bodies.tolist() == [0]
