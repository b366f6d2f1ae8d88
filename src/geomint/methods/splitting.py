"""Splittings H = T(p) + U(q): kicks p ← p − b h ∇U(q) and drifts q ← q + a h M⁻¹p in turn.

Both are exact flows, so every such method is symplectic, explicit, and keeps the momentum maps of linear actions; a
palindromic sequence is symmetric. This one file holds symplectic Euler, Verlet and the multi-stage splittings.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.checks import one_of, vector
from ..system.mechanics import Mechanics
from .base import Carry, Method, State, Traits, register, setting
from .order_conditions import splitting_defect
from .protocols import HasScalarForm

Stages = tuple[tuple[str, float], ...]
Move = Callable[[Carry, Array], Carry]  # of a carry, by a length

# Up to this many coordinates a sequence that begins and ends with a kick evaluates its force anew instead of carrying
# it: XLA then fuses the whole step into one loop (FPU, 6 coordinates: .021 µs a step against .14 with the force carried).
SMALL = 16


def in_turn(stages: Stages, kick: Move, drift: Move, carry: Carry, dt: Array, cheap_drift: bool) -> Carry:
    """All stages of a step, one after another.

    Pairs of stages in a loop: XLA makes one small kernel of the body of a loop, and cuts straight-line code of many
    stages into dozens of calls. An odd last stage joins the loop with a drift of length zero, where drifts cost nothing.
    """
    first, second = (kick, drift) if stages[0][0] == "kick" else (drift, kick)
    pair = lambda moving, c: (second(first(moving, c[0] * dt), c[1] * dt), None)
    lengths = [c for _, c in stages]
    if len(lengths) > 3 and len(lengths) % 2 and cheap_drift and first is kick:
        lengths.append(0.0)
    whole = len(lengths) // 2
    coefficients = jnp.asarray(lengths, dt.dtype)
    if whole == 1:
        carry, _ = pair(carry, coefficients)
    else:
        carry, _ = jax.lax.scan(pair, carry, coefficients[: 2 * whole].reshape(whole, 2))
    return first(carry, coefficients[-1] * dt) if len(lengths) % 2 else carry


class OnManifold(Method):
    """A sequence of kicks and drifts that Rattle can hold on a manifold. The drifts may have another mass than M."""

    @property
    @abc.abstractmethod
    def stages(self) -> Stages:
        """("kick" or "drift", its share of the step), in order."""

    def drift_mass(self, mech: Mechanics, q: Array, dt: Array) -> Any:
        """Factors of the mass of drifts in steps of length dt, where it is not M."""
        return None

    def drift_mechanics(self, mech: Mechanics, mass: Any) -> Any:
        """What drifts see: the mass and the constraint."""
        return mech

    def prepared_on_manifold(self, starts: Sequence[tuple[Any, Any]], caller: str) -> OnManifold:
        """The method with what it finds before a run on a manifold; itself where the mass of drifts is M."""
        return self

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return np.zeros(len(q), bool)


class KickDrift(OnManifold, HasScalarForm):
    """Any sequence of kicks and drifts."""

    small: int = eqx.field(static=True, default=SMALL, kw_only=True, metadata={"found": True})  # see above

    def for_scalar_code(self, many: bool) -> Method:
        return dataclasses.replace(self, small=0)

    def _carries_force(self, q: Array) -> bool:
        return self.stages[0][0] == self.stages[-1][0] == "kick" and q.size > self.small

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return (state.q, state.p, mech.force(state.q)) if self._carries_force(state.q) else (state.q, state.p)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        kick, drift = (functools.partial(act, mech) for act in (self._kick, self._drift))
        return in_turn(self.stages, kick, drift, carry, dt, cheap_drift=len(carry) == 2)

    @staticmethod
    def _kick(mech: Mechanics, carry: Carry, h: Array) -> Carry:
        q, p, *force = carry
        return q, p + h * (force[0] if force else mech.force(q)), *force

    @staticmethod
    def _drift(mech: Mechanics, carry: Carry, h: Array) -> Carry:
        q, p, *force = carry
        q = q + mech.displacement(p, h)
        return (q, p, mech.force(q)) if force else (q, p)


def _forces(stages: Stages) -> int:
    kicks = sum(kind == "kick" for kind, _ in stages)
    return kicks - (stages[0][0] == stages[-1][0] == "kick")


def _traits(stages: Stages, order: int) -> Traits:
    symmetric = stages == stages[::-1]
    return Traits(
        order,
        symplectic=True,
        symmetric=symmetric,
        reversible=symmetric,
        energy="bounded",
        momentum_maps="all",
        forces=_forces(stages),
    )


@register({}, {"first": "drift"})
class SymplecticEuler(KickDrift):
    """p₁ = p₀ − h∇U(q₀), q₁ = q₀ + hM⁻¹p₁ (`first="kick"`), or its adjoint (`first="drift"`). Order 1.

    Reference: Hairer, Lubich, Wanner, section I.1.2.
    """

    first: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        both = (("kick", 1.0), ("drift", 1.0))
        return both if self.first == "kick" else both[::-1]

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 1)


@register({}, {"form": "drift"})
class Verlet(KickDrift):
    """Störmer–Verlet (leapfrog): half kick, drift, half kick (`form="kick"`), or half drift, kick, half drift
    (`form="drift"`). Order 2, symmetric. Stable for hω < 2.

    Reference: Hairer, Lubich, Wanner, Acta Numerica 12 (2003) 399–450.
    """

    form: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        outer, inner = ("kick", "drift") if self.form == "kick" else ("drift", "kick")
        return ((outer, 0.5), (inner, 1.0), (outer, 0.5))

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 2)


def _palindrome(kinds: str, half: tuple[float, ...]) -> Stages:
    """A symmetric sequence from its first half; the middle and the neighbour of the middle are fixed by consistency.

    `kinds` names the first letter, "kick" or "drift"; `half` lists the free coefficients in turn, for the first kind and
    the other alternately.
    """
    first, second = (kinds, "drift" if kinds == "kick" else "kick")
    names = (first, second)
    outer = [(names[i % 2], c) for i, c in enumerate(half)]
    n = len(half)
    left = {first: 1.0, second: 1.0}
    for kind, c in outer:
        left[kind] -= 2 * c
    middle = names[(n + 1) % 2]
    neighbour = names[n % 2]
    outer.append((neighbour, left[neighbour] / 2))
    return (*outer, (middle, left[middle]), *reversed(outer))


def _min_error_two_stage() -> float:
    """b = ½ − z/12 + 1/(6z), z = (2√326 + 36)^⅓: the two-stage splitting of smallest error (Omelyan, Mryglod, Folk 2002)."""
    z = (2 * 326**0.5 + 36) ** (1 / 3)
    return 0.5 - z / 12 + 1 / (6 * z)


def three_stage(a: float) -> tuple[float, float]:
    """(b, a) on the curve 6ab − 2a − b + ½ = 0, where the three-stage family has no [A,[A,B]]-type error at leading order
    in the linear problem (Blanes, Casas, Sanz-Serna 2014)."""
    return (2 * a - 0.5) / (6 * a - 1), a


def _forest_ruth() -> tuple[float, float]:
    theta = 1 / (2 - 2 ** (1 / 3))
    return theta / 2, theta


def _in_turn(first: str, coefficients: tuple[float, ...]) -> Stages:
    """Kicks and drifts alternately, beginning with `first`."""
    second = "drift" if first == "kick" else "kick"
    return tuple(((first, second)[i % 2], c) for i, c in enumerate(coefficients))


_MCLACHLAN_ATELA = (
    0.1344961992774310892, 0.5153528374311229364, -0.2248198030794208058, -0.085782019412973646,
    0.7563200005156682911, 0.4415830236164665242, 0.3340036032863214255, 0.1288461583653841854,
)  # fmt: skip
_CALVO_SANZ_SERNA = (
    0.0617588581356263250, 0.2051776615422863900, 0.3389780265536433550, 0.4030212816042145870, 0.6147913071755775662,
    -0.1209208763389140700, -0.1405480146593733802, 0.5127219331924130930, 0.1250198227945261338,
)  # fmt: skip


def _tables() -> dict[str, tuple[Stages, int, bool, str]]:
    """name -> (stages, order, whether it needs a quadratic kinetic energy and a potential of q alone, source)."""
    two = lambda b, kind="kick": _palindrome(kind, (b,))
    return {
        "two-stage": (
            two(0.211781),
            2,
            False,
            "b = .211781, best expected energy error for steps up to the limit: Blanes, Casas, Sanz-Serna, SIAM J. Sci. Comput. 36 (2014)",
        ),
        "two-stage-minimum-error": (
            two(_min_error_two_stage()),
            2,
            False,
            "b = .193183…: McLachlan 1995; Omelyan, Mryglod, Folk 2002",
        ),
        "two-stage-linear": (
            two((3 - 3**0.5) / 6),
            2,
            False,
            "b = (3−√3)/6 = .211325, fourth order on linear problems up to a processor: Predescu et al. 2012",
        ),
        "two-stage-drift": (two(_min_error_two_stage(), "drift"), 2, False, "the drift form with .193183…"),
        "three-stage": (
            _palindrome("kick", three_stage(0.29619504261126)),
            2,
            False,
            "a = .296195…, b = .118880…: Blanes, Casas, Sanz-Serna 2014",
        ),
        "three-stage-minimum-error": (
            _palindrome("kick", three_stage(0.290485609075128726)),
            2,
            False,
            "a = .290486…, b = .108991…: Fernández-Pendás, Akhmatskaya, Sanz-Serna 2016",
        ),
        "forest-ruth": (_palindrome("drift", _forest_ruth()), 4, False, "Forest, Ruth 1990: three Verlet steps"),
        "pefrl": (
            _palindrome("drift", (0.1786178958448091, 0.5 * (1 - 2 * -0.2123418310626054), -0.06626458266981849)),
            4,
            False,
            "Omelyan, Mryglod, Folk, Comput. Phys. Commun. 146 (2002)",
        ),
        "blanes-moan": (
            _palindrome(
                "drift",
                (0.0792036964311957, 0.209515106613362, 0.353172906049774, -0.143851773179818, -0.0420650803577195),
            ),
            4,
            False,
            "6 stages: Blanes, Moan, J. Comput. Appl. Math. 142 (2002), S6",
        ),
        "blanes-moan-nystrom": (
            _palindrome(
                "kick",
                (0.0829844064174052, 0.245298957184271, 0.396309801498368, 0.604872665711080, -0.0390563049223486),
            ),
            4,
            True,
            "6 stages: the same paper, RKN6b",
        ),
        "mclachlan-atela": (
            _in_turn("kick", _MCLACHLAN_ATELA),
            4,
            True,
            "4 stages: McLachlan, Atela, Nonlinearity 5 (1992)",
        ),
        "calvo-sanz-serna": (
            _in_turn("kick", _CALVO_SANZ_SERNA),
            4,
            True,
            "5 kicks, the last one kept for the next step: Calvo, Sanz-Serna, SIAM J. Sci. Comput. 14 (1993)",
        ),
    }


TABLES = _tables()

for _name, (_stages, _order, _nystrom, _source) in TABLES.items():
    _defect = splitting_defect(_stages, _order, _nystrom)
    assert _defect < 5e-14, f"splitting {_name} violates an order condition by {_defect:.1e}"


@register(*({"scheme": name} for name in TABLES))
class Splitting(KickDrift):
    """A multi-stage splitting by the name of its scheme; `gm.methods.TABLES` lists the schemes with their sources.

    Two and three stages of order 2 buy accuracy and stability for sampling and molecular dynamics; the fourth-order
    ones include Runge–Kutta–Nyström splittings, which use that the kinetic energy is quadratic.
    """

    scheme: str = setting(one_of(*TABLES), "two-stage")

    @property
    def stages(self) -> Stages:
        return TABLES[self.scheme][0]

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, TABLES[self.scheme][1])


@register({"half": (0.22,)}, {"half": (0.11, 0.29)})
class MultiStage(KickDrift):
    """A palindromic splitting of order 2 by its own coefficients: `half` lists the first ones, for kick and drift in turn; the
    middle follows from consistency. half=(b,) has two stages, half=(b, a) three. `gm.adaptive_splitting` finds good ones."""

    half: tuple[float, ...] = setting(vector, (0.22,))
    first: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        return _palindrome(self.first, self.half)

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 2)
