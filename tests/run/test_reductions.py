"""Reductions over members inside a run: against numpy on the rows of a run that keeps them all."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.cli.app import app
from geomint.engines.tiles import tile_size
from geomint.io import archive
from geomint.run.reductions import _order_statistics, _order_statistics_on_gpu
from helpers.processes import ends, same_archives, start
from helpers.runs import save_by_save

EDGES = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.5])
LEVELS = (0.0, 0.05, 0.3, 0.5, 0.95, 1.0)
PENDULUM = gm.models.pendulum()
MEMBERS = 41
ANGLES = np.linspace(0.1, 3.0, MEMBERS)[:, None]
PARAMS = {"length": np.ones(MEMBERS), "gravity": np.linspace(0.5, 2.0, MEMBERS)}
GRID: dict[str, Any] = dict(method=gm.Verlet(), dt=0.05, t_end=10.0, save_every=10)
# V = −x⁴: the faster members leave for infinity, one after another.
ESCAPE = gm.System(
    lambda q: -jnp.sum(q**4), watch={"size": lambda q, p: jnp.sum(q**2), "nothing": lambda q, p: jnp.zeros(0)}
)
STARTS = np.stack([np.linspace(0.01, 1.2, MEMBERS), np.linspace(0.02, 0.1, MEMBERS)], axis=1)
ESCAPING: dict[str, Any] = dict(method=gm.Verlet(), dt=0.01, t_end=3.0, save_every=10)


def weight(q, p, params):
    return params["gravity"] * q


REDUCE = {
    "energy": gm.Mean("energy"),
    "weight": gm.Quantiles(weight, LEVELS),
    "angle": gm.Histogram(lambda q, p, params: q[0], bins=EDGES),
    "above": gm.Mean(lambda q, p, params: q[0] > 0),
}
BY_NAME = {
    "q": gm.Mean("q"),
    "size": gm.Quantiles("size", LEVELS),
    "p": gm.Histogram("p", bins=20, range=(-3, 3)),
    "nothing": gm.Mean("nothing"),
}


def tables(run: gm.Trajectory) -> dict[str, bytes]:
    """Every number that a reduced run shows."""
    shown = {(name, key): x for name, held in run.reduced.items() for key, x in held.results.items()}
    return {
        k: np.asarray(x).tobytes()
        for k, x in {**shown, "left": run.members_left, "failed": run.failed_at, **run.columns}.items()
        if not isinstance(x, dict)
    }


def histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.stack([np.histogram(row, edges)[0] for row in values])


# --- against numpy --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["xla", "native"])
def test_reductions_are_those_of_the_rows(engine):
    """Functions with params of each member; the mean of a truth value is a share; some members are kept, in the order
    asked for."""
    full = gm.ensemble(PENDULUM.system, ANGLES, params=PARAMS, engine=engine, **GRID)
    run = gm.ensemble(PENDULUM.system, ANGLES, params=PARAMS, engine=engine, reduce=REDUCE, keep=[30, 2, -1], **GRID)
    assert run.engine == full.engine == engine
    energy, saved = run.reduced["energy"], len(full.t)
    assert np.allclose(energy.mean, full.energy.mean(axis=0), rtol=1e-14, atol=1e-15)
    assert np.allclose(energy.standard_deviation, full.energy.std(axis=0), rtol=1e-13)
    assert np.array_equal(run.reduced["above"].mean, (full.q[..., 0] > 0).mean(axis=0))
    expected = np.quantile(PARAMS["gravity"][:, None, None] * full.q, LEVELS, axis=0).swapaxes(0, 1)
    assert run.reduced["weight"].quantiles.shape == (saved, len(LEVELS), 1)
    assert np.array_equal(run.reduced["weight"].quantiles, expected)
    assert np.array_equal(run.reduced["weight"].levels, LEVELS)
    assert run.reduced["angle"].counts.dtype == np.int64
    assert np.array_equal(run.reduced["angle"].counts, histogram(full.q[..., 0].T, EDGES))
    assert np.array_equal(run.members_left, np.full(saved, MEMBERS))
    assert np.array_equal(run.failed_at, full.failed_at)
    assert np.array_equal(run.kept, [30, 2, 40])
    for column in ("q", "p", "energy", "v", "energy_error"):
        assert np.array_equal(getattr(run, column), getattr(full, column)[[30, 2, 40]])
    assert np.array_equal(run.checkpoint.carry[0], full.checkpoint.carry[0])


def test_values_on_the_edges_of_a_histogram():
    """Bodies at rest on every edge, outside, and between: a bin has its lower edge, the last one both, as in numpy."""
    places = np.concatenate([EDGES, EDGES[:-1] + 0.1, [-9.0, 9.0, EDGES[-1], EDGES[-1]]])
    reduce = {"q": gm.Histogram("q", bins=EDGES)}
    run = gm.ensemble(gm.System(), places[:, None], method=gm.Verlet(), dt=0.1, t_end=0.1, engine="xla", reduce=reduce)
    assert np.array_equal(run.reduced["q"].counts[-1, :, 0], np.histogram(places, EDGES)[0])


@pytest.mark.parametrize("engine", ["xla", "native"])
def test_members_that_fail_are_left_out(engine):
    full = gm.ensemble(ESCAPE, STARTS, engine=engine, **ESCAPING)
    run = gm.ensemble(
        ESCAPE, STARTS, engine=engine, reduce=BY_NAME | {"log": gm.Mean(lambda q, p: jnp.log(q[0] - 0.5))}, **ESCAPING
    )
    assert np.array_equal(run.failed_at, full.failed_at)
    assert 5 < np.sum(run.failed_at > 0) < MEMBERS - 5
    saves = np.arange(len(full.t))
    well = (full.failed_at[:, None] < 0) | (saves < full.failed_at[:, None])
    assert np.array_equal(run.members_left, well.sum(axis=0))
    assert np.array_equal(run.reduced["size"].members, run.members_left)
    for i in (0, len(full.t) // 2, len(full.t) - 1):
        q, p, size = full.q[well[:, i], i], full.p[well[:, i], i], full.watched["size"][well[:, i], i]
        assert np.allclose(run.reduced["q"].mean[i], q.mean(axis=0), rtol=1e-13)
        assert np.allclose(run.reduced["q"].standard_deviation[i], q.std(axis=0), rtol=1e-13)
        assert np.array_equal(run.reduced["size"].quantiles[i], np.quantile(size, LEVELS))
        edges = run.reduced["p"].edges
        assert np.array_equal(
            run.reduced["p"].counts[i], np.stack([np.histogram(p[:, k], edges)[0] for k in (0, 1)], axis=1)
        )
        counted = q[:, 0] > 0.5  # elsewhere the logarithm is no number
        assert run.reduced["log"].members[i] == counted.sum() < run.members_left[i]
        assert np.allclose(run.reduced["log"].mean[i], np.log(q[counted, 0] - 0.5).mean(), rtol=1e-13)
    assert run.reduced["nothing"].mean.shape == (len(full.t), 0)


def test_when_all_have_failed_the_run_stops_where_it_would_without_reductions():
    stopped = []
    for more in ({}, {"reduce": BY_NAME}):
        with pytest.raises(gm.RunStopped) as error:
            gm.ensemble(ESCAPE, STARTS[-3:], **ESCAPING, **more)
        stopped.append(error.value)
    assert stopped[0].step == stopped[1].step
    assert stopped[0].reason == stopped[1].reason
    assert len(stopped[0].run.t) == len(stopped[1].run.t)
    assert np.array_equal(stopped[0].run.failed_at, stopped[1].run.failed_at)
    assert np.allclose(stopped[1].run.reduced["q"].mean[0], STARTS[-3:].mean(axis=0))


def test_the_status_of_each_member():
    """A method with a status: pendula whose rod would have to pass through the pivot in one step."""
    model = gm.models.double_pendulum()
    v0s = model.v0 + np.array([0.0, 1e3])[:, None, None] * np.array([[1.0, 0.0], [1.0, 0.0]]) * (
        np.abs(model.q0).max(axis=1, keepdims=True) > 0
    )
    q0s = np.stack([model.q0] * 2)
    v0s = np.stack([gm.project(model.system, q, v)[1] for q, v in zip(q0s, v0s, strict=True)])
    grid = dict(method=gm.Rattle(), dt=0.05, t_end=1.0)
    full, run = (
        gm.ensemble(model.system, q0s, v0s, **grid),
        gm.ensemble(model.system, q0s, v0s, **grid, reduce={"energy": gm.Mean("energy")}),
    )
    assert run.failed_at[0] == -1
    assert run.failed_at[1] > 0
    assert np.array_equal(run.failed_at, full.failed_at)
    assert np.array_equal(run.status, full.status[:, -1])
    assert run.status[1] in run.method.failures


# --- the same bits, however it is done ------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["xla", "native"])
def test_no_number_depends_on_devices_or_chunks(engine, monkeypatch):
    """Three devices of one process (the same one thrice), and chunks of a single save, against one device."""
    go = lambda: tables(
        gm.ensemble(ESCAPE, STARTS, engine=engine, reduce=BY_NAME, keep=range(0, MEMBERS, 7), **ESCAPING)
    )
    assert tile_size(MEMBERS, "cpu") * 3 < MEMBERS
    whole = go()
    save_by_save(monkeypatch)
    chunked = go()
    # The module by its full name: the public function hides it as an attribute of the package.
    monkeypatch.setattr(importlib.import_module("geomint.run.ensemble"), "devices_of", lambda mesh: jax.devices() * 3)
    assert whole == chunked == go()


def test_looks_between_saves_change_nothing(monkeypatch):
    """Chunks of a single step, most of which end between two saves."""
    go = lambda: tables(gm.ensemble(ESCAPE, STARTS, engine="xla", reduce=BY_NAME, **ESCAPING))
    whole = go()
    monkeypatch.setattr("geomint.run.loop.CHUNK_SECONDS", 0.0)
    assert whole == go()


def test_streamed_and_resumed(tmp_path, monkeypatch):
    """The file holds reduced rows only; a run that goes on is the run that never stopped."""
    system = PENDULUM.system.with_params(PARAMS)
    more = {"params": PARAMS, "reduce": REDUCE, "keep": [5, 1], "seed": np.arange(MEMBERS)}
    whole = gm.ensemble(system, ANGLES, output=tmp_path / "whole.h5", **GRID, **more)
    assert tables(whole) == tables(gm.ensemble(system, ANGLES, **GRID, **more))
    save_by_save(monkeypatch)
    gm.ensemble(system, ANGLES, output=tmp_path / "parts.h5", **GRID | {"t_end": 4.0}, **more)
    with pytest.raises(
        gm.InputError, match=r"above, angle, weight are of functions.*gm\.resume\(\.\.\., reduce=reduce\)"
    ):
        gm.resume(tmp_path / "parts.h5", system, t_end=10.0)
    with pytest.raises(gm.ArchiveError, match="energy: Quantiles of energy"):
        gm.resume(tmp_path / "parts.h5", system, t_end=10.0, reduce=REDUCE | {"energy": gm.Quantiles("energy")})
    with pytest.raises(gm.ArchiveError, match="the levels of reduce"):
        gm.resume(tmp_path / "parts.h5", system, t_end=10.0, reduce=REDUCE | {"weight": gm.Quantiles(weight, (0.5,))})
    with pytest.raises(gm.ArchiveError, match="the function of reduce.'weight'. is not the one"):
        gm.resume(
            tmp_path / "parts.h5",
            system,
            t_end=10.0,
            reduce=REDUCE | {"weight": gm.Quantiles(lambda q, p, k: k["gravity"] * p, LEVELS)},
        )
    resumed = gm.resume(tmp_path / "parts.h5", system, t_end=10.0, reduce=REDUCE)
    assert tables(resumed) == tables(whole)
    assert same_archives(tmp_path / "parts.h5", tmp_path / "whole.h5")
    assert archive.read(tmp_path / "whole.h5").columns["reduced/weight/quantiles"].shape == (len(LEVELS), 1)
    loaded = gm.load(tmp_path / "whole.h5", system)
    assert tables(loaded) == tables(whole)
    assert np.array_equal(loaded.v, whole.v)
    assert np.array_equal(loaded.seed, np.arange(MEMBERS))
    assert loaded.status.shape == (MEMBERS,)
    unknown = gm.load(tmp_path / "whole.h5")
    assert tables(unknown) == tables(whole)
    assert "41 trajectories, reduced" in repr(unknown)


def test_reductions_of_saved_quantities_are_found_again(tmp_path):
    """Also after a run in memory that was saved."""
    run = gm.ensemble(ESCAPE, STARTS, **ESCAPING | {"t_end": 1.5}, reduce=BY_NAME)
    run.save(tmp_path / "run.h5")
    resumed = gm.resume(tmp_path / "run.h5", ESCAPE, t_end=3.0)
    assert tables(resumed) == tables(gm.ensemble(ESCAPE, STARTS, **ESCAPING, reduce=BY_NAME))
    with pytest.raises(AttributeError, match="keep"):
        resumed.q  # noqa: B018


# --- memory ---------------------------------------------------------------------------------------------------------
MANY = """
import resource, sys, numpy as np, geomint as gm
import jax.numpy as jnp
model = gm.models.fpu()
q0s, v0s = np.stack([model.q0] * 100_000), model.v0 * np.linspace(0.5, 1.5, 100_000).reshape(-1, *[1] * model.v0.ndim)
reduce = {
    "energy": gm.Mean("energy"),
    "size": gm.Quantiles(lambda q, p: jnp.max(jnp.abs(q))),
    "p": gm.Histogram(lambda q, p: p.ravel()[0], 50, range=(-3, 3)),
}
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # MiB, at the highest
grid = dict(method=gm.Verlet(), dt=0.01, t_end=0.02)
short = lambda: gm.ensemble(model.system, q0s, v0s, reduce=reduce, output=sys.argv[1], **grid)
short()
before = most()
run = gm.resume(sys.argv[1], t_end=0.01 * (int(sys.argv[2]) - 1), reduce=reduce)
print(len(run.t), most() - before, sum(x.nbytes for r in run.reduced.values() for x in r.results.values()))
"""


@pytest.mark.parametrize("saves", [13, pytest.param(401, marks=pytest.mark.slow)])
def test_memory_is_flat(tmp_path, saves):
    """100,000 members: their rows would be 10 MB a save, of which ten are added."""
    saved, grown, held = map(float, ends(start(MANY, tmp_path / "run.h5", saves), timeout=300).split())
    assert saved == saves
    assert grown < 60
    assert held < 500 * saves
    assert (tmp_path / "run.h5").stat().st_size < 50e6


# --- what is given --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"reduce": {"e": gm.Mean("enrgy")}}, "no quantity 'enrgy' is saved in this run. Did you mean energy"),
        ({"reduce": {"e": "energy"}}, r"gm\.Mean\(\.\.\.\), gm\.Quantiles"),
        ({"reduce": gm.Mean("energy")}, "must be a mapping"),
        ({"reduce": {"a/b": gm.Mean("energy")}}, "without '/'"),
        ({"reduce": {"e": gm.Mean(lambda q, p, s, k: q)}}, "s and k are none of these"),
        ({"reduce": {"e": gm.Mean(lambda q, p, k: (q, p))}}, "a number or an array"),
        ({"keep": [MEMBERS]}, "0 to 40"),
        ({"keep": [0.5]}, "by their numbers"),
        ({"seed": [1, 2]}, "one integer for each of the 41"),
    ],
)
def test_mistakes_are_named(more, message):
    with pytest.raises(gm.InputError, match=message):
        gm.ensemble(PENDULUM.system, ANGLES, **GRID, **more)


def test_mistakes_in_a_reduction_are_named():
    for make, message in [
        (lambda: gm.Mean(3), "of must be the name of a saved quantity or a function"),
        (lambda: gm.Quantiles("q", (0.5, 2)), "from 0 to 1"),
        (lambda: gm.Histogram("q", 10), "can't be known before the run"),
        (lambda: gm.Histogram("q", [1, 0]), "increasing"),
    ]:
        with pytest.raises(gm.InputError, match=message):
            make()
    with pytest.raises(gm.InputError, match="nothing was reduced"):
        gm.ensemble(PENDULUM.system, ANGLES, **GRID).reduced  # noqa: B018


def test_a_kernel_is_reduced_as_well(monkeypatch):
    """Without a GPU: the kernel as JAX interprets it, and the sort that a GPU would do."""
    monkeypatch.setattr("geomint.engines.pallas.engine.INTERPRET", True)
    kernel, xla = (
        gm.ensemble(ESCAPE, STARTS[:9], engine=engine, reduce=BY_NAME, **ESCAPING | {"t_end": 0.2})
        for engine in ("kernel", "xla")
    )
    assert kernel.engine == "kernel"
    for name, held in kernel.reduced.items():
        assert all(np.allclose(x, xla.reduced[name].results[key], rtol=1e-12) for key, x in held.results.items())
    random = np.random.default_rng(0)
    values, places = random.normal(size=(3, 50, 2)), random.integers(0, 40, size=(2, 3, 4))
    values[:, ::7] = np.nan
    on_gpu = _order_statistics_on_gpu([jnp.asarray(values[:, :30]), jnp.asarray(values[:, 30:])], places, 3)
    assert np.array_equal(on_gpu, _order_statistics([values[:, :30], values[:, 30:]], places), equal_nan=True)


def test_what_is_shown_of_a_reduced_run(tmp_path):
    """A picture, labelled arrays, and a line on the command line."""
    run = gm.ensemble(
        PENDULUM.system,
        ANGLES,
        output=tmp_path / "run.h5",
        **GRID,
        reduce={"angle": gm.Histogram("q", EDGES), "q": gm.Quantiles("q"), "e": gm.Mean("energy")},
    )
    assert len(run.plot(tmp_path / "run.png").axes) == 3
    labelled = run.to_xarray()
    assert labelled.q_quantiles.dims == ("time", "q_level", "q_axis_0")
    assert labelled.angle_counts.sum(("angle_bin", "angle_axis_0"))[0] == MEMBERS - np.sum(EDGES[-1] < ANGLES)
    said = CliRunner().invoke(app, ["info", str(tmp_path / "run.h5")]).output
    assert "41 members" in said
    assert "reduced/angle/counts" in said
    resumed = CliRunner().invoke(app, ["resume", str(tmp_path / "run.h5"), "--t-end", "12"])
    assert resumed.exit_code == 0
    assert "41, of which 0 failed" in resumed.output


def test_keep_alone_keeps_a_sample():
    run = gm.ensemble(PENDULUM.system, ANGLES, keep=range(3), **GRID)
    assert run.reduced == {}
    assert np.array_equal(run.q, gm.ensemble(PENDULUM.system, ANGLES, **GRID).q[:3])
