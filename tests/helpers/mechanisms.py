"""Mechanisms whose constraints lose rank or are redundant, with exact or independent motions."""

from __future__ import annotations

import functools
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import geomint as gm

GRAVITY = 9.81


class Mechanism(NamedTuple):
    system: gm.System
    q0: np.ndarray
    v0: np.ndarray


@functools.cache  # one system, so that its programs are compiled once
def four_bars(n: int) -> Mechanism:
    """IFToMM's N-four-bar: n windows of 2n + 1 uniform bars of length 1 and mass 1. The cranks start upright, the tops
    at speed 1.

    All cranks stay parallel; in the two horizontal positions all bars are in line, and G loses rank.
    """
    feet = np.stack([np.arange(n + 1.0), np.zeros(n + 1)], axis=1)
    mass = np.zeros((n + 1, n + 1))
    for i in range(n + 1):
        mass[i, i] += 1 / 3  # a crank turning about its foot
    for i in range(n):
        mass[i : i + 2, i : i + 2] += np.array([[2, 1], [1, 2]]) / 6  # a bar between two tops
    weight = GRAVITY * (np.full(n + 1, 0.5) + np.concatenate([[0.5], np.ones(n - 1), [0.5]]))

    def bars(q):
        cranks, couplers = q - feet, jnp.diff(q, axis=0)
        return jnp.concatenate([jnp.sum(cranks**2, axis=1), jnp.sum(couplers**2, axis=1)]) - 1

    system = gm.System(lambda q: jnp.sum(weight * q[:, 1]), mass=np.kron(mass, np.eye(2)), constraint=bars)
    q0 = feet + np.array([0.0, 1.0])
    return Mechanism(system, q0, np.broadcast_to([1.0, 0.0], q0.shape).copy())


def four_bars_exact(n: int, times: np.ndarray, angle: float = np.pi / 2, rate: float = -1.0) -> np.ndarray:
    """The tops at the given times, by the angle θ of all cranks: ((n + 1)/3 + n) θ'' = −g((n + 1)/2 + n) cos θ."""
    inertia, torque = (n + 1) / 3 + n, GRAVITY * ((n + 1) / 2 + n)
    right = lambda t, y: [y[1], -torque / inertia * np.cos(y[0])]
    y = solve_ivp(right, (0, times[-1]), [angle, rate], method="DOP853", t_eval=times, rtol=3e-14, atol=1e-15).y[0]
    feet = np.stack([np.arange(n + 1.0), np.zeros(n + 1)], axis=1)
    return feet + np.stack([np.cos(y), np.sin(y)], axis=1)[:, None, :]


@functools.cache
def third_crank() -> Mechanism:
    """A parallelogram with a third crank in the middle of its coupler: redundant everywhere, and singular in line."""
    feet = np.array([[0.0, 0.0], [2.0, 0.0]])

    def bars(q):
        a, b = q - feet
        middle = (q[0] + q[1]) / 2 - np.array([1.0, 0.0])
        return jnp.stack([a @ a - 1, b @ b - 1, jnp.sum((q[1] - q[0]) ** 2) - 4, middle @ middle - 1])

    system = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=bars)
    q0 = feet + np.array([np.cos(1.0), np.sin(1.0)])
    return Mechanism(system, q0, np.broadcast_to(-1.5 * np.array([-np.sin(1.0), np.cos(1.0)]), q0.shape).copy())


def third_crank_exact(times: np.ndarray) -> np.ndarray:
    """θ'' = −cos θ."""
    right = lambda t, y: [y[1], -np.cos(y[0])]
    y = solve_ivp(right, (0, times[-1]), [1.0, -1.5], method="DOP853", t_eval=times, rtol=3e-14, atol=1e-15).y[0]
    return np.array([[0.0, 0.0], [2.0, 0.0]]) + np.stack([np.cos(y), np.sin(y)], axis=1)[:, None, :]


@functools.cache
def bricard() -> Mechanism:
    """Bricard's trihedral linkage: six links of length 1 with perpendicular neighbouring axes; one of 24 equations is
    redundant.

    Coordinates are the joints P₂ … P₅ and the directions u₂ … u₅ of their axes; P₀, P₁, u₀, u₁ are fixed. Link i joins
    P_{i+1} = P_i + (−1)^i u_i × u_{i+1}. Without the redundancy it could not move.
    """
    x, y, z = np.eye(3)
    axes = np.array([z, x, y, z, x, y])
    links = np.array([(-1) ** i * np.cross(axes[i], axes[(i + 1) % 6]) for i in range(6)])
    joints = np.concatenate([np.zeros((1, 3)), np.cumsum(links, axis=0)])[:6]
    signs = np.array([(-1.0) ** i for i in range(6)])

    def closed(q):
        points = jnp.concatenate([joints[:2], q[:4]])
        turns = jnp.concatenate([axes[:2], q[4:]])
        after, following = jnp.roll(points, -1, axis=0), jnp.roll(turns, -1, axis=0)
        gaps = after - points - signs[:, None] * jnp.cross(turns, following)
        return jnp.concatenate(
            [gaps[1:].ravel(), jnp.sum(turns[2:] ** 2, axis=1) - 1, jnp.sum(turns * following, axis=1)[1:]]
        )

    mass = np.concatenate([np.ones((4, 1)), np.full((4, 1), 0.1)])
    system = gm.System(lambda q: GRAVITY * jnp.sum(q[:4, 1]), mass=mass, constraint=closed)
    q0 = np.concatenate([joints[2:], axes[2:]])
    return Mechanism(system, q0, np.zeros_like(q0))


def moved_by_least_squares(mechanism: Mechanism, times: np.ndarray) -> np.ndarray:
    """Positions by numpy alone: M q̈ = f − Gᵀλ with the least-squares λ, integrated by DOP853.

    The constraint is stabilised by Baumgarte's g̈ + 20 ġ + 100 g = 0. Off the manifold by the error of the integration
    redundant constraints are barely independent, which the cutoff of the least squares passes over.
    """
    mech, shape = gm.Mechanics(mechanism.system, mechanism.q0.shape), mechanism.q0.shape
    bend = lambda q, v: mech.constraint_curvature(q, v) + 20 * mech.constraint_rate(q, v) + 100 * mech.constraint(q)
    pieces = jax.jit(lambda q, v: (mech.constraint_jacobian(q), mech.force(q), bend(q, v)))
    root = np.sqrt(np.broadcast_to(mechanism.system.mass, shape)).ravel()

    def right(t, y):
        q, v = y.reshape(2, *shape)
        jacobian, force, bend = (np.asarray(x) for x in pieces(q, v))
        scaled = jacobian / root
        # In a = M^½ q̈: minimise |a − M^-½ f| over all a with (G M^-½) a = −g''(v, v).
        free = force.ravel() / root
        a = free - np.linalg.lstsq(scaled, scaled @ free + bend, rcond=1e-4)[0]
        return np.concatenate([v.ravel(), a / root])

    start = np.concatenate([mechanism.q0.ravel(), mechanism.v0.ravel()])
    found = solve_ivp(right, (0, times[-1]), start, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-12).y.T
    return found[:, : mechanism.q0.size].reshape(-1, *shape)


def run(mechanism, method, steps, t_end, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gm.simulate(*mechanism, method=method, dt=t_end / steps, t_end=t_end, **more)
