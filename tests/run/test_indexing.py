"""Parts of runs: saved points, slices, members."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import geomint as gm

MODEL = gm.models.fpu(springs=3)
START = {"method": gm.Verlet(), "dt": 0.01, "t_end": 1.0, "save_every": 10}


@pytest.fixture(scope="module")
def run():
    return gm.simulate(MODEL.system, MODEL.q0, MODEL.v0, **START)


def test_saved_points(run):
    last = run[-1]
    assert last.t == run.t[-1]
    assert np.array_equal(last.q, run.q[-1])
    assert np.array_equal(last.v, run.v[-1])
    assert last.energy == run.energy[-1]
    potential = gm.Mechanics(MODEL.system, MODEL.q0.shape).potential(last.q)
    assert last.kinetic == pytest.approx(float(last.energy - potential), rel=1e-12)
    assert np.array_equal(run[::5].q, run.q[::5])
    assert np.array_equal(run[2:4].energy, run.energy[2:4])
    assert len(run[2:4]) == 2
    for wrong in (len(run), -len(run) - 1):
        with pytest.raises(IndexError, match="11 saved points"):
            run[wrong]
    with pytest.raises(gm.InputError, match="the number of a saved point or a slice"):
        run["q"]
    assert len(list(run)) == len(run)  # iteration ends
    with pytest.raises(gm.InputError, match="a part of a run, without the state"):
        run[2:4].save("part.h5")


def test_the_kinetic_energy_of_a_lagrangian():
    model = gm.models.double_pendulum_angles()
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Variational(), dt=0.01, t_end=0.1)
    lagrangian = jax.jit(model.system.lagrangian)
    rest = [-float(lagrangian(q, np.zeros_like(q))) for q in run.q]
    assert run.kinetic == pytest.approx(run.energy - np.array(rest), rel=1e-10)


def test_members():
    q0s = np.stack([MODEL.q0 * (1 + 0.1 * k) for k in range(4)])
    ensemble = gm.ensemble(MODEL.system, q0s, MODEL.v0 + 0 * q0s, **START)
    one, some = ensemble[2], ensemble[1:3]
    assert not one.members
    assert np.array_equal(one.q, ensemble.q[2])
    assert np.array_equal(one[-1].v, ensemble.v[2, -1])
    assert some.members
    assert np.array_equal(some.energy_error, ensemble.energy_error[1:3])
    with pytest.raises(IndexError, match="4 members"):
        ensemble[4]
    assert len(ensemble) == len(list(ensemble)) == 4


def test_misspelt_arguments():
    with pytest.raises(TypeError, match=r"kepler\(\) has no argument 'ecentricity'. Did you mean eccentricity"):
        gm.models.kepler(ecentricity=0.3)
    with pytest.raises(TypeError, match=r"load\(\) has no argument 'sytem'. Did you mean system"):
        gm.load("run.h5", sytem=MODEL.system)
    with pytest.raises(gm.InputError, match=r"q0 is the method Verlet\(\).*method=Verlet\(\)"):
        gm.simulate(MODEL, gm.Verlet())
    with pytest.raises(gm.InputError, match=r"the function kepler; call it"):
        gm.simulate(gm.models.kepler)
    with pytest.raises(TypeError, match=r"simulate\(\) has no argument 'save_evry'.*save_every"):
        gm.simulate(MODEL.system, MODEL.q0, MODEL.v0, save_evry=3, **START)
    with pytest.raises(TypeError, match=r"System\(\) has no argument 'potentail'.*potential"):
        gm.System(potentail=lambda q: q)
    with pytest.raises(TypeError, match=r"ensemble\(\) has no argument 'param'.*params"):
        gm.ensemble(MODEL, param=1.0)
    with pytest.raises(TypeError, match=r"sweep\(\) has no argument 'methd'.*method"):
        gm.sweep(MODEL, over={"dt": [0.1]}, methd=gm.Verlet())
    with pytest.raises(TypeError, match=r"sweep\(\) has no argument 'ovr'.*over"):
        gm.sweep(MODEL, ovr={"dt": [0.1]})
    with pytest.raises(TypeError, match=r"Verlet\(\) has no argument 'frm'. Did you mean form"):
        gm.Verlet(frm="drift")
    with pytest.raises(TypeError, match=r"Boris\(\) has no argument 'x'. It has none."):
        gm.Boris(x=1)
    with pytest.raises(TypeError, match=r"certify\(\) has no argument 'step'.*steps"):
        gm.certify(MODEL, step=10)
