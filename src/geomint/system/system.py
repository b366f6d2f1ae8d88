"""System: what the user states, checked on entry. Nothing here is derived; `Mechanics` does that."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.errors import ConcretizationTypeError, TracerArrayConversionError, TracerBoolConversionError
from jaxtyping import Array, PyTree

from ..errors import GeomintError, InputError, nearest
from .checks import as_array, function, instance, shown
from .symmetries import Symmetry

OVERRIDES = ("gradient", "fast_gradient")


# What user functions are called with, before params.
ROLES = {
    "potential": ("q",), "fast": ("q",), "constraint": ("q",), "overrides": ("q",), "watch": ("q", "p"),
    "lagrangian": ("q", "v"), "force": ("q", "v", "t"),
}  # fmt: skip
# Exceptions of Python, numpy and JAX that a mistake in a user's function causes.
FAILURES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, NotImplementedError, AssertionError)


def _signature(f: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):  # some builtins have none
        return None


def _binds(signature: inspect.Signature, count: int) -> bool:
    """Whether so many positional arguments fit."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def call_function(name: str, function: Any, *arguments: Any, params: PyTree = None) -> Any:
    """function(*arguments), with params behind where there are any; a mistake in it is reported by its name."""
    try:
        return function(*arguments) if params is None else function(*arguments, params)
    except FAILURES as error:
        if isinstance(error, GeomintError) and not isinstance(function, Function):
            raise  # a constraint of geomint names itself
        raise InputError(_explained(name, function, arguments, params is not None, error)) from error


def _explained(name: str, function: Any, arguments: tuple[Any, ...], has_params: bool, error: Exception) -> str:
    """Why a call of a user's function failed: by its signature, or by what happened inside."""
    roles = ROLES.get(name.partition("[")[0], {1: ("q",), 2: ("q", "p")}.get(len(arguments), ("q", "v", "t")))
    called = (*roles, "params") if has_params else roles
    signature = _signature(getattr(function, "function", function))
    if isinstance(error, TypeError) and signature is not None and not _binds(signature, len(called)):
        count = f"{len(called)} argument{'s' * (len(called) > 1)}"
        message = f"{name} is called with {count}, ({', '.join(called)}), but its signature is {signature}: "
        if has_params and _binds(signature, len(roles)):
            return message + "the system has params, which every function takes as its last argument. Add it."
        if not has_params and _binds(signature, len(roles) + 1):
            alone = ", ".join(roles)
            return (
                message + f"the system has no params. Write a function of ({alone}), or give params=... to the system."
            )
        return message + f"write a function of ({', '.join(called)})."
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, (TracerArrayConversionError, TracerBoolConversionError, ConcretizationTypeError)):
        return (
            f"{name} uses numpy, math, float() or `if` on its arguments; write it with jax.numpy "
            f"(jnp.sin for np.sin, jnp.where for if). JAX says: {first}"
        )
    shapes = ", ".join(f"{role} of shape {np.shape(x)}" for role, x in zip(roles, arguments, strict=False))
    return f"{name} raised {type(error).__name__} for {shapes}: {first}"


class Function(eqx.Module):
    """A plain Python function as a part of a pytree: compile-time, compared by identity."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @property
    def curvature(self) -> Callable | None:
        """Bounds of its second derivative along a line, where the function offers them (see EnergyStepping)."""
        return getattr(self.function, "curvature", None)


def as_function(name: str, f: Any) -> Any:
    if f is None:
        return None
    function(f, name)
    # A callable that is itself a pytree (an Equinox module, jax.tree_util.Partial) keeps its arrays traced.
    is_tree = isinstance(f, (eqx.Module, jax.tree_util.Partial))
    return f if is_tree else Function(f)


def as_floats(tree: PyTree) -> PyTree:
    """float32 numbers are widened (exactly) to the working precision; integers and everything else stay."""

    def widen(x: Any) -> Any:
        is_float = isinstance(x, (np.ndarray, np.generic, jax.Array)) and jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.asarray(x, float) if is_float else x

    return jax.tree.map(widen, tree)


class Stated(eqx.Module):
    """What every kind of system has: perhaps a constraint, symmetries to watch, and parameters."""

    constraint: Any
    symmetries: tuple[Symmetry, ...]
    params: PyTree
    watch: dict[str, Any]
    origin: str | None = eqx.field(static=True)  # the model expression that made it, for archives

    @property
    def named_symmetries(self) -> dict[str, Symmetry]:
        """The symmetries by name; a second one of the same name is numbered."""
        named: dict[str, Symmetry] = {}
        for symmetry in self.symmetries:
            name, k = symmetry.name, 2
            while name in named:
                name, k = f"{symmetry.name} {k}", k + 1
            named[name] = symmetry
        return named

    def call(self, function: Any, *arguments: Any, name: str = "") -> Any:
        """Call a user's function, with params if the system has them. `name`: for errors, if the function is not a part
        of the system."""
        return call_function(name or self._name_of(function), function, *arguments, params=self.params)

    def _name_of(self, function: Any) -> str:
        for name in ("potential", "fast", "constraint", "lagrangian", "force"):
            if getattr(self, name, None) is function:
                return name
        for group in ("watch", "overrides"):
            for name, f in getattr(self, group, {}).items():
                if f is function:
                    return f"{group}[{name!r}]"
        return "a function of the system"

    def with_params(self, params: PyTree) -> Self:
        """The same system with other parameters."""
        return eqx.tree_at(lambda s: s.params, self, as_floats(params), is_leaf=lambda x: x is None)

    def member(self, i: int) -> Self:
        """The system of the i-th member of an ensemble whose params lead with the member axis."""
        return self.with_params(jax.tree.map(lambda x: x[i], self.params))

    def with_origin(self, origin: str | None) -> Self:
        """The same system, remembering the expression that made it."""
        return dataclasses.replace(self, origin=origin)


class System(Stated):
    """A mechanical system with energy H(q, p) = ½ pᵀM⁻¹p + V(q) + W(q), on the manifold g(q) = 0 where one is given.

    potential:   V(q) -> scalar, or V(q, params). q has any shape.
    mass:        a number, an array that broadcasts to q, or a symmetric positive definite matrix (q.size, q.size).
                 Where an array fits several axes of q, as (2,) does for two bodies in the plane, write mass[:, None]
                 or mass[None, :].
    constraint:  g(q) -> (m,), holonomic.
    fast:        W(q), the stiff part of the potential; the whole potential is V + W.
    symmetries:  their momentum maps are watched in every run.
    params:      a pytree handed to potential, fast and constraint as second argument; traced, so that a sweep
                 over it does not recompile and a gradient reaches it.
    watch:       {name: f(q, p)}, further quantities saved at every saved point, as run.watched[name]; they may be NaN
                 or infinite.
    overrides:   derivatives by hand, {"gradient": ∇V, "fast_gradient": ∇W}; compared with automatic differentiation
                 at q0 when a run starts (of an ensemble, at that of its first member). Inside jax.jit, jax.grad or
                 jax.vmap there are no numbers to compare, and they are taken as they are.
    """

    potential: Any
    mass: Array
    fast: Any
    overrides: dict[str, Any]

    def __init__(
        self,
        potential: Callable | None = None,
        mass: Any = 1.0,
        constraint: Callable | None = None,
        fast: Callable | None = None,
        symmetries: Sequence[Symmetry] | Symmetry = (),
        params: PyTree = None,
        overrides: Mapping[str, Callable] | None = None,
        watch: Mapping[str, Callable] | None = None,
        origin: str | None = None,
    ):
        self.potential = as_function("potential", potential)
        self.constraint = as_function("constraint", constraint)
        self.fast = as_function("fast", fast)
        self.mass = _checked_mass(mass)
        self.symmetries = checked_symmetries(symmetries)
        self.params = checked_params(params)
        self.watch = checked_watch(watch)
        overrides = checked_mapping("overrides", overrides)
        for name in overrides:
            if name not in OVERRIDES:
                raise InputError(f"overrides has no entry {shown(name)}." + nearest(str(name), OVERRIDES))
        given = sorted((name, f) for name, f in overrides.items() if f is not None)
        self.overrides = {name: as_function(f"overrides[{name!r}]", f) for name, f in given}
        self.origin = checked_origin(origin)


def checked_system(system: Any, kind: type | tuple[type, ...] = (), name: str = "system", callee: str = "") -> Any:
    """That it is a system, of the kind that the callee takes."""
    hint = ""
    if isinstance(getattr(system, "system", None), Stated):
        hint = "; it is a model: pass model.system, with model.q0 and model.v0"
    must = "a gm.System" if kind is System else "a gm.System or a gm.LagrangianSystem"
    return instance(system, name, callee, kinds=kind or Stated, must=must, hint=hint)


def checked_origin(origin: Any) -> str | None:
    if origin is not None and not isinstance(origin, str):
        raise InputError(f"origin must be the text of a model or None, not {shown(origin)}.")
    return None if origin is None else str(origin)


def checked_mapping(name: str, x: Any) -> Mapping[Any, Any]:
    if x is not None and not isinstance(x, Mapping):
        raise InputError(f"{name} must be a mapping from names to functions, not {type(x).__name__}.")
    return x or {}


def checked_params(params: PyTree) -> PyTree:
    """Params are leaves of traced programs: numbers and arrays of numbers, in any pytree."""
    for leaf in jax.tree.leaves(params):
        if isinstance(leaf, Tracer):
            continue
        try:
            kind = jax.eval_shape(lambda x: x, leaf).dtype
            fits = any(jnp.issubdtype(kind, k) for k in (np.number, np.bool_, jax.dtypes.extended))
        except Exception:  # whatever JAX says of an object that is no array
            fits = False
        if not fits:
            raise InputError(
                "params must be numbers or arrays of numbers, in any nesting of dicts, lists and tuples, "
                f"not {shown(leaf)}."
            )
    return as_floats(params)


def _checked_mass(mass: Any) -> Array:
    if not isinstance(mass, Tracer):
        try:
            mass = as_array(mass, "mass")
        except InputError as error:
            if "not finite" in str(error):
                raise
            raise InputError(f"mass must be a number, an array that broadcasts to q, or a matrix: {error}") from None
        if mass.size == 0:
            raise InputError(
                f"mass must be a number, an array that broadcasts to q, or a matrix, not of shape {mass.shape}."
            )
    mass = jnp.asarray(mass, float)
    if isinstance(mass, Tracer):
        return mass
    square = mass.ndim == 2 and mass.shape[0] == mass.shape[1]
    if not square and not np.all(np.asarray(mass) > 0):
        raise InputError(f"mass must be positive; its smallest entry is {np.min(mass):g}.")
    return mass


def checked_symmetries(symmetries: Any) -> tuple[Symmetry, ...]:
    listed = symmetries if isinstance(symmetries, (list, tuple)) else (symmetries,)
    for s in listed:
        if not isinstance(s, Symmetry):
            is_class = isinstance(s, type) and issubclass(s, Symmetry)
            hint = f"{s.__name__}()" if is_class else "gm.Translation(), gm.Rotation(...) or gm.Generator(A)"
            raise InputError(f"symmetries takes instances of symmetries, such as {hint}; got {shown(s)}.")
    return tuple(listed)


def checked_watch(watch: Mapping[str, Callable] | None) -> dict[str, Any]:
    watch = checked_mapping("watch", watch)
    for name, f in watch.items():
        if not isinstance(name, str) or "/" in name or "\0" in name or not name:
            raise InputError(f"watch: a name is a text without '/', not {shown(name)}.")
        function(f, f"watch[{name!r}]", of="(q, p)")
    return {name: as_function(f"watch[{name!r}]", f) for name, f in sorted(watch.items())}


def mass_is_matrix(mass_shape: tuple[int, ...], q_shape: tuple[int, ...]) -> bool:
    """Whether a mass of this shape is a matrix on the flattened q (it is, unless it broadcasts to q)."""
    try:
        return np.broadcast_shapes(mass_shape, q_shape) != tuple(q_shape)
    except ValueError:
        return True


def check_mass_is_unambiguous(mass: Any, q_shape: tuple[int, ...]) -> None:
    """Refuse a mass that fits q in two ways: [1, 3] for two bodies in the plane may be meant for the bodies or for the
    axes, and broadcasting would silently take the last axes. A mass with equal entries is accepted: both readings
    agree."""
    shape, k = tuple(mass.shape), mass.ndim
    fitting = [first for first in range(len(q_shape) - k + 1) if q_shape[first : first + k] == shape]
    if k == 0 or 1 in shape or len(fitting) < 2:
        return
    if not isinstance(mass, Tracer) and np.all(np.asarray(mass) == np.ravel(mass)[0]):
        return
    readings = []
    for first in fitting:
        places = ", ".join(":" if first <= d < first + k else "None" for d in range(len(q_shape)))
        meant = (
            " (one for each body)"
            if first == 0
            else " (one for each coordinate axis)"
            if first + k == len(q_shape)
            else ""
        )
        readings.append(
            f"mass[{places}] for axis {first}{meant}"
            if k == 1
            else f"mass[{places}] for axes {first} to {first + k - 1}{meant}"
        )
    raise InputError(
        f"mass of shape {shape} can be read in {len(fitting)} ways for q0 of shape {q_shape}; write "
        f"{', or '.join(readings)}."
    )


def check_mass(system: System, q_shape: tuple[int, ...]) -> None:
    """Now that the shape of q is known: the mass broadcasts to it, or is a symmetric positive definite matrix."""
    shape = system.mass.shape
    n = int(np.prod(q_shape))
    check_mass_is_unambiguous(system.mass, tuple(q_shape))
    if mass_is_matrix(shape, q_shape) and shape != (n, n):
        raise InputError(
            f"mass has shape {shape}, but q0 has shape {tuple(q_shape)}: give a number, an array that broadcasts "
            f"to {tuple(q_shape)}, or a matrix ({n}, {n})."
        )
    if len(shape) < 2 or shape[0] != shape[1] or isinstance(system.mass, Tracer):
        return
    mass = np.asarray(system.mass)
    if not mass_is_matrix(shape, q_shape):
        if not np.all(mass > 0):
            raise InputError(f"mass must be positive; its smallest entry is {mass.min():g}.")
        return
    if np.max(np.abs(mass - mass.T)) > 1e-12 * np.max(np.abs(mass)):
        raise InputError(
            f"mass must be symmetric; mass and its transpose differ by {np.max(np.abs(mass - mass.T)):.2g}."
        )
    smallest = np.linalg.eigvalsh(mass)[0]
    if smallest <= 0:
        raise InputError(f"mass must be positive definite; its smallest eigenvalue is {smallest:.3g}.")
