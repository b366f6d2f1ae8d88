"""A module of LLVM instructions compiled for this processor, and object code from disk loaded into memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import platform
from pathlib import Path
from typing import Any

import jax
import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from ...numerics import disk_cache

LIBRARY = (
    "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc",
    "cbrt", "pow", "atan2", "fmod",
)  # fmt: skip
# Optimisation levels of the passes and of the code generator. The tests set lower ones, as they do for XLA, since their
# programs run for milliseconds. No level reorders floating-point operations: all of them give the same numbers.
_LEVELS = [int(level) for level in os.environ.get("GEOMINT_LLVM_LEVELS", "2,3").split(",")]


@functools.cache
def _initialise() -> None:
    """Prepares LLVM for this processor, and tells its linker where the functions of the C library are."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.CDLL(ctypes.util.find_library("m") or None)
    for name in LIBRARY:
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def _target() -> Any:
    """This processor as a target. Each engine needs one of its own, which it frees in the end."""
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=_LEVELS[1]
    )


@functools.cache
def has_fused() -> bool:
    """Whether this processor has a fused multiply-add."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma") or features.get("neon"))


@functools.cache
def widest() -> int:
    """How many doubles a vector register of this processor holds."""
    features = llvm.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx") else 2


def compile_module(module: ir.Module) -> tuple[Any, bytes]:
    """The engine that owns the machine code of a module, to be kept as long as its functions are used; and the object
    code, from which `load_object` makes the same engine again."""
    machine, objects = _target(), []
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    tuning = llvm.create_pipeline_tuning_options(speed_level=_LEVELS[0])
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.set_object_cache(notify_func=lambda _, code: objects.append(code))
    engine.finalize_object()
    return engine, b"".join(objects)


def load_object(code: bytes) -> Any:
    """An engine with this object code: its module is empty, and the object cache answers with the code."""
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(f'target triple = "{llvm.get_default_triple()}"'), _target()
    )
    engine.set_object_cache(getbuffer_func=lambda _: code)
    engine.finalize_object()
    return engine


@functools.cache
def environment() -> bytes:
    """All that machine code depends on besides the program: the processor, and the versions of the code that makes it.
    The sources are part of it, since they change between releases while they are worked on."""
    engines = Path(__file__).parents[1]
    parts = (
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        *(str(version) for version in (llvmlite.__version__, llvm.llvm_version_info, jax.__version__, np.__version__)),
        platform.python_version(),
        str(_LEVELS),
        disk_cache.sources(engines / "scalar", engines / "llvm", engines.parent / "numerics"),
    )
    return disk_cache.key(*parts).encode()
