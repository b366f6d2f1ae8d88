"""Ensembles shared by devices: the same bits on any number of them."""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.cli.app import app
from geomint.engines.tiles import shares, tile_size
from geomint.manifold.projection import perturbed
from geomint.run.devices import devices_of
from helpers.processes import ends, start


# --- tiles ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("members", [1, 2, 7, 33, 200, 1000, 12_345, 1_000_000])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_tiles_are_whole_and_every_member_has_one(members, platform):
    tile = tile_size(members, platform)
    assert 1 <= tile <= members
    assert members / tile <= 1000
    for devices in (1, 2, 3, 8, 300):
        dealt = shares(members, tile, devices)
        assert [a for a, _ in dealt] == [0, *(b for _, b in dealt[:-1])]
        assert dealt[-1][1] == members
        assert all(a % tile == 0 for a, b in dealt if b > a)
        assert max(b - a for a, b in dealt) <= tile * math.ceil(math.ceil(members / tile) / devices)


MODELS = {
    "fpu": (gm.models.fpu(), gm.Verlet(), 0.01),
    "argon": (gm.models.argon_cluster(), gm.Verlet(), 1e-4),
    "double pendulum": (gm.models.double_pendulum(), gm.Rattle(), 0.01),
    "Henon-Heiles": (gm.models.henon_heiles(), gm.Composition(gm.Verlet(), order=8), 0.1),
}


def ensemble(name: str, members: int, **more: object) -> gm.Trajectory:
    model, method, dt = MODELS[name]
    v0s = model.v0 * (1 + 0.01 * np.random.default_rng(1).normal(size=(members, *[1] * model.v0.ndim)))
    return gm.ensemble(
        model.system,
        np.stack([model.q0] * members),
        v0s,
        method=method,
        dt=dt,
        t_end=50 * dt,
        save_every=10,
        **{"engine": "xla"} | more,
    )


@pytest.mark.parametrize(
    ("name", "members", "engine"),
    [
        ("fpu", 7, "xla"),
        ("argon", 33, "xla"),
        ("argon", 7, "native"),
        ("Henon-Heiles", 7, "native"),
        ("double pendulum", 33, "xla"),
        ("double pendulum", 33, "native"),
        pytest.param("fpu", 1000, "xla", marks=pytest.mark.slow),
        pytest.param("fpu", 1000, "native", marks=pytest.mark.slow),
    ],
)
def test_a_member_does_not_feel_how_the_others_are_shared(name, members, engine, monkeypatch):
    """Three devices of one process (the same one thrice) against one."""
    whole = ensemble(name, members, engine=engine)
    # The module by its full name: the public function hides it as an attribute of the package.
    monkeypatch.setattr(importlib.import_module("geomint.run.ensemble"), "devices_of", lambda mesh: jax.devices() * 3)
    parts = ensemble(name, members, engine=engine)
    for column in ("q", "p", "energy"):
        assert np.asarray(getattr(whole, column)).tobytes() == np.asarray(getattr(parts, column)).tobytes()


def test_the_numbers_of_members_do_not_depend_on_how_many_there_are_while_tiles_are_alike():
    """Tiles of one size run one program, wherever they stand."""
    model = gm.models.fpu()
    go = lambda v0s: (
        gm.ensemble(
            model.system,
            np.stack([model.q0] * len(v0s)),
            v0s,
            method=gm.Verlet(),
            dt=0.01,
            t_end=0.5,
            save_every=10,
            engine="xla",
        ).q
    )
    v0s = model.v0 * np.linspace(0.5, 1.5, 2048)[:, None, None]
    assert tile_size(2048, "cpu") == tile_size(1024, "cpu") == 256
    assert np.array_equal(go(v0s)[1024:], go(v0s[1024:]))


def test_a_mesh_is_checked():
    with pytest.raises(gm.InputError, match='a jax.sharding.Mesh, "all" or None, not .2.'):
        ensemble("fpu", 3, mesh="2")
    with pytest.raises(gm.InputError, match="not list"):
        ensemble("fpu", 3, mesh=jax.devices())
    one = ensemble("fpu", 3, mesh=jax.sharding.Mesh(np.array(jax.devices()), ("members",)))
    assert np.array_equal(one.q, ensemble("fpu", 3).q)


def test_a_mesh_over_several_processes_is_refused():
    elsewhere = SimpleNamespace(process_index=1)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("members",))
    object.__setattr__(mesh, "devices", np.array([jax.devices()[0], elsewhere], object))
    with pytest.raises(gm.InputError, match="several processes.*executor="):
        devices_of(mesh)


def test_a_mesh_is_for_ensembles(tmp_path):
    model = gm.models.kepler()
    gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.1, t_end=1.0, output=tmp_path / "one.h5")
    with pytest.raises(gm.InputError, match="one trajectory"):
        gm.resume(tmp_path / "one.h5", t_end=2.0, mesh="all")


LOCAL_DEVICES = """
import sys, jax, numpy as np, geomint as gm
assert len(jax.devices()) == 2
model = gm.models.fpu()
q0s = model.q0 + 1e-3 * np.random.default_rng(0).normal(size=(33, *model.q0.shape))
grid = dict(method=gm.Verlet(), dt=1e-2, t_end=2.0, save_every=10, engine="xla")
go = lambda **more: gm.ensemble(model.system, q0s, np.stack([model.v0] * 33), **grid, **more)
one, two = go(), go(mesh="all", output=sys.argv[1])
bits = lambda run: [np.asarray(getattr(run, name)).tobytes() for name in ("q", "p", "energy")]
assert bits(one) == bits(two)
second = jax.sharding.Mesh(np.array(jax.devices()[1:]), ("members",))
assert np.array_equal(gm.resume(sys.argv[1], t_end=3.0, mesh=second).q[:, :21], one.q)
print("same")
"""


def test_two_local_devices(tmp_path):
    two = "--xla_force_host_platform_device_count=2"
    assert "same" in ends(start(LOCAL_DEVICES, tmp_path / "run.h5", XLA_FLAGS=two))


# --- the command line ---
def test_members_of_the_command_line_are_at_least_one():
    result = CliRunner().invoke(app, ["run", "fpu", "--members", "0"])
    assert result.exit_code == 2
    assert "at least 1, not 0" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_members_of_the_command_line_are_reproducible():
    model = gm.models.double_pendulum()
    q0s, v0s = perturbed(model.system, model.q0, model.v0, 5, 0.1, seed=1)
    assert np.array_equal(v0s[0], model.v0)
    assert np.array_equal(v0s[:3], perturbed(model.system, model.q0, model.v0, 3, 0.1, seed=1)[1])
    assert not np.array_equal(v0s[1], perturbed(model.system, model.q0, model.v0, 5, 0.1, seed=2)[1][1])
    assert 0 < np.abs(v0s[1:] - model.v0).max() < 1.0
    for q, v in zip(q0s, v0s, strict=True):
        np.testing.assert_allclose(v, gm.project(model.system, q, v)[1], atol=1e-14)
