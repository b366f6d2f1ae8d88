"""System: what the user states, checked on entry. Nothing here is derived; `Mechanics` does that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from ..errors import InputError, nearest
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from .auxiliary import Auxiliary
from .calls import AtTime, Function, as_now, call_function, takes
from .checks import as_array, function, instance, shown
from .damping import checked_damping, first_entry, is_uniform
from .labels import Labels, checked_labels
from .magnetic import UniformField, checked_charge
from .mass import checked_mass
from .spaces import Space, checked_space
from .symmetries import Symmetry

OVERRIDES = ("gradient", "fast_gradient")
FUNCTIONS = ("potential", "fast", "constraint", "lagrangian", "force", "magnetic_field")


def as_function(name: str, f: Any) -> Any:
    if f is None:
        return None
    function(f, name)
    # A callable that is itself a pytree (an Equinox module, jax.tree_util.Partial) keeps its arrays traced; so does a
    # method of one.
    if isinstance(f, MethodType) and isinstance(f.__self__, eqx.Module):
        f = jax.tree_util.Partial(f.__func__, f.__self__)
    is_tree = isinstance(f, (eqx.Module, jax.tree_util.Partial))
    return f if is_tree else Function.of(f)


def as_floats(tree: PyTree) -> PyTree:
    """float32 numbers are widened (exactly) to the working precision; integers and everything else stay."""

    def widen(x: Any) -> Any:
        is_float = isinstance(x, (np.ndarray, np.generic, jax.Array)) and jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.asarray(x, float) if is_float else x

    return jax.tree.map(widen, tree)


class Stated(Module):
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

    def call(
        self,
        function: Any,
        q: Any,
        p: Any = None,
        *,
        v: Any = None,
        t: Any = None,
        auxiliary: Any = None,
        name: str = "",
    ) -> Any:
        """Call a user's function with those of the arguments that it takes (see calls.py), and with params. `name`: for
        errors, if the function is not a part of the system."""
        given = {
            key: x for key, x in (("q", q), ("v", v), ("p", p), ("t", t), ("auxiliary", auxiliary)) if x is not None
        }
        return call_function(name or self._name_of(function), function, given, self.params)

    def takes(self, name: str, argument: str) -> bool:
        """Whether the stated function of that name has the argument: takes("potential", "t")."""
        return takes(name, getattr(self, name, None), argument, self.params is not None)

    @property
    def depends_on_time(self) -> bool:
        """Whether a function that moves the system has the argument t."""
        return any(self.takes(name, "t") for name in FUNCTIONS)

    @property
    def driven(self) -> bool:
        """Whether the energy changes along the exact motion: by a force, by damping, or by an explicit time."""
        stated = (getattr(self, name, None) for name in ("force", "damping"))
        return self.depends_on_time or any(x is not None for x in stated)

    def _name_of(self, function: Any) -> str:
        for name in FUNCTIONS:
            if getattr(self, name, None) is function:
                return name
        for group in ("watch", "overrides"):
            for name, f in getattr(self, group, {}).items():
                if f is function:
                    return f"{group}[{name!r}]"
        return "a function of the system"

    def at_time(self, t: Any) -> Self:
        """The system with its time held: for what is found out before a run, such as the structure of matrices."""
        names = [name for name in FUNCTIONS if self.takes(name, "t")]
        if not names:
            return self
        return self._replaced(**{name: AtTime(getattr(self, name), jnp.asarray(t, float)) for name in names})

    def as_now(self) -> Self:
        """The system, where what its functions read from outside has changed as a new one (see captured.py)."""
        now: dict[str, Any] = {name: as_now(getattr(self, name)) for name in FUNCTIONS if hasattr(self, name)}
        for group in ("watch", "overrides"):
            if hasattr(self, group):
                now[group] = {name: as_now(f) for name, f in getattr(self, group).items()}  # in the same order
        return self._replaced(**now)

    def _replaced(self, **fields: Any) -> Self:
        """A copy with other fields, which are not checked again."""
        other = copy.copy(self)
        for name, x in fields.items():
            object.__setattr__(other, name, x)
        return other

    def with_params(self, params: PyTree) -> Self:
        """The same system with other parameters."""
        return eqx.tree_at(lambda s: s.params, self, as_floats(params), is_leaf=lambda x: x is None)

    def member(self, i: int) -> Self:
        """The system of the i-th member of an ensemble whose params lead with the member axis."""
        return self.with_params(jax.tree.map(lambda x: x[i], self.params))

    def with_origin(self, origin: str | None) -> Self:
        """The same system, remembering the expression that made it."""
        return self._replaced(origin=origin)


class System(Stated):
    """A mechanical system with energy H(q, p) = ½ pᵀM⁻¹p + V(q) + W(q), on the manifold g(q) = 0 where one is given:

        M q̈ = −∇(V + W) + f(q, q̇, t) − D q̇ + e q̇ × B(q, t) − Gᵀλ,      g(q) = 0.

    Functions take q first and, by name, any of t and params (forces and watched functions v too): V(q), V(q, t),
    V(q, params), g(q, t), f(q, v, t, params). An argument of another name is params.

    potential:   V(q) -> scalar. q has any shape.
    mass:        a number, an array that broadcasts to q, or a symmetric positive definite matrix (q.size, q.size). A
                 scipy.sparse matrix has that size, or that of the first axis of q: a mass matrix of n nodes acts on
                 each component of q (n, d). An array (n, d, d) has a block for each body of q (n, d).
                 Where an array fits several axes of q, as (2,) does for two bodies in the plane, write mass[:, None]
                 or mass[None, :].
    constraint:  g(q) -> (m,), holonomic; g(q, t) moves.
    fast:        W(q), the stiff part of the potential; the whole potential is V + W.
    symmetries:  their momentum maps are watched in every run.
    params:      a pytree handed to the functions that take it; traced, so that a sweep over it does not recompile and
                 a gradient reaches it.
    watch:       {name: f(q, p)}, further quantities saved at every saved point, as run.watched[name]; they may be NaN
                 or infinite.
    force:       f(q, v, t) -> an array like q: friction, motors, controls. Its work is run.work.
    damping:     D of the drag −D v: a number, an array that broadcasts to q, or a symmetric matrix; for a sparse mass a
                 multiple of it, gamma * mass. Splittings take it by its exact flow. With D = γM they are conformally
                 symplectic: a step of length h scales dq ∧ dp by exp(−γh).
    magnetic_field:  B(q, t) -> a vector at each particle, for q of shape (n, 3) or (3,); for motion in the plane,
                 (n, 2) or (2,), its component B_z. A constant array is a uniform field. p is the kinetic momentum M v,
                 not the canonical one. For Boris, MagneticSplitting and RungeKutta4.
    charge:      e, a number or one for each particle; in the force of the magnetic field only, since V is an energy.
    auxiliary:   the neighbour lists of a gm.md.PairPotential, made again along a run when particles have moved. The
                 functions potential, fast and overrides receive them as the argument `auxiliary`; outside a run it is
                 None.
    atoms:       gm.md.Atoms, which names the coordinates for files and for the analysis; it changes no number.
    space:       where q lives: gm.rigid.SO3(), gm.rigid.Poses() or another configuration space; None is flat. On a
                 group v and p are trivialised (of rotations, the angular ones in the body), and mass belongs to them.
                 Such a system has a potential V(q) or V(q, params), symmetries and watched quantities, and is moved by
                 the methods on groups.
    overrides:   derivatives by hand, {"gradient": ∇V, "fast_gradient": ∇W}; compared with automatic differentiation
                 at q0 when a run starts (of an ensemble, at that of its first member). Inside jax.jit, jax.grad or
                 jax.vmap there are no numbers to compare, and they are taken as they are.
    """

    potential: Any
    mass: Any  # an array, or a SparseMatrix
    fast: Any
    overrides: dict[str, Any]
    force: Any
    damping: Any
    magnetic_field: Any
    charge: Array | None
    auxiliary: Auxiliary | None
    atoms: Labels | None = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    uniform_damping: bool = eqx.field(static=True, init=False)  # whether D = γM is known

    @checked_keywords
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
        force: Callable | None = None,
        damping: Any = None,
        magnetic_field: Any = None,
        charge: Any = 1.0,
        auxiliary: Auxiliary | None = None,
        atoms: Labels | None = None,
        space: Space | None = None,
    ):
        self.potential = as_function("potential", potential)
        self.constraint = as_function("constraint", constraint)
        self.fast = as_function("fast", fast)
        self.mass = checked_mass(mass)
        self.force = as_function("force", force)
        self.damping = checked_damping(damping)
        self.uniform_damping = is_uniform(self.damping, self.mass)
        self.magnetic_field = as_magnetic_field(magnetic_field)
        self.charge = checked_charge(charge, magnetic_field is not None)
        self.symmetries = checked_symmetries(symmetries)
        self.params = checked_params(params)
        self.watch = checked_watch(watch)
        overrides = checked_mapping("overrides", overrides)
        for name in overrides:
            if name not in OVERRIDES:
                raise InputError(f"overrides has no entry {shown(name)}." + nearest(str(name), OVERRIDES))
        given = sorted((name, f) for name, f in overrides.items() if f is not None)
        self.overrides = {name: as_function(f"overrides[{name!r}]", f) for name, f in given}
        self.auxiliary = checked_auxiliary(auxiliary)
        functions = {"potential": self.potential, "fast": self.fast, **self.overrides}
        if auxiliary is not None and not any(self.takes_auxiliary(*named) for named in functions.items()):
            raise InputError(
                "auxiliary is given, but neither potential nor fast has an argument `auxiliary`: pass it on to the "
                "PairPotential, as in potential=lambda q, auxiliary: pair(q, auxiliary) + external(q)."
            )
        labels = checked_labels(atoms)
        self.atoms = labels if labels is None or self.box is None else labels.in_box(self.box)
        self.space = checked_space(space)
        self._check_space()
        self.origin = checked_origin(origin)

    def _check_space(self) -> None:
        """That a system on a group has no part which is defined for flat spaces only."""
        names = ("constraint", "fast", "force", "damping", "magnetic_field", "auxiliary", "atoms")
        given = [name for name in names if getattr(self, name) is not None] + ["overrides"] * bool(self.overrides)
        if self.takes("potential", "t"):
            given.append("a potential of t")
        if given and not self.space.flat:
            raise InputError(
                f"System(space={self.space.name}()): systems on groups do not take {', '.join(given)} yet."
            )

    def takes_auxiliary(self, name: str, function: Any) -> bool:
        return takes(name, function, "auxiliary", self.params is not None)

    @property
    def box(self) -> Any:
        """The periodic box of the potential or of its neighbour lists, a gm.md.Box; None in free space."""
        boxes = (getattr(x, "box", None) for x in (self.potential, self.auxiliary))
        return next((box for box in boxes if hasattr(box, "nearest")), None)

    @property
    def field_is_uniform(self) -> bool:
        """Whether the magnetic field is stated as numbers."""
        return isinstance(self.magnetic_field, UniformField)

    @property
    def damping_rate(self) -> Array:
        """γ of a damping D = γM; 0 without damping."""
        damping = 0.0 if self.damping is None else self.damping
        return first_entry(damping) / first_entry(self.mass)


def checked_auxiliary(auxiliary: Any) -> Auxiliary | None:
    if auxiliary is not None and not isinstance(auxiliary, Auxiliary):
        raise InputError(
            f"auxiliary must be neighbour lists, such as pair.neighbours(skin=0.3) of a gm.md.PairPotential, or None, "
            f"not {shown(auxiliary)}."
        )
    return auxiliary


def as_magnetic_field(field: Any) -> Any:
    """A function, or numbers: a uniform field."""
    if field is None or callable(field):
        return as_function("magnetic_field", field)
    return UniformField(jnp.asarray(field if isinstance(field, Tracer) else as_array(field, "magnetic_field"), float))


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
