"""PTX instructions in a kernel, where the code that Triton and LLVM generate is slower."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from ..scalar.random_numbers import ROTATIONS

_RECIPROCAL = """{
.reg .f64 guess, minus, error, better; .reg .b32 low, high; .reg .pred usual;
rcp.approx.ftz.f64 guess, $1;
neg.f64 minus, $1;
fma.rn.f64 error, minus, guess, 0d3FF0000000000000;
fma.rn.f64 error, error, error, error;
fma.rn.f64 better, guess, error, guess;
fma.rn.f64 error, minus, better, 0d3FF0000000000000;
fma.rn.f64 better, better, error, better;
mov.b64 {low, high}, $1;
and.b32 high, high, 0x7fffffff;
sub.u32 high, high, 0x00100000;
setp.lt.u32 usual, high, 0x7fc00000;
selp.f64 $0, better, guess, usual;
}"""


def reciprocal(x: Any) -> Any:
    """1/x for doubles, in 5 operations. A division takes 8, and for subnormal or huge numbers a function call, which
    increases register pressure everywhere. Rounded as a division is; beyond 2^±1022 it is infinity or 0."""
    return _inline_asm(_RECIPROCAL, x) if x.dtype == jnp.float64 else 1 / x


_ROUGH = """{
.reg .f64 guess, minus, error;
rcp.approx.ftz.f64 guess, $1;
neg.f64 minus, $1;
fma.rn.f64 error, minus, guess, 0d3FF0000000000000;
fma.rn.f64 $0, guess, error, guess;
}"""


def rough_reciprocal(x: Any) -> Any:
    """1/x to twelve digits, in 2 operations: the hardware approximation has six, and a Newton step doubles them."""
    return _inline_asm(_ROUGH, x) if x.dtype == jnp.float64 else 1 / x


def opaque_copy(x: Any) -> Any:
    """Opaque copy of x; keeps LLVM from pairing loop-carried doubles. It would hold those that belong to two pairs in
    two registers each."""
    return _inline_asm("mov.f64 $0, $1;", x) if x.dtype == jnp.float64 else x


_limited = Primitive("limited_registers")
_limited.def_abstract_eval(lambda x, registers: x)


def with_register_limit(x: Any, registers: int) -> Any:
    """x, in a kernel that is limited to that many registers per thread. With fewer registers more warps are resident on
    a multiprocessor, which hides latency. Triton reads the limit from an attribute of the module, for which Pallas has
    no setting; where a version of JAX does not allow to set it, there is no limit."""
    return _limited.bind(x, registers=registers) if _can_limit() else x


@functools.cache
def _can_limit() -> bool:
    try:
        from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]
        from jax._src.pallas.triton.lowering import register_lowering
    except ImportError:
        return False

    @register_lowering(_limited)
    def _rule(_: Any, x: Any, *, registers: int) -> Any:
        with contextlib.suppress(Exception):
            module: Any = ir.InsertionPoint.current.block.owner  # pyright: ignore[reportAttributeAccessIssue]
            while module.operation.parent is not None:
                module = module.operation.parent
            module.operation.context.allow_unregistered_dialects = True
            module.operation.attributes["ttg.maxnreg"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), registers)
        return x

    return True


def fused(form: str, x: Any, y: Any, z: Any) -> Any:
    """xy + z, z − xy or xy − z, rounded once. Triton as XLA configures it does not fuse products and sums."""
    kind = "f64" if x.dtype == jnp.float64 else "f32"
    changed, kept = {"xy+z": ("", "$1, $2, $3"), "z-xy": ("$1", "minus, $2, $3"), "xy-z": ("$3", "$1, $2, minus")}[form]
    minus = f".reg .{kind} minus; neg.{kind} minus, {changed}; " if changed else ""
    return _inline_asm(f"{{ {minus}fma.rn.{kind} $0, {kept}; }}", x, y, z)


def _inline_asm(text: str, *x: Any) -> Any:
    """One result, since Pallas takes no more; of the type and shape of the first operand, as all are."""
    from jax.experimental.pallas import triton

    letter = {"float64": "d", "float32": "f", "int64": "l"}[x[0].dtype.name]
    return triton.elementwise_inline_asm(
        text,
        args=list(x),
        constraints=",".join([f"={letter}", *letter * len(x)]),
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x[0].shape, x[0].dtype)],
    )[0]


_INVERSE_ROOT = """{
.reg .f64 guess, minus, error, series, better; .reg .b32 low, high; .reg .pred usual;
rsqrt.approx.ftz.f64 guess, $1;
mul.rn.f64 minus, $1, guess;
neg.f64 minus, minus;
fma.rn.f64 error, minus, guess, 0d3FF0000000000000;
fma.rn.f64 series, error, 0d3FD8000000000000, 0d3FE0000000000000;
mul.rn.f64 minus, guess, error;
fma.rn.f64 better, minus, series, guess;
mov.b64 {low, high}, guess;
sub.u32 high, high, 1;
setp.lt.u32 usual, high, 0x7fefffff;
selp.f64 $0, better, guess, usual;
}"""


def inverse_root(x: Any) -> Any:
    """1/√x for doubles, in 5 operations from the hardware approximation of 20 bits: its error e = 1 − x y² is removed
    up to its third power. Where the approximation is 0 or infinity, it is exact; that is decided by its bits, since a
    comparison of doubles takes the time of an operation."""
    return _inline_asm(_INVERSE_ROOT, x) if x.dtype == jnp.float64 else jax.lax.rsqrt(x)


_NEXT_LANE = {
    "f64": """{
.reg .b32 low, high, lane;
mov.u32 lane, %laneid;
add.u32 lane, lane, 1;
mov.b64 {low, high}, $1;
shfl.sync.idx.b32 low, low, lane, 31, 0xffffffff;
shfl.sync.idx.b32 high, high, lane, 31, 0xffffffff;
mov.b64 $0, {low, high};
}""",
    "f32": """{
.reg .b32 value, lane;
mov.u32 lane, %laneid;
add.u32 lane, lane, 1;
mov.b32 value, $1;
shfl.sync.idx.b32 value, value, lane, 31, 0xffffffff;
mov.b32 $0, value;
}""",
}


def next_lane(x: Any) -> Any:
    """x of the next lane of the warp, and of the first lane in the last one: a rotation of 32 values, in a kernel of
    one warp. All lanes have to take part."""
    return _inline_asm(_NEXT_LANE["f64" if x.dtype == jnp.float64 else "f32"], x)


@functools.cache
def threefry_code() -> str:
    """Twenty rounds of threefry in native 32-bit words (the operations of scalar/random_numbers.py on 64-bit integers
    are three times as many): from a key and a counter of two words, each in 64 bits, to two words in one number."""
    words, lines = ("key0", "key1", "x", "y"), [".reg .b32 x, y, key0, key1, key2;"]
    lines += [f"cvt.u32.u64 {name}, ${1 + k};" for k, name in enumerate(words)]
    lines += ["xor.b32 key2, key0, key1;", f"xor.b32 key2, key2, {0x1BD11BDA};"]
    lines += ["add.u32 x, x, key0;", "add.u32 y, y, key1;"]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            lines += ["add.u32 x, x, y;", f"shf.l.wrap.b32 y, y, y, {r};", "xor.b32 y, y, x;"]
        lines += [f"add.u32 x, x, key{(i + 1) % 3};", f"add.u32 y, y, key{(i + 2) % 3};", f"add.u32 y, y, {i + 1};"]
    return "\n".join(["{", *lines, "mov.b64 $0, {x, y};", "}"])


def threefry(key0: Any, key1: Any, x: Any, y: Any) -> Any:
    """Two random words from a key and a counter, 32-bit words in int64; the second is the upper half of the result."""
    return _inline_asm(threefry_code(), key0, key1, x, y)
