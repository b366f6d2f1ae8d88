"""A fingerprint of a system: a hash of its traced functions and constants. Two processes that state the same system get
the same fingerprint, and other systems get other ones.

The hash does not use the printed jaxpr. Variables are numbered in order of appearance, literals and constants enter by
their bytes, and what differs between processes (names of functions, addresses, source lines) is left out.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from ..numerics.linalg.sparse_matrix import SparseMatrix
from ..system.lagrangian import derive
from ..system.mechanics import Mechanics
from ..system.spaces import space_of, velocity_shape
from ..system.system import Stated

# Parameters of primitives that describe the source rather than the computation.
_IGNORED = {
    "name",
    "name_stack",
    "debug_info",
    "jvp_jaxpr_fun",
    "jvp_jaxpr_thunk",
    "fwd_jaxpr_thunk",
    "bwd",
    "callback",
    "out_trees",
    "donated_invars",
    "inline",
    "keep_unused",
    "ctx_mesh",
    "compiler_options_kvs",
    "symbolic_zeros",
}


class _Hasher:
    """Feeds a jaxpr into sha256, equation by equation."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def text(self, *parts: Any) -> None:
        self.hash.update("\x1f".join(str(p) for p in parts).encode() + b"\x1e")

    def array(self, x: Any) -> None:
        x = np.asarray(x)
        self.text("array", x.dtype, x.shape)
        self.hash.update(np.ascontiguousarray(x).tobytes())

    def parameter(self, name: str, x: Any) -> None:
        self.text(name)
        if hasattr(x, "jaxpr") and hasattr(x, "consts"):
            self.program(x.jaxpr, x.consts)
        elif hasattr(x, "eqns"):
            self.program(x, ())
        elif isinstance(x, (tuple, list)):
            for i, y in enumerate(x):
                self.parameter(str(i), y)
        elif isinstance(x, (np.ndarray, np.generic, jax.Array)):
            self.array(x)
        elif callable(x):
            self.text("function")
        else:
            self.text(x)

    def program(self, jaxpr: Any, constants: Any) -> None:
        numbers: dict[Any, int] = {}
        number = lambda v: numbers.setdefault(v, len(numbers))
        for v in (*jaxpr.constvars, *jaxpr.invars):
            self.text(number(v), v.aval.str_short())
        for c in constants:
            self.array(c)
        for equation in jaxpr.eqns:
            self.text(equation.primitive.name)
            self.atoms(equation.invars, number)
            expanded = getattr(equation.primitive, "expanded", None)  # see numerics/interpreter.py
            if expanded is not None:  # its parameters have functions, whose addresses differ between processes
                self.parameter("expanded", expanded(equation))
            for name in sorted(equation.params.keys() - _IGNORED) if expanded is None else ():
                self.parameter(name, equation.params[name])
            self.text(*(number(v) for v in equation.outvars))
        self.atoms(jaxpr.outvars, number)

    def atoms(self, atoms: Any, number: Any) -> None:
        for atom in atoms:
            if hasattr(atom, "val"):
                self.array(atom.val)
            else:
                self.text(number(atom))


def of_function(function: Any, system: Stated, q_shape: tuple[int, ...], spread: str = "one") -> str:
    """sha256 of a function of (q, p), or (q, p, params), as a program."""
    hasher, stated = _Hasher(), system.member(0) if spread == "states and params" else system
    q, p = (jax.ShapeDtypeStruct(n, jax.numpy.result_type(float)) for n in (q_shape, velocity_shape(system, q_shape)))
    called = lambda q, p, params: stated.with_params(params).call(function, q, p, name="reduce")
    closed = jax.make_jaxpr(called)(q, p, stated.params)
    hasher.program(closed.jaxpr, closed.consts)
    return hasher.hash.hexdigest()


def fingerprint(system: Stated, q_shape: tuple[int, ...], spread: str = "one") -> str:
    """sha256 of a system: the programs of its energy, configuration space, constraint, momentum maps, watched
    quantities and derivatives by hand, and the numbers in mass, params (of all members) and symmetries."""
    hasher = _Hasher()
    q, p = (jax.ShapeDtypeStruct(n, jax.numpy.result_type(float)) for n in (q_shape, velocity_shape(system, q_shape)))
    leaves, space = jax.tree.leaves(system), space_of(system)

    traced = system.member(0) if spread == "states and params" else system
    overrides = getattr(traced, "overrides", {})

    def stated(q: Any, leaves: list, p: Any = None) -> Any:
        p = q if p is None else p
        mech = derive(traced, q_shape, 3.0)
        kinds = (
            (mech.potential(q), mech.fast_potential(q))
            if isinstance(mech, Mechanics)
            else (mech.lagrangian(q, 2 * q), mech.outer_force(q, 2 * q))
        )
        if isinstance(mech, Mechanics) and isinstance(mech.system.mass, SparseMatrix):
            kinds = (*kinds, mech.momentum(q))  # which shows the pattern; its numbers are among the leaves
        if isinstance(mech, Mechanics) and mech.driven:
            kinds = (*kinds, mech.outer_force(q, 2 * q), mech.drag(q))
        if getattr(traced, "magnetic_field", None) is not None:
            kinds = (*kinds, mech.magnetic_field(q))
        # Methods use these in place of derivatives of the energy.
        by_hand = [traced.call(f, q, t=mech.time) for f in overrides.values()]
        watched = mech.watched(q, p, 0.0 if mech.time is None else mech.time)
        if not space.flat:
            kinds = (*kinds, space.increment(q, p))
        return *kinds, mech.constraint(q), mech.momentum_maps(q, p), watched, by_hand

    closed = jax.make_jaxpr(stated)(q, leaves, *(() if space.flat else (p,)))
    hasher.program(closed.jaxpr, closed.consts)
    for name in overrides:
        hasher.text(name)
    for leaf in leaves:
        hasher.array(leaf)
    return hasher.hash.hexdigest()
