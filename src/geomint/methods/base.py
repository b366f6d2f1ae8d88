"""What a method is: a small frozen module with traits and three functions, and the registry that lists them all.

A method moves a `carry`, a pytree of its own choosing that holds all a restart needs. Most carry (q, p). Fields that
are floats are traced, so a sweep over them does not recompile; mark integers, strings and tables `static`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, PyTree

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.checks import Check, as_python, shown
from ..system.lagrangian import LagrangianSystem
from ..system.mechanics import Mechanics
from ..system.system import Stated

Carry = PyTree


class State(Module):
    """A point of phase space at time t."""

    q: Any
    p: Any
    t: Any = 0.0
    key: Any = None
    extras: dict[str, Array] = eqx.field(default_factory=dict)  # further columns: multipliers, filtered positions, …
    velocity_guess: Any = None  # a velocity near that of p, from which that is found where L is not quadratic in v


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a method claims. Every claim is measured by the property tests; a denied one must measurably fail.

    order:          of convergence in q and p; 0 for event-driven methods, which have no step, and for stochastic ones
    symplectic:     one step preserves dq ∧ dp (on the tangent space of the constraint manifold); with a magnetic field,
                    where p = M v, dq ∧ dp − e (B₁ dq₂ ∧ dq₃ + B₂ dq₃ ∧ dq₁ + B₃ dq₁ ∧ dq₂) of each particle
    volume:         one step preserves the volume of phase space; symplectic methods need not claim it
    symmetric:      Φ(−h) ∘ Φ(h) = identity
    reversible:     flipping p, stepping and flipping again undoes a step
    energy:         "exact", "bounded" (no drift over long times) or None
    momentum_maps:  "all" (of linear actions), "linear" (translations only) or None
    constrained:    integrates systems with a constraint
    free:           integrates systems without one
    tangent:        on a constrained system the momenta shown satisfy G M⁻¹p = 0
    steps:          how many steps the recursion looks back; more than one carries a history
    needs:          what the system must have: "constraint", "fast", "quadratic fast", "hessian", "lie group"
    lagrangian:     moves systems stated by a Lagrangian too
    event_driven:   chooses its own times; dt is the interval between saved points
    takes:          what else a system may have: "time" (in the energy), "moving" (a constraint of t), "force" (of q and
                    t), "velocity" (a force of v too), "damping" (`ALL` of
                    these), "uniform field" (magnetic, stated as numbers), "field" (magnetic, a function)
    conformal:      with the damping D = γM a step scales dq ∧ dp by exp(−γh)
    forces:         evaluations of the force that a step needs, where that number is fixed (small systems may repeat one
                    rather than carry it)
    stochastic:     draws random numbers: what is said above of single steps is then not claimed, and the order is 0
    weak_order:     of stochastic methods: that of the error of averages, at one time and of the invariant distribution
    """

    order: int
    symplectic: bool
    symmetric: bool
    reversible: bool
    energy: str | None
    momentum_maps: str | None
    constrained: bool = False
    free: bool = True
    tangent: bool = True
    steps: int = 1
    needs: tuple[str, ...] = ()
    lagrangian: bool = False
    event_driven: bool = False
    takes: tuple[str, ...] = ()
    conformal: bool = False
    forces: int | None = None
    volume: bool = False
    stochastic: bool = False
    weak_order: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("energy", ("exact", "bounded", None)), ("momentum_maps", ("all", "linear", None))):
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise InputError(f"Traits({name}=...) must be one of {listed}, not {shown(getattr(self, name))}.")

    def without_structure(self) -> Traits:
        """Those of a map made of steps of the method, whose step is no longer one of fixed length: it takes the same
        systems to the same order, and claims nothing of a single step."""
        denied = {"symplectic": False, "symmetric": False, "reversible": False, "volume": False, "conformal": False}
        return dataclasses.replace(self, **denied, steps=1, forces=None)


ALL = ("time", "moving", "force", "velocity", "damping")
TAKEN = {
    "time": "an energy that depends on t",
    "moving": "a constraint that depends on t",
    "force": "forces",
    "velocity": "forces that depend on v",
    "damping": "damping",
    "uniform field": "a uniform magnetic field",
    "field": "a magnetic field that is a function",
}


def demands(system: Stated) -> list[str]:
    """What of `TAKEN` the system has."""
    magnetic = getattr(system, "magnetic_field", None) is not None
    has = {
        "time": any(system.takes(name, "t") for name in ("potential", "fast", "lagrangian")),
        "moving": system.takes("constraint", "t"),
        "force": getattr(system, "force", None) is not None,
        "velocity": system.takes("force", "v"),
        "damping": getattr(system, "damping", None) is not None,
        "uniform field": magnetic and getattr(system, "field_is_uniform", False),
        "field": magnetic and not getattr(system, "field_is_uniform", False),
    }
    return [name for name in TAKEN if has[name]]


NEEDS = {
    "constraint": ("constraint", "state it as System(constraint=g), g(q) -> (m,)"),
    "fast": ("fast", "state the stiff part of the potential as System(fast=W)"),
}


def setting(check: Check, default: Any = dataclasses.MISSING, *, static: bool = True, **more: Any) -> Any:
    """A field of a method, with the check that its value passes when a method is made (see checks.py)."""
    more |= {} if default is dataclasses.MISSING else {"default": default}
    return eqx.field(static=static, converter=as_python, metadata={"check": check}, **more)


class Method(Module):
    """The base of all methods: `traits`, `init`, `step`, `output`. What only some have is in `protocols`."""

    def __check_init__(self):
        """Every setting is checked and becomes a plain Python value: numpy's 0.5 and Python's make the same name."""
        for field in dataclasses.fields(self):
            x, check = getattr(self, field.name), field.metadata.get("check")
            if check is not None:
                value = check(x, field.name, type(self).__name__)
            else:
                value = x.item() if isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0) else x
            if value is not x:
                object.__setattr__(self, field.name, value)
        self.check_settings()

    def check_settings(self) -> None:
        """That the settings fit each other, after each has been checked by itself."""

    @property
    @abc.abstractmethod
    def traits(self) -> Traits:
        """What this method claims."""

    def traits_for(self, system: Stated) -> Traits:
        """What this method claims on a system: of a driven one neither energy nor momentum maps, nor that reversed
        momenta lead back; symplecticity only where it is driven by the time alone, and volume too. With a magnetic
        field reversed momenta do not lead back, and the momentum maps of p = M v change."""
        traits, wanted = self.traits, set(demands(system))
        if wanted & {"uniform field", "field"}:
            traits = dataclasses.replace(traits, reversible=False, momentum_maps=None)
        if not system.driven:
            return traits
        forced = bool(wanted & {"force", "damping"})
        kept = {"symplectic": traits.symplectic and not forced, "volume": traits.volume and not forced}
        return dataclasses.replace(traits, **kept, reversible=False, energy=None, momentum_maps=None)

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        """The carry that represents `state`."""
        return state.q, state.p

    @abc.abstractmethod
    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        """One step of length dt (either sign)."""

    def output(self, mech: Mechanics, carry: Carry) -> State:
        """The state that the carry represents."""
        return State(carry[0], carry[1])

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Functions of the user that this method holds, which its name does not."""
        return ()

    @property
    def complete_name(self) -> bool:
        """Whether `name` makes this method again; not so where it holds functions."""
        return not self.functions

    @property
    def name(self) -> str:
        """An expression that makes this method again, as in Composition(Verlet(), order=8)."""
        parts = []
        for field in dataclasses.fields(self):
            setting = getattr(self, field.name)
            if not field.init or field.metadata.get("found") or setting == field.default:
                continue
            parts.append(f"{field.name}={setting.name if isinstance(setting, Method) else repr(setting)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __repr__(self) -> str:
        return self.name

    def check(self, system: Stated) -> None:
        """Raise an InputError that names what is missing where this method can't integrate the system."""
        if isinstance(system, LagrangianSystem) and not self.traits.lagrangian:
            raise InputError(
                f"{self.name} integrates systems with a constant mass, gm.System; for a gm.LagrangianSystem use "
                "Variational."
            )
        self._check_space(system)
        for need in self.traits.needs:
            if need in NEEDS and getattr(system, NEEDS[need][0], None) is None:
                raise InputError(
                    f"{self.name} needs a system with a {need} part, and this system has none: {NEEDS[need][1]}."
                )
        if system.constraint is not None and not self.traits.constrained:
            stated = isinstance(system, LagrangianSystem)
            wanted = set(demands(system))
            fits = lambda t: (
                t.constrained
                and set(t.needs) <= {"constraint", "hessian"}
                and wanted <= set(t.takes)
                and t.stochastic == self.traits.stochastic
                and (t.lagrangian or not stated)
            )
            able = _first_of_each_class(fits)
            choices = [f"use {', '.join(sorted(able))}"] * bool(able)
            choices += ["turn the constraint into stiff springs with gm.penalize(system, omega)"] * (not stated)
            message = f"{self.name} does not integrate constrained systems, and this system has a constraint"
            raise InputError(f"{message}; {', or '.join(choices)}.")
        if self.traits.event_driven and getattr(system, "auxiliary", None) is not None:
            raise InputError(f"{self.name} does not take systems with neighbour lists; use a method with fixed steps.")
        self._check_driven(system)
        if system.constraint is None and not self.traits.free:
            raise InputError(f"{self.name} integrates constrained systems only, and this system has no constraint.")

    def _check_space(self, system: Stated) -> None:
        """Raise an InputError where q does not live where this method moves it."""
        space, on_groups = getattr(system, "space", None), "lie group" in self.traits.needs
        curved = space is not None and not space.flat
        if space is not None and curved and not on_groups:
            able = {
                type(m).__name__
                for m, _, traits in _described(tuple(_variants.values()))
                if "lie group" in traits.needs
            }
            raise InputError(
                f"{self.name} moves arrays by q + dq, and the positions of this system are on a group "
                f"({space.name}); use {', '.join(sorted(able))}. For a rigid body "
                "RigidBody(...).system(representation='matrix') fits the methods for constraints."
            )
        if on_groups and not curved:
            raise InputError(
                f"{self.name} integrates systems on Lie groups, such as gm.rigid.RigidBody(...).system(), and this "
                "system is on flat space."
            )

    def _check_driven(self, system: Stated) -> None:
        """Raise an InputError where the system has forces, damping or a time that this method does not take."""
        wanted = demands(system)
        missing = [TAKEN[name] for name in wanted if name not in self.traits.takes]
        if not missing:
            return
        of_lagrangian, constrained = isinstance(system, LagrangianSystem), system.constraint is not None
        stochastic = self.traits.stochastic
        able = _first_of_each_class(
            lambda t: (
                set(wanted) <= set(t.takes)
                and t.stochastic == stochastic
                and (t.lagrangian or not of_lagrangian)
                and (t.constrained if constrained else t.free)
            )
        )
        choices = f"use {', '.join(sorted(able))}" if able else "no method takes all that this system has"
        raise InputError(f"{self.name} does not take systems with {' and '.join(missing)}; {choices}.")


_classes: dict[str, type[Method]] = {}
_variants: dict[str, Callable[[], tuple[Method, ...]]] = {}
M = TypeVar("M", bound=Method)


@functools.cache
def _described(makers: tuple[Callable[[], tuple[Method, ...]], ...]) -> tuple[tuple[Method, str, Traits], ...]:
    """Every registered method with its name and traits, which are properties that take long to compute."""
    return tuple((m, m.name, m.traits) for make in makers for m in make())


def _first_of_each_class(fits: Callable[[Traits], bool]) -> list[str]:
    """The names of the registered methods with such traits, one of each class."""
    methods = reversed(_described(tuple(_variants.values())))
    return list({type(m): name for m, name, traits in methods if fits(traits)}.values())


def register(*variants: dict[str, Any]) -> Callable[[type[M]], type[M]]:
    """Class decorator: the method joins the registry, once for each set of arguments (once with none by default).

    Registration alone gives it a name on the command line, a row in the documentation and every property test.
    """

    def join(cls: type[M]) -> type[M]:
        cls.__init__ = checked_keywords(cls.__init__)  # misspelt settings
        _classes[cls.__name__] = cls
        # Made once: an error message asks all of them whether they could do what this method can't.
        _variants[cls.__name__] = functools.cache(lambda: tuple(cls(**arguments) for arguments in variants or ({},)))
        return cls

    return join


def all() -> tuple[Method, ...]:
    """Every registered method in each of its registered variants; `.name` and `.traits` say what it is."""
    return tuple(method for make in _variants.values() for method in make())


def classes() -> dict[str, type[Method]]:
    """The registered classes by name."""
    return dict(_classes)


def as_method(method: Any, name: str = "method") -> Method:
    """The method itself; an error that helps for a class, a name or anything else."""
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        raise InputError(f"{name} is the class {method.__name__}; write {method.__name__}() with its arguments.")
    raise InputError(
        f"{name} must be a method such as gm.Verlet(), not {shown(method)}; gm.methods.all() lists them, "
        "and gm.methods.named('verlet') finds one by name."
    )
