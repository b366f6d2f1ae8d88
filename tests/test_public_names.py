"""dir() shows what users may use; types ship with the package."""

from __future__ import annotations

import inspect
import types
from pathlib import Path

import numpy as np

import geomint as gm


def test_the_package_shows_public_names_only():
    names = dir(gm)
    assert {"simulate", "ensemble", "System", "Verlet", "load", "Trajectory"} <= set(names)
    modules = {name for name in names if isinstance(getattr(gm, name), types.ModuleType)}
    assert modules == {"fem", "md", "methods", "models", "rigid", "units", "view"}
    assert not [name for name in names if name.startswith("_") and name != "__version__"]


def test_a_run_shows_what_it_has():
    model = gm.models.kepler()
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.01, t_end=0.1)
    shown = set(dir(run))
    assert {"t", "q", "p", "v", "energy", "energy_error", "momentum_maps", "save", "plot"} <= shown
    assert "velocity_residual" not in shown
    assert np.array_equal(run.q, run.columns["q"])


def test_the_public_calls_are_typed():
    assert Path(inspect.getfile(gm)).with_name("py.typed").exists()
    for function in (gm.simulate, gm.ensemble, gm.load, gm.resume):
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.annotation is not parameter.empty, (function, parameter)
    for name, member in inspect.getmembers(gm.Trajectory, lambda x: isinstance(x, property)):
        assert member.fget.__annotations__.get("return"), name
