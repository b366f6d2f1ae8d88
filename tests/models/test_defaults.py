"""Every model by its defaults: gm.simulate(model) with its own method, step and end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import geomint as gm

MODELS = gm.models.all()
STEPS = 20
# Models that take more than 1.5 s of CPU time to compile; the others take 13 s together.
EXPENSIVE = {
    *("bricard", "chain", "double_pendulum", "driven_slider_crank", "driven_slider_crank_angles", "elastic_sheet"),
    *("gyroscope", "hard_spheres", "heavy_top", "kapitza_pendulum", "lennard_jones_fluid", "rigid_chain"),
    *("slider_crank", "triple_pendulum", "turning_cat", "water"),
}  # fmt: skip
QUICK = [pytest.param(name, marks=pytest.mark.slow if name in EXPENSIVE else ()) for name in MODELS]


def check(run):
    """Finite, on the constraint, and with an error of energy − work far below the kinetic energy, which is taken from
    differences of q, but on groups: that of the run would be compiled for each model."""
    assert np.all(np.isfinite(run.q))
    assert np.all(np.isfinite(run.p))
    assert np.ptp(run.q, axis=0).max() > 0  # something moves
    if run.constraint_residual.shape[-1]:
        assert np.max(np.abs(run.constraint_residual)) < 1e-11 * (1 + np.max(np.abs(run.q)))
    balance = run.energy - (run.work if "work" in run.columns else 0.0)
    saved = len(run)
    if run.p.size == run.q.size:
        twice_kinetic = np.sum((run.p * np.gradient(run.q, run.t, axis=0)).reshape(saved, -1), axis=1)
    else:
        twice_kinetic = 2 * run.kinetic
    assert np.max(np.abs(balance - balance[0])) < 0.05 * np.max(twice_kinetic) / 2


@pytest.mark.parametrize("name", QUICK)
def test_first_steps(name):
    model = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = gm.simulate(model, t_end=STEPS * model.dt)
    assert run.method.name == model.method.name
    assert run.dt == model.dt
    assert np.array_equal(run.q[0], model.q0)
    check(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_whole_runs_and_their_pictures(name, tmp_path):
    model = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = gm.simulate(model)
    assert run.t[-1] == pytest.approx(model.t_end, rel=1e-6)
    check(run)
    run.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_other_arguments_take_the_place_of_the_model():
    model = gm.models.kepler()
    run = gm.simulate(model, 1.1 * model.q0, p0=2 * model.v0, method=gm.SymplecticEuler(), dt=0.5, t0=3.0, save_every=7)
    assert np.array_equal(run.q[0], 1.1 * model.q0)
    assert np.array_equal(run.p[0], 2 * model.v0)
    assert run.method.name == "SymplecticEuler()"
    assert run.t[0] == 3.0
    assert run.t[-1] == 3.0 + 17 * 7 * 0.5  # the end of the model, 60, in whole saves
    with pytest.raises(gm.InputError, match=r"simulate needs method, dt and t_end; only a model"):
        gm.simulate(model.system, model.q0, model.v0)
    with pytest.raises(gm.InputError, match=r"certify needs q0, method and dt"):
        gm.certify(model.system)


def test_all_functions_take_the_defaults_of_one_model(tmp_path):
    model = gm.models.harmonic_oscillator()
    run = gm.simulate(model, save_every=100)
    table = gm.sweep(model, over={"dt": [model.dt]}, save_every=100)
    assert np.array_equal(table.q.values[0], run.q[-1])
    later = gm.sweep(model, over={"dt": [model.dt]}, t0=2.0)
    assert later.end_time.values[0] == pytest.approx(2.0 + model.t_end)
    members = gm.ensemble(model, np.stack([model.q0] * 2), save_every=100)
    assert np.allclose(members.q[1], run.q, rtol=1e-12, atol=1e-12)
    assert members.method.name == "Verlet()"
    certificate = gm.certify(model, steps=100)
    assert certificate.method == "Verlet()"
    assert certificate.dt == model.dt


def test_walls_of_hard_spheres(tmp_path):
    """The spheres stay in the box and apart from each other, also in a run that is continued from its archive: the
    method is made again with the walls of the model."""
    model = gm.models.hard_spheres(n=4, box=4.0)
    path = tmp_path / "spheres.h5"
    gm.simulate(model, t_end=1.0, output=path)
    run = gm.resume(path, t_end=3.0)
    radius = 0.5
    assert np.all(run.q > radius - 1e-9)
    assert np.all(run.q < 4.0 - radius + 1e-9)
    i, j = np.triu_indices(4, 1)
    distances = np.linalg.norm(run.q[:, i] - run.q[:, j], axis=-1)
    assert np.all(distances > 2 * radius - 1e-9)
    assert np.max(np.linalg.norm(np.diff(run.v, axis=0), axis=-1)) > 0.1  # something was hit
