"""Jaxprs as their readers meet them: what is a program inside a program, and what the versions of JAX write differently."""

from __future__ import annotations

from typing import Any

import jax

INSIDE = {
    "pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat": "jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr",
    "eval_jaxpr": "call_jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr",
}  # fmt: skip


def inside(equation: Any) -> Any:
    """The program that an equation stands for, such as a function under jit; None for an operation."""
    name = equation.primitive.name
    if name in INSIDE:
        return equation.params[INSIDE[name]]
    if name == "call_hi_primitive":  # from JAX 0.11 on: custom_root and others, which know what they expand to
        whole = equation.params["_prim"]
        expanded = lambda *flat: jax.tree.leaves(whole.expand(*jax.tree.unflatten(whole.in_tree, flat)))
        return jax.make_jaxpr(expanded)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in whole.in_avals_flat))
    return None


def scan_sizes(equation: Any) -> tuple[int, int]:
    """How many of the operands of a scan are constants, and how many are carried: what it takes row by row, and what it stacks, has one
    axis more outside than inside."""
    body = equation.params["jaxpr"].jaxpr
    apart = lambda outer, inner: sum(x.aval.ndim != y.aval.ndim for x, y in zip(outer, inner, strict=True))
    carried = len(body.outvars) - apart(equation.outvars, body.outvars)
    return len(body.invars) - apart(equation.invars, body.invars) - carried, carried
