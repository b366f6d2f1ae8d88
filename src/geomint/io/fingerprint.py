"""A fingerprint of a system: its traced program and constants, so that another process that states the same system
matches, and one that states another does not.

The program is walked, not printed: variables are numbered in order of appearance, literals and constants enter by their
bytes, and nothing that differs between processes (names of functions, addresses, source lines) enters at all.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from ..system.lagrangian import derive
from ..system.mechanics import Mechanics
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


class _Walker:
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
            for name in sorted(equation.params.keys() - _IGNORED):
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
    walker, stated = _Walker(), system.member(0) if spread == "states and params" else system
    q = jax.ShapeDtypeStruct(q_shape, jax.numpy.asarray(0.0).dtype)
    closed = jax.make_jaxpr(lambda q, p, params: stated.with_params(params).call(function, q, p))(q, q, stated.params)
    walker.program(closed.jaxpr, closed.consts)
    return walker.hash.hexdigest()


def fingerprint(system: Stated, q_shape: tuple[int, ...], spread: str = "one") -> str:
    """sha256 of the energy, the constraint and derivatives by hand as programs, of mass, params (of all members) and symmetries."""
    walker = _Walker()
    q = jax.ShapeDtypeStruct(q_shape, jax.numpy.asarray(0.0).dtype)
    leaves = jax.tree.leaves(system)

    traced = system.member(0) if spread == "states and params" else system
    overrides = getattr(traced, "overrides", {})

    def stated(q: Any, leaves: list) -> Any:
        mech = derive(traced, q_shape)
        kinds = (
            (mech.potential(q), mech.fast_potential(q))
            if isinstance(mech, Mechanics)
            else (mech.lagrangian(q, 2 * q), mech.outer_force(q, 2 * q, 3.0))
        )
        by_hand = [traced.call(f, q) for f in overrides.values()]  # the steps follow these, and not the energy
        return *kinds, mech.constraint(q), mech.momentum_maps(q, q), mech.watched(q, q), by_hand

    closed = jax.make_jaxpr(stated)(q, leaves)
    walker.program(closed.jaxpr, closed.consts)
    for name in overrides:
        walker.text(name)
    for leaf in leaves:
        walker.array(leaf)
    return walker.hash.hexdigest()
