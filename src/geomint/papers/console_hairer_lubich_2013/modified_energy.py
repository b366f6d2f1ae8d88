"""Backward error analysis (section 6): the modified energy and momentum, which a run keeps better than H
and L."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import models
from ...methods import SymmetricMultistep
from ...methods.multistep_coefficients import Coefficients
from ...models import Model
from ...run import Trajectory
from ...system.lagrangian import derive
from ...system.mechanics import Mechanics
from ..base import Outcome, experiment
from ..checks import Check
from .runs import FOUR, PAPER, largest, motion, moved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Flow = Callable[[Array, Array], Array]


def leading_terms(method: Coefficients) -> tuple[float, float]:
    """γ_r of ρ(eˣ)/(x²σ(eˣ)) = 1 + γ_r xʳ + …, and c of Σ δ̂_j e^{(j+½)x} (2/x) sinh(x/2) = 1 + c xʳ + …, exact.

    The first is the leading error of the method, (24); the second that of the momenta (11)."""
    r = method.order
    power = lambda weights, n, shift: sum((w * (j + shift) ** n for j, w in enumerate(weights)), Fraction(0))
    rho = power(method.rho, r + 2, -Fraction(r, 2)) / math.factorial(r + 2)
    # x²σ(eˣ) has the terms of σ two powers lower; up to xʳ⁺¹ it equals ρ
    sigma = power(method.sigma, r, -Fraction(r, 2)) / math.factorial(r)
    gamma = (rho - sigma) / power(method.sigma, 0, Fraction(0))
    # (q_{j+1} − q_j)/h weighted by δ̂: the Taylor coefficient of ẏ's r-th derivative
    ends = [Fraction(0), *method.delta_hat, Fraction(0)]
    delta = [ends[j] - ends[j + 1] for j in range(r + 1)]
    return float(gamma), float(power(delta, r + 1, -Fraction(r, 2)) / math.factorial(r + 1))


def acceleration(mech: Mechanics) -> Flow:
    """q̈ of the exact motion with unit masses: f − Gᵀλ, with λ from g̈ = 0."""

    def of(q: Array, v: Array) -> Array:
        force = mech.force(q)
        rate = lambda x: jax.jvp(mech.constraint, (x,), (v,))[1]
        jacobian = jax.jacobian(mech.constraint)(q).reshape(-1, q.size)
        right = jacobian @ force.ravel() + jax.jvp(rate, (q,), (v,))[1].ravel()
        return force - (jacobian.T @ jnp.linalg.solve(jacobian @ jacobian.T, right)).reshape(q.shape)

    return of


class Derivatives(NamedTuple):
    """y and its time derivatives along the exact motion through the points of a run, (points, bodies, 3) each."""

    q: Any
    first: Any
    second: Any
    third: Any
    fourth: Any
    fifth: Any


def derivatives(model: Model) -> Callable[[Any, Any], Derivatives]:
    """A function of positions and velocities. It differentiates the acceleration along the flow q̇ = v, v̇ = a(q, v);
    one function for all runs, so that it is compiled once."""
    a = acceleration(derive(model.system, model.q0.shape))
    along = lambda function: lambda q, v: jax.jvp(function, (q, v), (v, a(q, v)))[1]
    third = along(a)
    fourth = along(third)
    compiled = jax.jit(jax.vmap(lambda q, v: (a(q, v), third(q, v), fourth(q, v), along(fourth)(q, v))))
    return lambda q, v: Derivatives(*(np.asarray(x) for x in (q, v, *compiled(q, v))))


class Modified:
    """H, L and their modified forms along a run of order 4.

    With (1 + γ₄h⁴D⁴)ÿ = −∇U − Gᵀμ, (24), the scalar product with ẏ and the vector product with y give

        H₄ = γ₄ (ẏ·y⁽⁵⁾ − ÿ·y⁽⁴⁾ + ½|y⁽³⁾|²),      L₄ = γ₄ Σ (y × y⁽⁵⁾ − ẏ × y⁽⁴⁾ + ÿ × y⁽³⁾),

    and the momenta (11) of a run are ẏ + c h⁴y⁽⁵⁾ + …, so that c ẏ·y⁽⁵⁾ and c y × y⁽⁵⁾ are subtracted.
    """

    def __init__(self, run: Trajectory, h: float, method: Coefficients, of: Callable[[Any, Any], Derivatives]):
        y, (gamma, c) = of(run.q[1:], run.p[1:]), leading_terms(method)  # momenta (11) from n = 1 on; unit masses
        dot = lambda a, b: np.sum(a * b, axis=(1, 2))
        turn = lambda a, b: np.sum(np.cross(a, b), axis=1)
        energy = gamma * (dot(y.first, y.fifth) - dot(y.second, y.fourth) + 0.5 * dot(y.third, y.third))
        momentum = gamma * (turn(y.q, y.fifth) - turn(y.first, y.fourth) + turn(y.second, y.third))
        centred = lambda x: x - x.mean(axis=0)
        self.t, self.h = np.asarray(run.t)[1:], h
        self.energy = centred(np.asarray(run.energy)[1:])
        self.modified_energy = centred(np.asarray(run.energy)[1:] + h**4 * (energy - c * dot(y.first, y.fifth)))
        self.momentum = centred(turn(y.q, y.first))
        self.modified_momentum = centred(turn(y.q, y.first) + h**4 * (momentum - c * turn(y.q, y.fifth)))

    @property
    def drift(self) -> tuple[float, float]:
        """The slopes of H and of the modified energy over time, by least squares."""
        slope = lambda x: abs(float(np.polyfit(self.t, x, 1)[0]))
        return slope(self.energy), slope(self.modified_energy)


@experiment(
    PAPER,
    "modified-energy",
    "The modified energy and momentum of backward error analysis vary by O(h⁶), H and L by O(h⁴)",
    "section 6, Propositions 2 and 3",
)
def modified_energy(quick: bool) -> Outcome:
    """Proposition 2: along the smooth part of a numerical solution H + hʳH_r(q, p) + hʳ⁺²H_{r+2}(q, p) + … is
    conserved; Proposition 3 says the same of the momentum. The leading terms are constructed here for order 4, a = .5,
    and evaluated along runs of the two bodies on the sphere. H itself varies by O(h⁴), with the leading term by
    O(h⁶)."""
    model, method = models.sphere_bodies(), SymmetricMultistep(a=FOUR)
    steps, along = (0.02, 0.01, 0.005), (method.coefficients, derivatives(model))
    short = [Modified(moved(model, method, h, 40.0, round(0.02 / h)), h, *along) for h in steps]  # at the same times
    time = 200.0 if quick else 2000.0
    long = Modified(moved(model, method, 0.02, time, round(time / 40)), 0.02, *along)
    gamma, c = leading_terms(method.coefficients)
    checks = []
    for what, plain, corrected, where in (
        ("H", "energy", "modified_energy", "Proposition 2"),
        ("L", "momentum", "modified_momentum", "Proposition 3"),
    ):
        before, after = ([largest(getattr(x, name)) for x in short] for name in (plain, corrected))
        order = lambda x: float(np.log2(x[-2] / x[-1]))
        name, halved = f"{what} + h⁴{what}₄", "h = 0.01 to 0.005"
        checks += [
            Check(f"{what}: order of its variation, {halved}", order(before), (3.9, 4.1), paper=4, where=where),
            Check(f"{name}: order of its variation, {halved}", order(after), (5.7, 6.3), paper=6, where=where),
            Check(
                f"{what}: its variation over that of {name}, h = 0.01, t ≤ 40", before[1] / after[1], (100.0, 400.0),
                paper="more than 1, and growing like h⁻²", where=where,
            ),
        ]  # fmt: skip
    drift, left = long.drift
    less: dict[str, Any] = {"paper": "H_h is conserved to higher order", "where": "Proposition 2"}
    exact = "From ρ, σ and δ̂ in exact fractions."
    known: dict[str, Any] = {"verdict": "information", "note": exact}
    checks += [
        Check(
            f"drift of H + h⁴H₄ over that of H, h = 0.02, t ≤ {time:g}", left / drift, (None, 0.2), rtol=None, **less
        ),
        Check("γ₄ of ρ(eˣ)/(x²σ(eˣ)) = 1 + γ₄x⁴ + …", gamma, (17 / 720 - 1e-12, 17 / 720 + 1e-12), **known),
        Check("error of the momenta (11): c of p = ẏ + c h⁴y⁽⁵⁾", c, (-1 / 30 - 1e-12, -1 / 30 + 1e-12), **known),
    ]
    return Outcome(
        checks,
        draw_modified(short[0], short, steps),
        motion=motion(model, method, 0.02, 20.0),
        parameters={"a": FOUR, "steps": steps, "t ≤": 40.0, "t ≤, drift": time},
        left_out=("drift for t ≤ 2000",),
    )


def draw_modified(coarse: Modified, runs: list[Modified], steps: tuple[float, ...]) -> Figure:
    """H and L with and without the leading correction, over time and against the step."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 4.4)
    energy, momentum, order = figure.subplots(1, 3, width_ratios=(1.2, 1.2, 1))
    for axes, plain, corrected, what in (
        (energy, coarse.energy, coarse.modified_energy, "H"),
        (momentum, coarse.momentum[:, 0], coarse.modified_momentum[:, 0], "L"),
    ):
        axes.plot(coarse.t, 1e4 * plain, lw=0.9, color="C0" if what == "H" else "C2", label=what)
        axes.plot(coarse.t, 1e4 * corrected, lw=1.1, color="C3" if what == "H" else "C1", label=f"{what} + h⁴{what}₄")
        axes.set(xlim=(0, 40), xlabel="time", ylabel="less its mean, in units of 1e-4")
    energy.set_title(f"Energy, h = {coarse.h:g}", fontsize=11)
    momentum.set_title(f"First component of the angular momentum, h = {coarse.h:g}", fontsize=11)
    for name, label, style in (
        ("energy", "H", "C0o-"), ("modified_energy", "H + h⁴H₄", "C3o-"),
        ("momentum", "L", "C2s:"), ("modified_momentum", "L + h⁴L₄", "C1s:"),
    ):  # fmt: skip
        order.loglog(steps, [largest(getattr(x, name)) for x in runs], style, ms=5, lw=1, label=label)
    h = np.array(steps)
    for first, slope in ((1.5 * largest(runs[0].energy), 4), (1.5 * largest(runs[0].modified_energy), 6)):
        order.loglog(h, first * (h / h[0]) ** slope, "--", color="0.5", lw=0.8, label=f"slope {slope}")
    order.set(xlabel="step h", ylabel="largest deviation from the mean, t ≤ 40", title="Variation against step")
    order.set_xticks(steps, [f"{x:g}" for x in steps])
    order.set_xticks([], minor=True)
    order.legend(frameon=False, fontsize=8)
    for axes in (energy, momentum, order):
        axes.grid(alpha=0.25)
    lines = [line for axes in (energy, momentum) for line in axes.lines]
    figure.legend(lines, [line.get_label() for line in lines], loc="outside lower center", ncols=4, frameon=False)
    return figure
