"""Systems with fast and slow parts: find the fast part, record its energies, choose a splitting for its frequency.

References: Hairer, Lubich, Wanner, chapter XIII; Blanes, Casas, Sanz-Serna, SIAM J. Sci. Comput. 36 (2014) A1556;
Fernández-Pendás, Akhmatskaya, Sanz-Serna, J. Comput. Phys. 327 (2016) 434.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..methods.filtered import highest_frequency
from ..methods.oscillatory import is_quadratic
from ..methods.splitting import KickDrift, MultiStage
from ..methods.splitting_tables import three_stage
from ..numerics.compilation import jit
from ..system.calls import call_function
from ..system.checks import as_array, choice, number, positive
from ..system.mass import check_mass
from ..system.mechanics import Mechanics
from ..system.system import System, checked_system

DENSE = 1000  # coordinates up to which a Hessian is diagonalised


class Quadratic:
    """½(q − a)ᵀK(q − a), as a part of a potential."""

    def __init__(self, matrix: np.ndarray, centre: np.ndarray, sign: float = 1.0, plus: Any = None):
        self.matrix, self.centre, self.sign, self.plus = matrix, centre, sign, plus

    def __call__(self, q: Array, params: Any = None) -> Array:
        x = (q - self.centre).ravel()
        energy = self.sign * 0.5 * jnp.sum(x * (self.matrix @ x))
        return energy if self.plus is None else energy + self.plus(q, params)


def _checked(name: str, system: Any, q0: Any, most: int | None = DENSE) -> np.ndarray:
    checked_system(system, System, callee=name)
    q = as_array(q0, "q0")
    if not q.size:
        raise InputError(f"{name}(q0=...): q0 has shape {q.shape}, and no coordinate in it.")
    check_mass(system, q.shape)
    if system.takes("potential", "t") or system.takes("fast", "t"):
        raise InputError(f"{name}(system=...): the potential must not depend on t.")
    energy = float(Mechanics(system, q.shape).potential(jnp.asarray(q)))
    if not np.isfinite(energy):
        raise InputError(f"{name}(q0=...): the potential at q0 is {energy}.")
    if most is not None and q.size > most:
        raise InputError(f"{name} diagonalises a Hessian, here of {q.size} coordinates, more than {most}.")
    return q


def _modes(mech: Mechanics, product: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """ω² and modes φ (columns) of K φ = ω² M φ, φᵀMφ = 1, K by its products."""
    from scipy.linalg import eigh

    n = int(np.prod(shape))
    flat = lambda f: np.asarray(jax.vmap(lambda v: f(v.reshape(shape)).ravel())(jnp.eye(n)))
    stiffness, mass = flat(product), flat(mech.momentum)
    return eigh(0.5 * (stiffness + stiffness.T), mass)


def split_quadratic(system: System, q0: Any, ratio: float = 3.0) -> System:
    """The same system with its stiffest modes at a minimum of the potential stated as `fast`.

    A minimum is searched from q0. The frequencies there are sorted, and the widest gap between neighbours divides
    slow from fast. fast = ½(q − q*)ᵀK(q − q*) with K the fast part of the Hessian, potential = V − fast. If the
    widest gap is a factor of less than `ratio`, that is an error.
    """
    from scipy.optimize import minimize

    q = _checked("split_quadratic", system, q0)
    ratio = number(ratio, "ratio", "split_quadratic", above=1.0)
    mech = Mechanics(system, q.shape)
    energy = jit(lambda x: mech.potential(x.reshape(q.shape)))
    slope, bend = jit(jax.grad(energy)), jit(jax.hessian(energy))
    found = minimize(energy, q.ravel(), jac=slope, hess=bend, method="trust-exact", options={"gtol": 1e-9})
    rest = jnp.asarray(found.x).reshape(q.shape)
    if not np.max(np.abs(found.jac)) < 1e-5 * max(1.0, float(np.max(np.abs(slope(jnp.asarray(q.ravel())))))):
        raise InputError(
            f"split_quadratic found no minimum of the potential from q0 ({found.message}); give a q0 nearer to one."
        )
    squares, modes = _modes(mech, lambda v: mech.hessian_product(rest, v), q.shape)
    omega = np.sqrt(np.maximum(squares, 0.0))
    floor = max(1e-6 * omega[-1], 1e-300)
    steps = omega[1:] / np.maximum(omega[:-1], floor)
    steps[omega[1:] <= floor] = 0.0
    if not len(steps) or steps.max() < ratio:
        widest = steps.max() if len(steps) else 1.0
        raise InputError(
            f"split_quadratic: no gap between the frequencies {omega[0]:.3g} … {omega[-1]:.3g} at the minimum; "
            f"the widest is a factor {widest:.3g}, less than ratio = {ratio:g}."
        )
    fast = np.arange(len(omega)) > int(np.argmax(steps))
    mass = np.asarray(jax.vmap(lambda v: mech.momentum(v.reshape(q.shape)).ravel())(jnp.eye(q.size)))
    weighted = mass @ modes[:, fast]
    stiffness = (weighted * squares[fast]) @ weighted.T
    stiffness = np.where(np.abs(stiffness) > 1e-13 * np.abs(stiffness).max(), stiffness, 0.0)
    parts = {name: getattr(system, name) for name in ("potential", "fast") if getattr(system, name) is not None}
    whole = lambda x, params: sum(call_function(name, f, {"q": x}, params) for name, f in parts.items())
    centre = np.asarray(rest)
    return System(
        Quadratic(stiffness, centre, -1.0, whole),
        mass=system.mass,
        constraint=system.constraint,
        fast=Quadratic(stiffness, centre),
        symmetries=system.symmetries,
        params=system.params,
        watch=dict(system.watch),
        force=system.force,
        damping=system.damping,
        magnetic_field=system.magnetic_field,
        charge=system.charge,
        atoms=system.atoms,
    )


def watch_oscillations(system: System, q0: Any) -> System:
    """The same system, which records its oscillatory energies: run.watched["oscillatory energies"] are

        I_j = ½(π_j² + ω_j² ξ_j²),

    one for each mode of the quadratic fast part with ω_j > 0, and run.watched["oscillatory energy"] is their sum, an
    adiabatic invariant.
    """
    q = _checked("watch_oscillations", system, q0)
    if system.fast is None or not is_quadratic([(system, q)]):
        raise InputError("watch_oscillations needs a quadratic fast part; gm.split_quadratic(system, q0) proposes one.")
    mech = Mechanics(system, q.shape)
    zero = jnp.zeros(q.shape)
    squares, modes = _modes(mech, lambda v: mech.fast_hessian_product(zero, v), q.shape)
    fast = squares > 1e-12 * np.max(np.abs(squares))
    if not np.any(fast):
        raise InputError("watch_oscillations: no mode of the fast part oscillates; its stiffness is nowhere positive.")
    squares, modes = squares[fast], modes[:, fast]
    rest = -modes @ ((modes.T @ np.asarray(mech.fast_gradient(zero)).ravel()) / squares)

    def energies(q: Array, p: Array, *_: Any) -> Array:
        x = jnp.matmul(modes.T, jnp.ravel(mech.momentum(q - rest.reshape(q.shape))))
        return 0.5 * (jnp.matmul(modes.T, p.ravel()) ** 2 + squares * x**2)

    both = {"oscillatory energies": energies, "oscillatory energy": lambda q, p, *_: jnp.sum(energies(q, p))}
    return dataclasses.replace(system, watch=System(watch={**system.watch, **both}).watch)


# --- a splitting for the frequency ----------------------------------------------------------------------------------
def expected_energy_error(stages: tuple[tuple[str, float], ...], x: np.ndarray) -> np.ndarray:
    """ρ(x) = (B + C)²/(2(1 − A²)) for one step with hω = x, whose matrix is (A B; C A).

    The expected energy error of a harmonic oscillator in thermal equilibrium is at most ρ, in units of the temperature.
    ρ is infinite where the step is unstable.
    """
    x = np.asarray(x, float)
    a, b, c, d = np.ones_like(x), np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for kind, share in stages:
        if kind == "kick":
            c, d = c - share * x * a, d - share * x * b
        else:
            a, b = a + share * x * c, b + share * x * d
    half_trace = 0.5 * (a + d)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = (b + c) ** 2 / (2 * (1 - half_trace**2))
    return np.where(np.abs(half_trace) < 1, rho, np.inf)


def adaptive_splitting(system: System, q0: Any, dt: float, stages: int = 2) -> KickDrift:
    """The splitting of two or three stages with the smallest expected energy error for steps of length dt.

    With x = dt·ω, ω the highest frequency of the linearised motion at q0, the free coefficient minimises the largest ρ
    on (0, x]. For dt → 0 this gives the splitting of smallest error, near the stability limit two or three steps of
    Verlet.
    """
    from scipy.optimize import minimize_scalar

    dt, stages = positive(dt, "dt", "adaptive_splitting"), choice(stages, "stages", "adaptive_splitting", (2, 3))
    q = _checked("adaptive_splitting", system, q0, most=None)
    omega = float(
        highest_frequency(system, jnp.asarray(q, float), jnp.asarray(np.random.default_rng(0).normal(size=q.shape)))
    )
    x, limit = dt * omega, 2.0 * stages
    if not x > 0:
        message = f"the linearised motion at q0 does not oscillate (ω = {omega:g}): there is no frequency to adapt to"
        raise InputError(f"adaptive_splitting(q0=...): {message}.")
    if not x < limit:
        raise InputError(
            f"adaptive_splitting: hω = {x:.3g} for the fastest motion at q0, beyond {limit:g}, up to which a splitting "
            f"of {stages} stages can be stable. Take dt < {limit / omega:.3g}."
        )
    grid = np.linspace(x / 400, x, 400)
    make = (
        (lambda c: MultiStage((float(c),)))
        if stages == 2
        else (lambda c: MultiStage(tuple(map(float, three_stage(c)))))
    )
    low, high = (0.19, 0.25) if stages == 2 else (0.28, 1 / 3)
    worst = lambda c: float(np.max(expected_energy_error(make(c).stages, grid)))
    # There are several local minima: take the best point of a scan, then refine it.
    scan = np.linspace(low, high, 241)
    errors = np.array([worst(c) for c in scan])
    best = int(np.argmin(errors))
    between = (scan[max(0, best - 1)], scan[min(len(scan) - 1, best + 1)])
    polished: Any = minimize_scalar(worst, bounds=between, method="bounded", options={"xatol": 1e-9})
    chosen = polished.x if polished.fun <= errors[best] else scan[best]
    if not np.isfinite(worst(chosen)):
        raise InputError(
            f"adaptive_splitting: no stable splitting of {stages} stages for hω = {x:.3g}; take a smaller dt."
        )
    return make(chosen)
