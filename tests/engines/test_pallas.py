"""GPU kernels: equal to the reference when interpreted, and accepted by Triton."""

from __future__ import annotations

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
from helpers.runs import ENGINE_METHODS, close, many, members
from helpers.zoo import first_of_its_class, fitting

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
