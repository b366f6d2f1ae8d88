"""The logarithm on vectors, against extended precision."""

import ctypes

import numpy as np
from llvmlite import ir

from geomint.engines.llvm import compile as machine
from geomint.engines.llvm.vector_log import VectorLog
from geomint.engines.llvm.xla_handler import REAL, WHOLE


def compiled():
    """(pointer to numbers, pointer to results, how many) -> the logarithms; and what owns the machine code."""
    lanes, module, pointer = machine.widest(), ir.Module("log"), REAL.as_pointer()
    vector = ir.VectorType(REAL, lanes)
    log = ir.Function(module, ir.FunctionType(vector, [vector]), "log_of_lanes")
    code = VectorLog(log, lanes)
    code.builder.ret(code.emit("log", [log.args[0]]))
    every = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, pointer, WHOLE]), "every")
    b = ir.IRBuilder(every.append_basic_block("entry"))
    head, body, after = (every.append_basic_block(name) for name in ("head", "body", "after"))
    start = b.block
    b.branch(head)
    b.position_at_end(head)
    k = b.phi(WHOLE)
    k.add_incoming(WHOLE(0), start)
    b.cbranch(b.icmp_signed("<", k, every.args[2]), body, after)
    b.position_at_end(body)
    at = [b.bitcast(b.gep(x, [k]), vector.as_pointer()) for x in every.args[:2]]
    b.store(b.call(log, [b.load(at[0], align=8)]), at[1], align=8)
    k.add_incoming(b.add(k, WHOLE(lanes)), body)
    b.branch(head)
    b.position_at_end(after)
    b.ret_void()
    engine, _ = machine.compile_module(module)
    kinds = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("every")), engine


def test_it_is_right_to_a_unit_in_the_last_place():
    function, _owner = compiled()
    rng, near = np.random.default_rng(0), 2.0 ** -np.arange(1, 53)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 20000)), rng.uniform(0.3, 3, 20000), 1 + near, 1 - near])
    special = np.array([0.0, -0.0, -1.0, -np.inf, np.inf, np.nan, 5e-324, 1e-310, np.finfo(float).max])
    x = np.concatenate([x, special])
    x = np.concatenate([x, np.ones(-len(x) % 8)])
    y = np.full_like(x, 7.0)
    function(x.ctypes.data, y.ctypes.data, len(x))
    with np.errstate(all="ignore"):
        exact = np.log(x.astype(np.longdouble))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(y[~finite], exact[~finite].astype(float))
    units = np.abs(y[finite] - exact[finite]) / np.spacing(np.abs(exact[finite]).astype(float))
    assert np.max(units) < 1.0
    assert np.all(y[x == 1.0] == 0.0)
