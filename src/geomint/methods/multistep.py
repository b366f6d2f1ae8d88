"""Symmetric multistep methods for M q̈ = f(q) − G(q)ᵀλ, 0 = g(q), of order 4, 6, 8, …: one force and one constraint
solve a step.

In the momentum form (10) of Console, Hairer and Lubich, with ρ(ζ) = (ζ − 1)²ρ̃(ζ) and S_n = Σ ρ̃_j p_{n+j+½}:

    S_{n+1} = S_n + h Σ_{j=1}^{k−1} β_j F_{n+j},      F_j = f(q_j) − G(q_j)ᵀλ_j
    p_{n+k−½} from S_{n+1},      q_{n+k} = q_{n+k−1} + h M⁻¹p_{n+k−½},      g(q_{n+k}) = 0 for λ_{n+k−1}.

S and q are sums of small increments over the whole run and are compensated; the form in positions alone (7) loses three
digits more. Momenta at the grid points are differences (11), projected: p_n = Σ δ̂_j p_{n+j+½} − G(q_n)ᵀν. They need
momenta up to k/2 steps ahead, so the recursion runs k/2 steps ahead of its output.

The method is not symplectic, but it nearly keeps energy and momentum maps over times h^{−r−1}, if (12) the roots of ρ
lie on the unit circle and are simple but for 1, and (13) so do the non-zero roots of σ. Both are checked exactly on
construction.

Starting values: k/2 steps forward and k/2 backward from the initial data by an eighth-order composition (of Rattle with
constraints, of Verlet without), with the multipliers of the exact motion. Their errors never decay.

References: Console, Hairer, Lubich, Numer. Math. 124 (2013) 517; Hairer, Lubich, Numer. Math. 97 (2004) 699.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..manifold import ConstraintSolver
from ..numerics.compensated import Compensated, value
from ..numerics.module import Module
from ..system.checks import flag, plain_scalar, refused, vector, whole
from ..system.mechanics import Mechanics
from . import protocols
from .base import Carry, State, Traits, register
from .composition import Composition
from .constrained import NOT_SOLVED, Constrained
from .multistep_coefficients import RECOMMENDED, Coefficients, construct, defects, interval_of_periodicity, smallest_gap
from .protocols import HasHistory
from .rattle import Rattle
from .splitting import Verlet

EXTRAPOLATION = {3: (1, -3, 3), 4: (-1, 4, -6, 4)}  # of the newest values, to the next one


@functools.lru_cache(maxsize=256)
def _constructed(a: tuple[float, ...]) -> tuple[Coefficients, tuple[str, ...]]:
    coefficients = construct(a)
    return coefficients, tuple(defects(coefficients))


def _shifted(old: Array, new: Array) -> Array:
    """The history one step on: without its first row, and with a new last one.

    Not a concatenation: some jaxlibs miscompile one with sums inside a jit that is not ours (see compilation.py)."""
    return jax.lax.dynamic_update_index_in_dim(jnp.roll(old, -1, axis=0), new, len(old) - 1, 0)


class History(Module):
    """Everything from step n − k/2 to n + k/2, for the state shown at n; the newest last."""

    positions: Any  # q_{n−k/2} … q_{n+k/2−1}
    momenta: Any  # p_{n−k/2+½} … p_{n+k/2−½}
    forces: Any  # F_{n−k/2+1} … F_{n+k/2−1}
    front: Compensated  # q_{n+k/2}
    summed: Compensated  # S of the newest momenta
    shown: Any  # the momentum shown at the very start, which is the given one
    step: Any
    status: Any


@register({"order": 4}, {"order": 6}, {"order": 8})
class SymmetricMultistep(Constrained, HasHistory):
    """The symmetric multistep method of the given order, or with the given a = (a₁, …), ρ = (ζ − 1)² Π(ζ² + 2a_jζ + 1).

    `periodicity` is the Ω up to which hω is stable, `smallest_gap` the smallest angle between parasitic roots of ρ
    and σ: small ones make the energy noisy. Coefficients that violate (12) or (13) are refused with the reason, unless
    unsafe=True admits them.
    """

    order: int = eqx.field(static=True, default=8)
    a: tuple[float, ...] | None = eqx.field(static=True, default=None)
    unsafe: bool = eqx.field(static=True, default=False)

    def __init__(
        self,
        order: int | None = None,
        a: Sequence[float] | float | None = None,
        unsafe: bool = False,
        *,
        solver: str = "auto",
        relaxation: float = 1.0,
        constraint_solver: ConstraintSolver | None = None,
    ):
        callee, unsafe = "SymmetricMultistep", flag(unsafe, "unsafe", "SymmetricMultistep")
        if a is None:
            order = 8 if order is None else order
            if plain_scalar(order) not in RECOMMENDED:
                raise refused(
                    order,
                    f"one of {', '.join(map(str, RECOMMENDED))}",
                    "order",
                    callee,
                    " Other orders need the coefficients a=(…).",
                )
            order = int(plain_scalar(order))
        else:
            a = vector((a,) if plain_scalar(a) is not None else a, "a", callee)
            order = None if order is None else whole(order, "order", callee)
            if order not in (None, 2 * len(a) + 2):
                raise InputError(
                    f"SymmetricMultistep(order={order}, a={a}): {len(a)} coefficients make a method of order "
                    f"{2 * len(a) + 2}."
                )
            order = 2 * len(a) + 2
            a = None if a == RECOMMENDED.get(order) else a
        self.order, self.a, self.unsafe = order, a, unsafe
        self.solver, self.relaxation, self.constraint_solver = solver, relaxation, constraint_solver
        reasons = _constructed(self._a)[1]
        if reasons and not unsafe:
            raise InputError(
                f"SymmetricMultistep(a={self._a}) would not be stable on constrained systems: "
                f"{'; '.join(r.rstrip('.') for r in reasons)}. unsafe=True admits it."
            )

    @property
    def _a(self) -> tuple[float, ...]:
        return self.a if self.a is not None else RECOMMENDED[self.order]

    @property
    def coefficients(self) -> Coefficients:
        """ρ, σ, δ̂ and what follows from them, exact."""
        return _constructed(self._a)[0]

    @property
    def periodicity(self) -> float:
        """Ω: the method is stable on a harmonic oscillator for hω < Ω."""
        return interval_of_periodicity(self.coefficients)

    @property
    def smallest_gap(self) -> float:
        """The smallest angle between roots of ρ and σ on the unit circle."""
        return smallest_gap(self.coefficients)

    @property
    def traits(self) -> Traits:
        bounded = "bounded" if not _constructed(self._a)[1] else None
        return Traits(
            self.order,
            symplectic=False,
            symmetric=True,
            reversible=False,
            energy=bounded,
            momentum_maps="linear",
            constrained=True,
            steps=self.order,
            forces=1,
        )

    # --- start ------------------------------------------------------------------------------------------------------
    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        half = self.order // 2
        q, p = value(state.q), value(state.p)
        free = mech.system.constraint is None
        base = Verlet(form="drift") if free else Rattle(constraint_solver=self.solver_for(mech, q))
        starter = Composition(base, order=8)
        start = State(Compensated.of(q), Compensated.of(p), state.t, state.key)

        def walk(h: Array) -> tuple[Compensated, Array, Array]:
            """q, p and the status after 1, …, k/2 steps of length h."""

            def step(carry: Carry, _: None) -> tuple[Carry, tuple[Compensated, Array, Array]]:
                carry = starter.step(mech, carry, h)
                failed, shown = protocols.status(starter, carry), starter.output(mech, carry)
                return carry, (shown.q, value(shown.p), jnp.zeros((), int) if failed is None else failed)

            return jax.lax.scan(step, starter.init(mech, start, h), None, length=half)[1]

        # A loop over both directions, so that the starting method is traced and compiled once.
        both = jax.lax.map(walk, jnp.stack([dt, -dt]))
        (q_after, p_after, failed_after), (q_before, p_before, failed_before) = (
            jax.tree.map(lambda x, i=i: x[i], both) for i in range(2)
        )
        joined = lambda before, middle, after: jnp.concatenate([before[::-1], middle[None], after])  # −k/2 … k/2
        positions = joined(q_before.value, q, q_after.value)
        lost = joined(q_before.lost, jnp.zeros_like(q), q_after.lost)
        velocities = joined(p_before, p, p_after)
        # Division by h amplifies rounding errors, and errors of the starting values never decay: the differences
        # include the compensation terms.
        momenta = jax.vmap(mech.momentum)(jnp.diff(positions, axis=0) + jnp.diff(lost, axis=0)) / dt
        if free:
            forces = jax.vmap(mech.force)(positions)
        else:
            solver = self.solver_for(mech, q)
            multipliers = jax.vmap(lambda x, y: solver.multipliers(mech, x, y))(positions, velocities)
            forces = jax.vmap(lambda x, y: mech.force(x) - mech.constraint_force(x, y))(positions, multipliers)
        status = jnp.maximum(failed_after[-1], failed_before[-1])
        summed = Compensated.of(self._weighted(self.coefficients.rho_tilde, momenta[1:]))
        return History(
            positions[:-1],
            momenta,
            forces[1:-1],
            Compensated(positions[-1], lost[-1]),
            summed,
            p,
            jnp.zeros((), int),
            status,
        )

    @staticmethod
    def _weighted(weights: Any, arrays: Array) -> Array:
        """Σ w_j x_j."""
        weights = jnp.asarray([float(w) for w in weights], arrays.dtype)
        return jnp.tensordot(weights, arrays, axes=1) if len(weights) else jnp.zeros(arrays.shape[1:], arrays.dtype)

    # --- one step ---------------------------------------------------------------------------------------------------
    def step(self, mech: Mechanics, carry: History, dt: Array) -> History:
        sigma, rho_tilde = self.coefficients.sigma, self.coefficients.rho_tilde
        here, last = value(carry.front), float(sigma[-2])
        # The sum S without the newest multiplier, and the part of S that belongs to earlier momenta.
        known = self._weighted(sigma[1:-2], carry.forces[1:]) + last * (force := mech.force(here))
        summed = carry.summed + dt * known
        others = self._weighted(rho_tilde[:-1], carry.momenta[2:])
        status = carry.status
        if mech.system.constraint is not None:
            solver = self.solver_for(mech, here)
            # F = f − Gᵀλ is smooth along the motion: its extrapolation predicts the constraint force.
            newest = carry.forces[-4:]
            expected = self._weighted(EXTRAPOLATION[len(newest)], newest)
            guess = solver.guess_from_normal_impulse(mech, here, (force - expected) * (last * dt))
            placed = solver.place(mech, here, value(summed) - others, dt, guess)
            summed, force = summed - placed.normal_impulse, force - placed.normal_impulse * (1 / (last * dt))
            status = jnp.where((status == 0) & ~placed.converged, NOT_SOLVED, status)
        p = value(summed) - others
        front = carry.front + mech.displacement(p, dt)
        if mech.system.constraint is not None:
            front = front + self.solver_for(mech, here).polish(value(front))
        return History(
            _shifted(carry.positions, here),
            _shifted(carry.momenta, p),
            _shifted(carry.forces, force),
            front,
            summed,
            carry.shown,
            carry.step + 1,
            status,
        )

    # --- what is shown ----------------------------------------------------------------------------------------------
    def output(self, mech: Mechanics, carry: History) -> State:
        q = carry.positions[self.order // 2]
        p = self._weighted(self.coefficients.delta_hat, carry.momenta)
        if mech.system.constraint is not None:
            p = self.tangent(mech, q, p)
        p = jnp.where(carry.step == 0, carry.shown, p)
        return State(q, p) if mech.system.constraint is None else self.state_with_multipliers(mech, q, p)

    def reverse(self, carry: History) -> History:
        positions = jnp.concatenate([carry.positions, carry.front.value[None]])[::-1]
        momenta = carry.momenta[::-1]
        summed = Compensated.of(self._weighted(self.coefficients.rho_tilde, momenta[1:]))
        return History(
            positions[:-1],
            momenta,
            carry.forces[::-1],
            Compensated.of(positions[-1]),
            summed,
            carry.shown,
            carry.step,
            carry.status,
        )

    def status(self, carry: History) -> Array:
        return carry.status
