"""Every engine gives what the reference engine gives, to rounding, and keeps the same promises."""

from __future__ import annotations

import dataclasses
import functools
import gc
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lib.mlir import ir
from jax._src.pallas.triton.lowering import (
    _new_ir_context as new_context,  # there is no public way to check a kernel without a GPU
)

import geomint as gm
from geomint.engines import Clock, Xla
from geomint.engines.llvm import code as machine
from geomint.engines.llvm import engine as native
from geomint.engines.pallas import engine as kernel
from geomint.engines.scalar.program import KEPT, StepProgram
from geomint.methods.base import Method, Traits
from geomint.run import loop
from geomint.run.inputs import initial_state

sys.path.insert(0, str(Path(__file__).parent / "properties"))
from zoo import first_of_its_class, fitting

FAMILIES = (
    gm.Verlet,
    gm.Rattle,
    gm.Shake,
    gm.SymmetricMultistep,
    gm.ZhangSkeel,
    gm.IMEX,
    gm.EnergyStepping,
    gm.Gauss,
)  # others wait for the slow tests
MANY = (gm.Gauss, gm.LobattoIIIAB)  # with many stages they eliminate in matrices too large for straight-line code
QUICK = lambda m: first_of_its_class(m) and isinstance(m, FAMILIES)
METHODS = pytest.mark.parametrize(
    "method", [pytest.param(m, id=m.name, marks=[] if QUICK(m) else pytest.mark.slow) for m in gm.methods.all()]
)


def run(method, problem, steps=30, **more):
    return gm.simulate(
        problem.system,
        problem.at.q,
        p0=problem.at.p,
        method=method,
        dt=problem.dt,
        t_end=steps * problem.dt,
        save_every=3,
        **more,
    )


def same(a, b) -> bool:
    """Equal in every saved quantity, bit for bit."""
    flat = lambda r: jax.tree.leaves({**r.columns, "t": r.t})
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def close(expected, got, what=1e-12):
    for a, b in zip(jax.tree.leaves(expected.columns), jax.tree.leaves(got.columns), strict=True):
        np.testing.assert_allclose(a, b, rtol=what, atol=what * max(1.0, float(np.max(np.abs(a), initial=0.0))))


def members(problem, count=5):
    """Slightly different momenta, tangent where there is a constraint."""
    sizes = 1 + 0.01 * np.arange(count)
    return np.repeat(problem.at.q[None], count, axis=0), sizes.reshape(-1, *[1] * np.ndim(problem.at.p)) * problem.at.p[
        None
    ]


def many(method, problem, count=5, steps=12, **more):
    q, p = members(problem, count)
    return gm.ensemble(
        problem.system, q, p0s=p, method=method, dt=problem.dt, t_end=steps * problem.dt, save_every=3, **more
    )


@METHODS
def test_native_equals_the_reference(method):
    for problem in {p.name: p for p in (fitting(method)[0], fitting(method)[-1])}.values():
        expected, got = run(method, problem, engine="xla"), run(method, problem, engine="native")
        assert got.engine == "native" or (
            isinstance(method, MANY) and got.engine.endswith(f"more than {machine.LONGEST} operations a step)")
        )
        close(expected, got)


@METHODS
def test_native_ensembles_equal_the_reference(method):
    problem = fitting(method)[-1]
    expected, got = many(method, problem, engine="xla"), many(method, problem, engine="native")
    assert got.engine == "native" or (
        isinstance(method, MANY) and got.engine.endswith(f"more than {machine.LONGEST} operations a step)")
    )
    close(expected, got)


@pytest.mark.parametrize("method", [gm.Rattle(), gm.EnergyStepping(0.05), gm.IMEX()], ids=lambda m: m.name)
def test_no_member_feels_its_neighbours(method):
    """In another lane, beside others, or where the last lanes are empty: bit for bit the same."""
    problem = fitting(method)[-1]
    q, p = members(problem, 11)
    engine = native.Native(
        method.prepare([(problem.system, q[0])]), problem.system, Clock.of(0.0, problem.dt), "states"
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
        method.prepare([(problem.system, q[0])]), problem.system, Clock.of(0.0, problem.dt), "states"
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
    threading.Thread(target=ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        engine.advance(carry, 0, 1, 1, engine.buffer())
    assert len(begun) == len(ended) > 0


KERNEL_QUICK = (gm.Verlet, gm.Rattle)  # without a GPU a kernel is slow to make


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(
            m, id=m.name, marks=[] if first_of_its_class(m) and isinstance(m, KERNEL_QUICK) else pytest.mark.slow
        )
        for m in gm.methods.all()
    ],
)
def test_kernels_equal_the_reference(method, monkeypatch):
    """On this machine the kernel is interpreted; benchmarks/gpu.py checks the numbers of a GPU."""
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "LANES", 4)
    problem = fitting(method)[-1]
    expected, got = many(method, problem, steps=6, engine="xla"), many(method, problem, steps=6, engine="kernel")
    assert got.engine == "kernel"
    close(expected, got)


@METHODS
def test_kernels_are_written_for_a_gpu(method):
    """Triton's own language is written on any machine, and refuses what it does not know."""
    if isinstance(method, (gm.Gauss, gm.LobattoIIIAB)) and getattr(method, "stages", 2) > 2:
        pytest.skip("more of the same")
    problem = fitting(method)[0]
    q, p = members(problem)
    system, clock = problem.system, Clock.of(0.0, problem.dt)
    method = method.prepare([(system, q[0])]).for_straight_code(many=True)
    engine = kernel.Kernel(method, system, clock, "states")
    carry, _ = Xla.begin(engine, initial_state(q, p, 0.0, 0, False, len(q)))
    program = kernel.compiled(
        StepProgram(method, system, carry, "states"),
        kernel.Shape(engine.layout.width, 2, len(q), 32, 1, interpret=False),
    )
    lowered = program.trace(method, system, carry, *engine.told(0, 1, 1)).lower(lowering_platforms=("cuda",))
    kernels = list(triton_programs(lowered.compiler_ir("stablehlo").operation))
    assert kernels
    with new_context():
        for k in kernels:
            assert ir.Module.parse(k).operation.verify()


def triton_programs(operation):
    """The programs in Triton's language inside an operation, as bytes."""
    for inner in (o for region in operation.regions for block in region.blocks for o in block.operations):
        if "call_target_name" in inner.attributes and "triton" in str(inner.attributes["call_target_name"]):
            yield inner.attributes["mhlo.backend_config"]["ir"].value_bytes
        yield from triton_programs(inner.operation)


@pytest.mark.parametrize(
    "system",
    [gm.System(lambda q: jnp.sum(q**4) / 4 + q[0] * q[1] ** 2), gm.System(lambda q: jnp.sum(jnp.cos(q)))],
    ids=["quartic", "pendula"],
)
@pytest.mark.parametrize(
    "method", [gm.Verlet(), gm.Composition(gm.Verlet(form="drift"), order=8)], ids=lambda m: m.name
)
def test_chunks_may_end_anywhere(system, method, monkeypatch):
    """LLVM copies the body of a loop; where it may contract products and sums at will, the copies differ in their last bits."""
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
    problem = fitting(method)[-1]
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
    problem = fitting(method)[-1]
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
    """(x − min(x, 2))^1.5 is 0 below 2, and never a root of less: x is rounded in the difference as it is in the minimum."""
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
    """Those that were used last are kept; one that is forgotten while it is in use lives on, and any can be made again."""
    assert native._program.cache_parameters()["maxsize"] == kernel._program.cache_parameters()["maxsize"] == KEPT
    monkeypatch.setattr(native, "_program", functools.lru_cache(2)(native._program.__wrapped__))
    monkeypatch.setattr(native, "_pays", functools.lru_cache(2)(native._pays.__wrapped__))
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
    assert np.array_equal(held.layout.unpack(held.kept(kept, 10))["q"], before[0].q[1:])


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


LONG_ARRAYS = (
    'more than 2000 operations a step on long arrays, where XLA is faster; engine="native" forces machine code'
)


def test_it_steps_aside():
    method = gm.Verlet()
    sorting = gm.System(lambda q: jnp.sum(jnp.sort(q)[0] ** 2) + jnp.sum(q**2))
    run = gm.simulate(sorting, [0.3, 0.4], [1.0, 0.2], method=method, dt=0.1, t_end=1.0, engine="native")
    assert "xla (the native engine does not cover the operation sort)" in run.engine
    long = gm.models.fpu(200)
    auto, insisting = (
        gm.simulate(long.system, long.q0, long.v0, method=gm.Verlet(), dt=0.001, t_end=0.002, engine=e).engine
        for e in ("auto", "native")
    )
    assert auto == f"xla (the native engine does not cover {LONG_ARRAYS})"
    assert insisting == "native"
    big = gm.models.chain(1000)
    assert gm.simulate(
        big.system, big.q0, big.v0, method=gm.Rattle(), dt=0.01, t_end=0.02, engine="native"
    ).engine.startswith("xla (")


def _strange(q, k):
    """Something of everything that may stand in a potential."""
    x = jnp.concatenate([q, q[::-1] ** 3, jnp.stack([jnp.sum(q), jnp.prod(q)])])
    rotated = jnp.roll(x.reshape(2, -1), 1, axis=1) @ jnp.linspace(0.1, 1.0, x.size // 2)
    branch = jax.lax.cond(q[0] > 0.2, lambda y: jnp.sum(jnp.sin(y)), lambda y: jnp.sum(jnp.tanh(y) ** 2), x)
    summed, each = jax.lax.scan(lambda c, y: (0.9 * c + y, jnp.exp(-(c**2)) * y), 0.0, x)
    iterated = jax.lax.fori_loop(0, 5, lambda i, y: y - 0.1 * (y**3 + x[i]), 0.3)
    picked = jax.lax.dynamic_slice(x, (jnp.argmax(jnp.abs(q)),), (2,))
    put = jnp.zeros(4).at[jnp.array([0, 2, 2])].add(q).at[1].set(q[0])
    spread = (
        jnp.maximum(q[0], k["floor"])
        + jnp.minimum(q[1], 0.4)
        + jnp.where(q[2] < 0, jnp.abs(q[2]), jnp.arctan2(q[2], 1.3))
        + jnp.log1p(q[0] ** 2)
        + (1.2 + q[1]) ** 1.7
    )
    matrix = jnp.eye(3) + 0.1 * jnp.outer(q, q)
    solved = q @ jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), jnp.flip(q))
    parts = (
        jnp.sum(rotated),
        branch,
        summed,
        jnp.sum(each**2),
        iterated,
        jnp.sum(picked**2),
        jnp.sum(put**2),
        spread,
        solved,
        jnp.sum(jnp.cumsum(q) ** 2),
    )
    return 0.05 * sum(parts) + jnp.sum(q**2)


def _halvings(q, size, limit):
    """What a loop makes of q while a size, known or not, is above a limit."""
    shrunk = lambda s: (0.7 * s[0] + 0.1 * s[0] ** 2, 0.5 * s[1], jnp.where(s[2] == 0, 3, s[2] + 1))
    x, size, rounds = jax.lax.while_loop(lambda s: s[1] > limit, shrunk, (jax.lax.stop_gradient(q), size, 0))
    return jnp.sum(x * q) + 0.1 * rounds * q[0] + size * q[1]


I = lambda q: q.astype(int)
EDGES = {  # what a rule may get wrong in silence; each has done so once
    "division by zero": lambda q: 0.1 * jnp.sum(jnp.where(I(q) == 0, 0, 10 // I(q))),
    "first true": lambda q: jnp.array([1.0, 2.0, 3.0])[jnp.argmax(jnp.array([-1.0, 0.0, 1.0]) > q[0])] * q[1],
    "order of truth values": lambda q: jnp.sum(jnp.where((q > 0) < (q > 0.5), 1.0, 2.0) * q),
    "product of truth values": lambda q: ((q > 0) @ (q > -0.5)) * 0.5 * q[0],
    "32 bits": lambda q: 1e-3 * jnp.sum((jnp.where(q > 0, jnp.int32(77), jnp.int32(5)) * 1103515245 + 12345) % 1000) * q[0],
    "8 bits": lambda q: 0.01 * jnp.sum(jnp.where(q > 0, jnp.uint8(200), jnp.uint8(5)) + jnp.uint8(100)) * q[0],
    "no number made whole": lambda q: 1e-20 * jnp.sum(jnp.sqrt(q).astype(int)) * q[0],
    "too large a number made whole": lambda q: 1e-20 * jnp.sum((1e25 * q).astype(int)) * q[0],
    "first that is no number": lambda q: 0.1 * jnp.argmax(jnp.log(q)) * q[0],
    "signed zeros": lambda q: jnp.arctan2(0.0, -1 - q[0] ** 2) * q[0] + 0.3 * jnp.arctan2(-0.0, -1 - q[0] ** 2) * q[1] + jnp.sum(jnp.arctan2(0.0 - jnp.maximum(q, 0.0), -1.0)),
    "small arguments of erfinv": lambda q: 1e7 * jnp.sum(jax.scipy.special.erfinv(q * 1e-7)),
    "loops that are known to begin": lambda q: _halvings(q, 1.0, 0.1) + _halvings(q, 1.0, jnp.abs(jax.lax.stop_gradient(q[2]))),
    "a scan over single numbers": lambda q: jax.lax.scan(lambda c, y: (0.9 * c + y, c * y), 0.0, q)[0] * q[0],
    "one number after another": lambda q: (lambda x, y, z: jnp.sin(x * y) + z * x)(*q),
    "loops that are known not to": lambda q: _halvings(q, 0.05, 0.1),
    "one of three": lambda q: jnp.sum(jax.vmap(lambda x: jax.lax.switch(jnp.clip(I(jnp.floor(3 * x)), 0, 2), [jnp.sin, jnp.cos, jnp.tanh], x))(q)),
}  # fmt: skip


NOT_COVERED = {"product of truth values": "dot_general of truth values", "8 bits": "numbers of type uint8"}


def _engine_for(name, engine):
    """What a run tells of its engine."""
    return f"xla (the {engine} engine does not cover {NOT_COVERED[name]})" if name in NOT_COVERED else engine


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2) + EDGES[name](q))
    rng = np.random.default_rng(3)
    for _ in range(3):
        q, p = rng.uniform(-1, 1, (2, 3))
        expected, got = (
            gm.simulate(system, q, p0=p, method=gm.Verlet(), dt=0.02, t_end=0.4, save_every=4, engine=e)
            for e in ("xla", "native")
        )
        assert got.engine == _engine_for(name, "native")
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EDGES)
def test_edges_in_lanes(name, monkeypatch):
    """Members that part ways, in vectors of machine code and in a kernel."""
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "LANES", 4)
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2) + EDGES[name](q))
    q, p = np.random.default_rng(3).uniform(-1, 1, (2, 11, 3))
    go = lambda engine: gm.ensemble(
        system, q, p0s=p, method=gm.Verlet(), dt=0.02, t_end=0.4, save_every=4, engine=engine
    )
    expected = go("xla")
    for engine in ("native", "kernel"):
        got = go(engine)
        assert got.engine == _engine_for(name, engine)
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)


def test_operations():
    """Over and over from different places: each operation meets different numbers, and each branch is taken."""
    system = gm.System(_strange, params={"floor": 0.1})
    rng = np.random.default_rng(0)
    for _ in range(8):
        q, p = rng.uniform(-1, 1, (2, 3))
        expected, got = (
            gm.simulate(system, q, p0=p, method=gm.Verlet(), dt=0.01, t_end=1.0, save_every=10, engine=e)
            for e in ("xla", "native")
        )
        assert got.engine == "native"
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)
