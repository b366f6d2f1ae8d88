"""Numpy scalars are as good as numbers of Python."""

from __future__ import annotations

import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm

# --- numpy scalars --------------------------------------------------------------------------------------------------
PLAIN = [  # a class, settings in Python's numbers, the same in numpy's and others
    (
        gm.ZhangSkeel,
        {"beta": 0.25},
        [
            {"beta": np.float64(0.25)},
            {"beta": np.float32(0.25)},
            {"beta": np.array(0.25)},
            {"beta": jnp.array(0.25)},
            {"beta": Fraction(1, 4)},
        ],
    ),
    (
        gm.EnergyStepping,
        {"height": 0.5, "offset": 1.0, "reach": 2.0},
        [{"height": np.float64(0.5), "offset": np.int64(1), "reach": np.float32(2)}],
    ),
    (
        gm.Composition,
        {"base": gm.Verlet(), "order": 8},
        [{"base": gm.Verlet(), "order": np.int64(8)}, {"base": gm.Verlet(), "order": 8.0}],
    ),
    (gm.Gauss, {"stages": 3}, [{"stages": np.int32(3)}, {"stages": np.array(3)}]),
    (gm.LobattoIIIAB, {"stages": 4}, [{"stages": np.int64(4)}]),
    (gm.MultiStage, {"half": (0.25,)}, [{"half": [np.float64(0.25)]}, {"half": np.array([0.25])}]),
    (gm.SymmetricMultistep, {"order": 6}, [{"order": np.int64(6)}]),
    (gm.RESPA, {"inner": 3}, [{"inner": np.uint8(3)}]),
    (gm.Rattle, {"relaxation": 1.5}, [{"relaxation": np.float64(1.5)}]),
    (
        gm.Variational,
        {"quadrature": "galerkin", "degree": 2},
        [{"quadrature": np.str_("galerkin"), "degree": np.int64(2)}],
    ),
    (
        gm.models.fpu,
        {"springs": 4, "omega": 20.0},
        [{"springs": np.int64(4), "omega": np.float64(20.0)}, {"springs": np.array(4), "omega": np.array(20)}],
    ),
    (
        gm.models.heavy_top,
        {"inertia": (0.5, 0.5, 0.75)},
        [{"inertia": np.array([0.5, 0.5, 0.75])}, {"inertia": [np.float64(0.5), 0.5, np.float32(0.75)]}],
    ),
]


@pytest.mark.parametrize(("make", "plain", "others"), PLAIN, ids=lambda x: getattr(x, "__name__", None))
def test_numpy_scalars_are_as_good_as_numbers(make, plain, others):
    told = lambda x: x.system.origin if isinstance(x, gm.models.Model) else x.name
    expected = make(**plain)
    for settings_ in others:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as Equinox's, of arrays in static fields
            made = make(**settings_)
        assert told(made) == told(expected)
        assert isinstance(made, gm.models.Model) or jax.tree.structure(made) == jax.tree.structure(expected)
    assert told((gm.models if isinstance(expected, gm.models.Model) else gm.methods).named(told(expected))) == told(
        expected
    )


def test_a_run_with_numpy_scalars_is_saved_and_resumed(tmp_path):
    model = gm.models.pendulum(length=np.float64(0.5), angle=np.float32(0.5))
    method = gm.ZhangSkeel(beta=np.float64(0.25))
    stated = {"dt": np.float64(0.125), "save_every": np.int64(2), "t0": np.array(0.0), "seed": np.int64(3)}
    gm.simulate(
        model.system,
        model.q0,
        model.v0,
        method=method,
        t_end=np.float32(1),
        output=tmp_path / "run.h5",
        engine="xla",
        **stated,
    )
    run = gm.resume(tmp_path / "run.h5", t_end=np.array(2))
    plain = gm.models.pendulum(length=0.5, angle=0.5)
    whole = gm.simulate(
        plain.system,
        plain.q0,
        plain.v0,
        method=gm.ZhangSkeel(beta=0.25),
        dt=0.125,
        t_end=2.0,
        save_every=2,
        engine="xla",
    )
    assert np.array_equal(run.q, whole.q)
    assert gm.load(tmp_path / "run.h5").method.name == whole.method.name == "ZhangSkeel(beta=0.25)"


def test_settings_of_methods_and_models_may_be_traced():
    assert jax.grad(lambda x: gm.ZhangSkeel(beta=x).beta ** 2)(0.25) == 0.5
    assert jax.grad(lambda x: gm.EnergyStepping(x, reach=x).reach ** 2)(0.25) == 0.5
    assert np.array_equal(jax.vmap(lambda x: gm.Rattle(relaxation=x).relaxation)(jnp.array([0.5, 1.5])), [0.5, 1.5])
    assert jax.grad(lambda x: gm.models.pendulum(length=x).system.mass)(0.5) == 1.0
