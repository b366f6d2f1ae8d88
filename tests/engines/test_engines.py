"""Every engine gives what the reference engine gives, to rounding, and keeps the same promises."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import signal
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import Clock
from geomint.engines.llvm import code as machine
from geomint.engines.llvm import engine as native
from geomint.engines.pallas import engine as kernel
from geomint.engines.scalar.program import CACHED_LOOPS
from geomint.methods import protocols
from geomint.methods.base import Method, Traits
from geomint.run import loop
from geomint.run.inputs import initial_state
from geomint.run.instability import unwatched
from helpers.runs import ENGINE_METHODS, close, many, members, methods_of, run, same
from helpers.zoo import cheapest, fitting

MANY = (gm.Gauss, gm.LobattoIIIAB)  # with many stages they eliminate in matrices too large for straight-line code


@ENGINE_METHODS
def test_native_equals_the_reference(method):
    """On the first problem that fits; ensembles are compared on another, the cheapest."""
    problem = fitting(method)[0]
    expected, got = run(method, problem, engine="xla"), run(method, problem, engine="native")
    assert got.engine == "native" or (
        isinstance(method, MANY) and got.engine.endswith(f"more than {machine.LONGEST} operations a step)")
    )
    close(expected, got)


@methods_of(gm.Verlet, gm.Rattle, gm.EnergyStepping, gm.GeometricLangevin)
def test_native_ensembles_equal_the_reference(method):
    """Of methods whose ensembles differ by more than lanes from the single runs above, with which tests/methods/
    test_contracts.py compares the ensembles of all others."""
    problem = cheapest(method)
    expected, got = many(method, problem, engine="xla"), many(method, problem, engine="native")
    assert got.engine == "native" or (
        isinstance(method, MANY) and got.engine.endswith(f"more than {machine.LONGEST} operations a step)")
    )
    close(expected, got)


@pytest.mark.parametrize("method", [gm.Rattle(), gm.EnergyStepping(0.05), gm.IMEX()], ids=lambda m: m.name)
def test_no_member_feels_its_neighbours(method):
    """In another lane, beside others, or where the last lanes are empty: bit for bit the same."""
    problem = cheapest(method)
    q, p = members(problem, 11)
    engine = native.Native(
        protocols.prepare(method, [(problem.system, q[0])]), problem.system, Clock.of(0.0, problem.dt), "states"
    )
    carry, _ = engine.begin(initial_state(q, p, 0.0, 0, False, 11))
    assert engine.described == "native"
    together, _ = engine.advance(carry, 0, 20, 1, engine.buffer())
    for some in ([10, 3, 7], [4], [*range(10, -1, -1)]):
        engine.begin(initial_state(q[some], p[some], 0.0, 0, False, len(some)))
        assert engine.described == "native"
        apart, _ = engine.advance(jax.tree.map(lambda x, i=some: np.asarray(x)[i], carry), 0, 20, 1, engine.buffer())
        for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
            assert np.array_equal(np.asarray(x)[some], y)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="a system that interrupts one thread")
def test_an_interrupted_ensemble_leaves_no_one_at_work():
    """What still ran would write into memory that is freed."""
    problem, method = fitting(gm.Verlet())[0], gm.Verlet()
    q, p = members(problem, 200)
    engine = native.Native(
        protocols.prepare(method, [(problem.system, q[0])]), problem.system, Clock.of(0.0, problem.dt), "states"
    )
    carry, _ = engine.begin(initial_state(q, p, 0.0, 0, False, 200))
    at_work, begun, ended = threading.Event(), [], []

    def slow(*_):
        begun.append(1)
        at_work.set()
        time.sleep(0.3)
        ended.append(1)
        return 0

    engine.program = dataclasses.replace(engine.program, run=slow)
    ctrl_c = lambda: (
        at_work.wait(),
        time.sleep(0.1),
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT),
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores Ctrl-C
    try:
        threading.Thread(target=ctrl_c).start()
        with pytest.raises(KeyboardInterrupt):
            engine.advance(carry, 0, 1, 1, engine.buffer())
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == len(ended) > 0


@pytest.mark.parametrize(
    "system",
    [gm.System(lambda q: jnp.sum(q**4) / 4 + q[0] * q[1] ** 2), gm.System(lambda q: jnp.sum(jnp.cos(q)))],
    ids=["quartic", "pendula"],
)
@pytest.mark.parametrize(
    "method", [gm.Verlet(), gm.Composition(gm.Verlet(form="drift"), order=8)], ids=lambda m: m.name
)
def test_chunks_may_end_anywhere(system, method, monkeypatch):
    """LLVM copies the body of a loop; where it may contract products and sums at will, the copies differ in their last
    bits."""
    one = lambda: gm.simulate(
        system, [0.3, 0.5], [0.1, 0.7], method=method, dt=0.1, t_end=6.0, save_every=20, engine="native"
    )
    some = lambda: gm.ensemble(
        system,
        [[0.3, 0.5], [0.2, 0.5], [0.3, 0.4]],
        [[0.1, 0.7]] * 3,
        method=method,
        dt=0.1,
        t_end=6.0,
        save_every=20,
        engine="native",
    )
    whole, all_of_them = one(), some()
    assert whole.engine == all_of_them.engine == "native"
    monkeypatch.setattr(
        loop, "_chunk", lambda grid, n, rows, budget: (min(7, grid.save_every - n % grid.save_every), 1)
    )
    assert same(one(), whole)
    assert same(some(), all_of_them)


@pytest.mark.parametrize(
    "method", [gm.Rattle(), gm.EnergyStepping(0.05), gm.SymmetricMultistep(6), gm.ZhangSkeel()], ids=lambda m: m.name
)
def test_chunked_and_resumed_runs_are_the_same(method, tmp_path, monkeypatch):
    problem = cheapest(method)
    whole = run(method, problem, steps=60, engine="native")
    run(method, problem, engine="native", output=tmp_path / "half.h5")
    resumed = gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt)
    assert resumed.engine == "native"
    assert same(resumed, whole)
    monkeypatch.setattr(
        loop, "_chunk", lambda grid, n, rows, budget: (min(2, grid.save_every - n % grid.save_every), 1)
    )
    assert same(run(method, problem, steps=60, engine="native"), whole)


@pytest.mark.parametrize("method", [gm.Rattle(), gm.EnergyStepping(0.05)], ids=lambda m: m.name)
def test_chunked_and_resumed_ensembles_are_the_same(method, tmp_path, monkeypatch):
    problem = cheapest(method)
    whole = many(method, problem, count=11, steps=24, engine="native")
    many(method, problem, count=11, steps=12, engine="native", output=tmp_path / "half.h5")
    resumed = gm.resume(tmp_path / "half.h5", system=problem.system, t_end=24 * problem.dt)
    assert resumed.engine == "native"
    assert same(resumed, whole)
    monkeypatch.setattr(
        loop, "_chunk", lambda grid, n, rows, budget: (min(2, grid.save_every - n % grid.save_every), 1)
    )
    assert same(many(method, problem, count=11, steps=24, engine="native"), whole)


def test_members_with_their_own_params():
    system = gm.System(lambda q, k: jnp.sum(k["a"] * jnp.cos(q)) + k["b"] @ q**2, params={"a": 1.0, "b": np.ones(2)})
    rng = np.random.default_rng(1)
    own = {"a": rng.uniform(1, 2, 13), "b": rng.uniform(1, 2, (13, 2))}
    go = lambda engine: gm.ensemble(
        system, np.full((13, 2), 0.3), params=own, method=gm.Verlet(), dt=0.1, t_end=5.0, save_every=5, engine=engine
    )
    expected, got = go("xla"), go("native")
    assert got.engine == "native"
    close(expected, got)
    alone = gm.simulate(
        system.with_params({"a": own["a"][7], "b": own["b"][7]}),
        [0.3, 0.3],
        method=gm.Verlet(),
        dt=0.1,
        t_end=5.0,
        save_every=5,
    )
    np.testing.assert_allclose(got.q[7], alone.q, rtol=1e-13)


def test_members_that_fail_do_not_disturb_the_others():
    model = gm.models.triple_pendulum()
    v = np.stack([model.v0, model.v0, model.v0])
    q = np.stack([model.q0] * 3)
    v[1] = gm.project(model.system, model.q0, 400 * (1 + np.arange(6.0).reshape(3, 2)))[1]  # too fast for the step
    go = lambda engine: gm.ensemble(
        model.system, q, v, method=gm.Rattle(), dt=0.02, t_end=2.0, save_every=10, engine=engine
    )
    with unwatched():  # the search for a step that works would take longer than the runs
        expected, got = go("xla"), go("native")
    assert expected.failed_at[1] >= 0
    assert got.failed_at.tolist() == expected.failed_at.tolist()
    np.testing.assert_allclose(got.q[[0, 2]], expected.q[[0, 2]], rtol=1e-10, atol=1e-10)


class Kicked(Method):
    """Noise from a key and the number of the step."""

    @property
    def traits(self):
        return Traits(1, symplectic=False, symmetric=False, reversible=False, energy=None, momentum_maps=None)

    def init(self, mech, state, dt):
        return state.q, state.p, jax.random.key_data(jax.random.key(7)), jnp.zeros((), int)

    def step(self, mech, carry, dt):
        q, p, key, n = carry
        first, second = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), n))
        p = (
            p
            + dt * mech.force(q)
            + 0.1 * jnp.sqrt(dt) * jax.random.normal(first, p.shape)
            + 0.01 * jax.random.uniform(second, p.shape)
        )
        return q + dt * mech.velocity(p), p, key, n + 1


@pytest.mark.parametrize(
    "area", [lambda q: q[0] * q[3] - q[1] * q[2], lambda q: q[0] * q[3]], ids=["two products", "one"]
)
def test_what_is_compared_is_what_is_subtracted(area):
    """(x − min(x, 2))^1.5 is 0 below 2, and never a root of less: x is rounded in the difference as it is in the
    minimum."""
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2) + (area(q) - jnp.minimum(area(q), 2.0)) ** 1.5)
    go = lambda engine: gm.simulate(
        system, [1.0, 0.3, 0.2, 0.9], [0.1, 0.2, -0.3, 0.4], method=gm.Verlet(), dt=0.01, t_end=5.0, engine=engine
    )
    close(go("xla"), go("native"))


def test_random_numbers_are_the_same():
    system = gm.System(lambda q: jnp.sum(q**2) / 2)
    expected, got = (
        gm.simulate(system, [0.1, 0.2, 0.3], method=Kicked(), dt=0.01, t_end=5.0, save_every=10, engine=e)
        for e in ("xla", "native")
    )
    assert got.engine == "native"
    close(expected, got)


def test_one_program_serves_a_sweep():
    system = gm.System(lambda q, k: jnp.sum(k["a"] * jnp.cos(q)), params={"a": 1.0})
    go = lambda dt, a: gm.simulate(
        system.with_params({"a": a}), [0.3, 0.4], [1.0, 0.2], method=gm.Verlet(), dt=dt, t_end=10 * dt, engine="native"
    )
    go(0.1, 1.0)
    programs = native._program.cache_info().misses
    for k in range(1, 6):
        native_run = go(0.1 / k, 1.0 + k)
        other = gm.simulate(
            system.with_params({"a": 1.0 + k}),
            [0.3, 0.4],
            [1.0, 0.2],
            method=gm.Verlet(),
            dt=0.1 / k,
            t_end=1.0 / k,
            engine="xla",
        )
        np.testing.assert_allclose(native_run.q, other.q, rtol=1e-14, atol=1e-15)
    assert native._program.cache_info().misses == programs


def test_programs_are_forgotten(monkeypatch):
    """Those that were used last are kept; one that is forgotten while it is in use lives on, and any can be made
    again."""
    assert (
        native._program.cache_parameters()["maxsize"] == kernel._program.cache_parameters()["maxsize"] == CACHED_LOOPS
    )
    monkeypatch.setattr(native, "_program", functools.lru_cache(2)(native._program.__wrapped__))
    monkeypatch.setattr(native, "size_of", functools.lru_cache(2)(native.size_of.__wrapped__))
    systems = [gm.System(lambda q, k=k: jnp.sum(q**4) / 4 + k * q[0] * q[1]) for k in range(6)]
    go = lambda system: gm.simulate(system, [0.3, 0.4], method=gm.Verlet(), dt=0.1, t_end=1.0)
    held = native.Native(gm.Verlet(), systems[0], Clock.of(0.0, 0.1))
    carry, _ = held.begin(initial_state(np.array([0.3, 0.4]), np.zeros(2), 0.0, 0, False))
    before = [go(system) for system in systems]
    gc.collect()
    assert native._program.cache_info().misses == 6
    assert native._program.cache_info().currsize == 2
    assert all(r.engine == "native" and same(r, go(system)) for r, system in zip(before, systems, strict=True))
    _, kept = held.advance(carry, 0, 1, 10, held.buffer())
    assert np.array_equal(held.layout.unpack(held.rows_of(kept, 10))["q"], before[0].q[1:])


def test_a_program_keeps_no_params():
    """Those of a million members would stay for ever."""
    system = gm.System(lambda q, k: jnp.sum(k * jnp.cos(q)), params=1.0)
    own = np.linspace(1.0, 2.0, 13)
    engine = native.Native(gm.Verlet(), system.with_params(own), Clock.of(0.0, 0.1), "states and params")
    engine.begin(initial_state(np.full((13, 2), 0.3), np.zeros((13, 2)), 0.0, 0, False, 13))
    program, params = engine.program, weakref.ref(own)
    assert program is not None
    del engine, own
    gc.collect()
    assert params() is None


def test_failures_are_the_same():
    model = gm.models.triple_pendulum()
    errors = []
    for engine in ("xla", "native"):
        with pytest.raises(gm.RunStopped) as stopped:
            gm.simulate(model.system, model.q0, model.v0, method=gm.Rattle(), dt=1.5, t_end=150.0, engine=engine)
        errors.append(stopped.value)
    assert errors[0].step == errors[1].step
    assert str(errors[0]) == str(errors[1])


def test_it_steps_aside():
    method = gm.Verlet()
    sorting = gm.System(lambda q: jnp.sum(jnp.sort(q)[0] ** 2) + jnp.sum(q**2))
    run = gm.simulate(sorting, [0.3, 0.4], [1.0, 0.2], method=method, dt=0.1, t_end=1.0, engine="native")
    assert "xla (the native engine does not cover the operation sort)" in run.engine
    long = gm.models.fpu(80)
    auto, insisting = (
        gm.simulate(long.system, long.q0, long.v0, method=gm.Verlet(), dt=0.001, t_end=0.002, engine=e).engine
        for e in ("auto", "native")
    )
    reason = 'more than 2000 operations a step on long arrays, where XLA is faster; engine="native" forces machine code'
    assert auto == f"xla (the native engine does not cover {reason})"
    assert insisting == "native"
    big = gm.models.fpu(400)
    forced = gm.simulate(big.system, big.q0, big.v0, method=method, dt=0.001, t_end=0.002, engine="native").engine
    assert forced == f"xla (the native engine does not cover more than {machine.LONGEST} operations a step)"


def test_auto_weighs_compile_time_against_the_length_of_a_run(monkeypatch):
    """An explicit step of 2892 operations, with gathers, whose machine code takes about a second to compile: XLA for
    short runs, machine code for long ones."""
    sizes, lengths = [], []
    size_of, check = native.size_of, native.check_faster
    monkeypatch.setattr(native, "size_of", lambda program: sizes.append(size_of(program)) or sizes[-1])
    monkeypatch.setattr(native, "check_faster", lambda program, n: lengths.append(n) or check(program, n))
    atoms, planet = gm.models.lennard_jones_cluster(), gm.models.kepler()
    go = lambda model, method, **settings: gm.simulate(
        model.system, model.q0, model.v0, method=method, dt=0.01, t_end=0.03, **settings
    )
    assert go(atoms, gm.Verlet()).engine.startswith("xla (the native engine does not cover so few steps")
    assert go(planet, gm.Verlet()).engine == "native"
    go(planet, gm.EnergyStepping(height=0.1))  # dt is not a step here
    assert lengths == [3, 3, math.inf]
    size = sizes[0]
    assert (size.fused, size.iterates, size.faster_steps()) == (False, False, True)
    assert [size.worth_compiling(n) for n in (50_000, 500_000, math.inf)] == [False, True, True]
    assert size._replace(iterates=True).worth_compiling(2)  # XLA takes as long to compile a step with a loop
    assert size._replace(step=1000, row=800).worth_compiling(2)
    assert not size._replace(step=10_000, iterates=True).worth_compiling(2)
