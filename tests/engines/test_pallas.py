"""GPU kernels: equal to the reference when interpreted, and accepted by Triton."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lib.mlir import ir
from jax._src.pallas.triton.lowering import (
    _new_ir_context as new_context,  # there is no public way to check a kernel without a GPU
)

import geomint as gm
from geomint.engines import Clock, Xla
from geomint.engines.pallas import engine as kernel
from geomint.engines.scalar.program import StepProgram
from geomint.methods import protocols
from geomint.run.inputs import initial_state
from helpers.runs import ENGINE_METHODS, close, many, members, methods_of
from helpers.zoo import fitting


@methods_of(gm.Verlet, gm.Rattle)  # without a GPU a kernel is slow to make
def test_kernels_equal_the_reference(method, monkeypatch):
    """On this machine the kernel is interpreted; benchmarks/gpu.py checks the numbers of a GPU."""
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "LANES", 4)
    problem = fitting(method)[-1]
    expected, got = many(method, problem, steps=6, engine="xla"), many(method, problem, steps=6, engine="kernel")
    assert got.engine == "kernel"
    close(expected, got)


def test_a_kernel_has_the_time(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "LANES", 4)
    drive = lambda q, t: 0.8 * jnp.cos(1.7 * t) + 0 * q
    system = gm.System(lambda q: -jnp.cos(q[0]), force=drive, damping=0.3)
    times = {"dt": 0.05, "t0": 0.3, "t_end": 1.3, "save_every": 5}
    starts = ([[1.0], [0.4]], [[0.5], [0.0]])
    expected, got = (
        gm.ensemble(system, *starts, method=gm.Verlet(), engine=engine, **times) for engine in ("xla", "kernel")
    )
    assert got.engine == "kernel"
    for name in ("q", "p", "work"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=0, atol=1e-14)


@ENGINE_METHODS
def test_kernels_are_written_for_a_gpu(method):
    """Triton's own language is written on any machine, and refuses what it does not know."""
    if isinstance(method, (gm.Gauss, gm.LobattoIIIAB)) and getattr(method, "stages", 2) > 2:
        pytest.skip("more of the same")
    problem = fitting(method)[0]
    q, p = members(problem)
    system, clock = problem.system, Clock.of(0.0, problem.dt)
    method = protocols.for_scalar_code(protocols.prepare(method, [(system, q[0])]), many=True)
    engine = kernel.Kernel(method, system, clock, "states")
    carry, _ = Xla.begin(engine, initial_state(q, p, 0.0, 0, False, len(q)))
    program = kernel.compiled(
        StepProgram(method, system, carry, "states"),
        kernel.Shape(engine.layout.width, 2, len(q), 32, 1, interpret=False),
    )
    lowered = program.trace(method, system, carry, *engine.scalar_arguments(0, 1, 1)).lower(
        lowering_platforms=("cuda",)
    )
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
