"""Loops of vector instructions that XLA calls on the CPU, through its foreign function interface (FFI).

A `HandlerBuilder` writes one handler: it reads the addresses of its arguments and results from XLA's call frame
(numerics/linalg/xla_ffi.py has the layout), and has what such loops are made of. `registered` compiles it, or loads it
from the cache on disk, and registers it under a name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from llvmlite import ir

from ...numerics import disk_cache
from ...numerics.linalg.xla_ffi import VERSION
from ..scalar.fma_fusion import DeferredProduct
from ..scalar.program_key import Unhashable, jaxpr_digest
from ..scalar.translate import ScalarInterpreter
from ..scalar.values import filled
from . import compile as machine
from .code import LlvmCode

REAL, WHOLE, INT32, BYTE = ir.DoubleType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)


class HandlerBuilder:
    """Writes the handler of a module. Vectors have `lanes` doubles."""

    def __init__(self, name: str, lanes: int):
        self.module, self.lanes, self.kind = ir.Module(name), lanes, ir.VectorType(REAL, lanes)

    def inlined(self, name: str, program: Any, count: int, outputs: int, code_of: Callable[..., LlvmCode]) -> Any:
        """A function of `count` vectors by the jaxpr of a function of single numbers. Each of its outputs is a pair of
        vectors whose product it is, so that a following sum becomes a fused multiply-add."""
        result = ir.LiteralStructType([self.kind] * (2 * outputs))
        function = ir.Function(self.module, ir.FunctionType(result, [self.kind] * count), name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        code = code_of(function, self.lanes)
        found = ScalarInterpreter(code).evaluate(program, [filled((), [x]) for x in function.args])
        b, out = code.builder, ir.Constant(result, ir.Undefined)
        for k, x in enumerate(found):
            x = x.item()
            for part, y in enumerate((x.x, x.y) if isinstance(x, DeferredProduct) else (x, 1.0)):
                out = b.insert_value(out, code.broadcast(y), 2 * k + part)
        b.ret(out)
        return function

    def open(self, places: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
        """Begins the handler: the call frame, and memory for variables of these types. They are in the first block, so
        that LLVM keeps them in registers."""
        words = WHOLE.as_pointer()
        function = ir.Function(self.module, ir.FunctionType(WHOLE, [words]), "handler")
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        frame = function.args[0]
        variables = [b.alloca(kind) for kind in places]
        with b.if_then(b.icmp_unsigned("!=", self._word(frame, 1), WHOLE(0))):
            # XLA asks for the version of the interface before the first call.
            extension = b.inttoptr(self._word(frame, 1), words)
            answer = b.inttoptr(self._word(extension, 3), words)
            b.store(WHOLE(VERSION), b.gep(answer, [WHOLE(3)]))
            b.ret(WHOLE(0))
        return frame, variables

    # --- the call frame ---------------------------------------------------------------------------------------------
    def _word(self, pointer: Any, k: int) -> Any:
        return self.b.load(self.b.gep(pointer, [WHOLE(k)]))

    def buffer(self, frame: Any, group: int, k: int, kind: Any) -> Any:
        """The entries of the k-th buffer; see `data` in numerics/linalg/xla_ffi.py."""
        words = WHOLE.as_pointer()
        listed = self.b.inttoptr(self._word(frame, group), words)
        buffer = self.b.inttoptr(self._word(listed, k), words)
        return self.b.inttoptr(self._word(buffer, 3), kind.as_pointer())

    def whole_at(self, array: Any, k: Any) -> Any:
        """An entry of an array of int32, as a word."""
        return self.b.sext(self.b.load(self.b.gep(array, [k])), WHOLE)

    # --- loops and vectors ------------------------------------------------------------------------------------------
    def repeat(self, begin: Any, end: Any, body: Callable[[Any], Any]) -> None:
        """body(k) for k from begin to end − 1."""
        b = self.b
        start, head = b.block, b.append_basic_block("head")
        b.branch(head)
        b.position_at_end(head)
        k = b.phi(WHOLE)
        k.add_incoming(begin, start)
        inner, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.cbranch(b.icmp_signed("<", k, end), inner, after)
        b.position_at_end(inner)
        body(k)
        k.add_incoming(b.add(k, WHOLE(1)), b.block)
        b.branch(head)
        b.position_at_end(after)

    def fused(self, x: Any, y: Any, z: Any) -> Any:
        return self.b.call(self.intrinsic("llvm.fma", 3), [x, y, z])

    def intrinsic(self, name: str, arguments: int) -> Any:
        name = f"{name}.v{self.lanes}f64"
        kind = ir.FunctionType(self.kind, [self.kind] * arguments)
        return self.module.globals.get(name) or ir.Function(self.module, kind, name)

    def load(self, array: Any, at: Any) -> Any:
        return self.b.load(self.b.bitcast(self.b.gep(array, [at]), self.kind.as_pointer()), align=8)

    def splat(self, x: Any) -> Any:
        undefined = ir.Constant(self.kind, ir.Undefined)
        first = self.b.insert_element(undefined, x, INT32(0))
        return self.b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes))

    def zeros(self) -> Any:
        return ir.Constant(self.kind, [REAL(0.0)] * self.lanes)

    def sum_of_lanes(self, x: Any) -> Any:
        b, size = self.b, self.lanes
        while size > 1:
            size //= 2
            parts = [
                b.shuffle_vector(x, x, ir.Constant(ir.VectorType(INT32, size), [INT32(k + s) for k in range(size)]))
                for s in (0, size)
            ]
            x = b.fadd(parts[0], parts[1])
        return b.extract_element(x, INT32(0))


_handlers: dict[str, Any] = {}  # by name; they own their machine code


def registered(prefix: str, program: Any, settings: str, source: str, module: Callable[[], ir.Module]) -> str:
    """The name under which XLA knows the handler of a module, which is compiled now where it is not on disk.

    program: the jaxpr it was made from; settings: all else that it depends on; source: the file that writes it.
    """
    try:
        own = disk_cache.sources(Path(source))
        key = disk_cache.key(jaxpr_digest([program]), machine.environment(), f"{settings} {VERSION}", own)
    except Unhashable:
        key = None
    name = f"{prefix}_{len(_handlers) if key is None else key[:40]}"
    if name not in _handlers:
        stored = None if key is None else disk_cache.read(key)
        if stored is None:
            engine, code = machine.compile_module(module())
            if key is not None:
                disk_cache.write(key, code)
        else:
            engine = machine.load_object(stored)
        handler = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("handler"))
        _handlers[name] = engine, handler
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
    return name
