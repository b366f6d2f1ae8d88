"""Compiling with XLA: `jit`, with the options under which this version of jaxlib compiles correctly on the CPU.

From jaxlib 0.7 to 0.10.1 the fusion emitters of XLA's CPU compiler miscompile some fused concatenations where the
processor has AVX-512:

    f(old, s) = concatenate([old[1:], (s − tensordot(w, old[2:], 1))[None]]),      jit(vmap(f)) of old (4, 4, 5)

writes a wrong third member. Without these emitters the same programs are right and as fast (the FPU loop was
measured). They are switched off twice, since neither measure covers everything:

- `jit` passes the compiler option with each of geomint's own programs. JAX accepts it at the top level only, neither
  inside another jit nor inside a derivative.
- importing geomint adds the flag to XLA_FLAGS. That covers what the user compiles (jax.jit, jax.vmap and jax.grad
  over gm.simulate) and loops that run outside jit, but only if JAX has not started its backend before: it reads the
  variable once. Where it had, `warn_of_outer_jit` says so.

jaxlib 0.11 is right and refuses both the option and the flag, so the version decides. 0.10.2 is excluded in
pyproject.toml.

On a GPU, `jit` has whole loops compiled to CUDA graphs. Otherwise the host launches each kernel, and for each round of
a loop copies the condition and waits for it: 10 to 15 µs a step for a loop over steps whose number is not known to the
compiler, and as much for each iteration inside a step. XLA leaves such loops to the host where the driver has no
conditional nodes (before CUDA 12.4). A setting of this flag in XLA_FLAGS wins, and so does a file of flags.

Importing geomint also switches JAX's persistent compilation cache on (see disk_cache), unless the user has set
jax_compilation_cache_dir.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.core import trace_state_clean
from jax.core import Tracer

from . import disk_cache

FLAG = "xla_cpu_use_fusion_emitters"
GRAPH_FLAG = "xla_gpu_enable_command_buffer"
GRAPHS = {GRAPH_FLAG: "FUSION,CUSTOM_CALL,CUBLAS,CUBLASLT,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"}
_VERSION = tuple(int(part) for part in re.findall(r"\d+", version("jaxlib"))[:3])
MISCOMPILES = (0, 7) <= _VERSION < (0, 10, 2)


def _stated(flags: str) -> bool | None:
    """The value of the flag in XLA_FLAGS as XLA reads it, None where it is not set. The last occurrence counts. 0 and
    false (upper or lower case) mean off; 1, true and the bare flag mean on; XLA aborts on anything else. Text that does
    not begin with a dash is the name of a file with flags."""
    if flags.strip() and not flags.strip().startswith("-"):
        try:
            flags = Path(flags).read_text()
        except (OSError, ValueError):
            return None
    values = re.findall(rf"(?<!\S)--{FLAG}(?:=(\"[^\"]*\"|'[^']*'|\S*))?(?!\S)", flags)
    return values[-1].strip("\"'").lower() not in ("0", "false") if values else None


def _flag_taken() -> bool:
    """Switch the emitters off for the whole process, if JAX will still read XLA_FLAGS. Flags that the user has set
    stay as they are."""
    from jax._src.xla_bridge import backends_are_initialized  # only for versions in which it is known to exist

    flags = os.environ.get("XLA_FLAGS", "")
    stated = _stated(flags)
    if stated is not None:
        return not stated
    if backends_are_initialized() or (flags.strip() and not flags.strip().startswith("-")):
        return False  # too late, or a file of flags, to whose name nothing can be added
    os.environ["XLA_FLAGS"] = f"{flags} --{FLAG}=false".strip()
    return True


USER_PROGRAMS_SAFE = _flag_taken() if MISCOMPILES else True  # whether programs that the user compiles are right, too


disk_cache.share_with_jax(jax.config)


def options(backend: str) -> dict[str, Any]:
    """The compiler options of geomint's programs on "cpu" or "gpu". Those for GPUs were tried with jaxlib 0.11."""
    if backend == "cpu":
        return {FLAG: False} if MISCOMPILES else {}
    flags = os.environ.get("XLA_FLAGS", "").strip()
    own = GRAPH_FLAG in flags or (flags and not flags.startswith("-"))  # flags of the user, or a file of them
    return GRAPHS if backend == "gpu" and _VERSION >= (0, 11) and not own else {}


def jit(function: Callable | None = None, **settings: Any) -> Any:
    """jax.jit with the options above, where JAX accepts them: every program of geomint goes through it. As a decorator
    with or without settings."""
    if function is None:
        return functools.partial(jit, **settings)
    nested = jax.jit(function, **settings)

    @functools.cache  # at the first call, since this starts the backend
    def outermost() -> Any:
        chosen = options(jax.default_backend())
        return jax.jit(function, compiler_options=chosen, **settings) if chosen else nested

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return (outermost() if trace_state_clean() else nested)(*arguments, **named)

    for name in ("trace", "lower"):  # to inspect the program, or to lower for another platform
        setattr(call, name, getattr(nested, name))
    return call


def concrete_evaluation() -> contextlib.AbstractContextManager:
    """What is computed of known arrays inside is known, even where JAX traces a run. Only there is that asked of JAX:
    it would also evaluate the constants of every program traced inside one by one, and compile a program for each."""
    traced = isinstance(jax.lax.neg(np.float32(0)), Tracer)
    return jax.ensure_compile_time_eval() if traced else contextlib.nullcontext()


@functools.cache
def _avx512() -> bool:
    import llvmlite.binding

    return bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))


@functools.cache
def warn_of_outer_jit() -> None:
    """Warn once that a program of the user's around gm.simulate may be miscompiled."""
    if USER_PROGRAMS_SAFE or jax.default_backend() != "cpu" or not _avx512():
        return
    warnings.warn(
        f"jax {jax.__version__} can miscompile jax.jit, jax.vmap and jax.grad over gm.simulate on this processor "
        f"(AVX-512). Import geomint before anything else uses JAX, or set XLA_FLAGS=--{FLAG}=false, or install "
        "jax 0.11: each of them gives right results.",
        stacklevel=4,
    )
