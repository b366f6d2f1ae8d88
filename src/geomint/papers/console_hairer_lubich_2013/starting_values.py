"""How errors of the starting values show: those of λ not at all on linear problems, those of q one power of h lower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import Rattle, SymmetricMultistep
from ...models import Model
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .displaced import Displaced, component, displaced_runs, size, with_errors
from .parasitic import angles, two_bodies
from .runs import EIGHT, FOUR, PAPER, A, B, largest, motion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FITTED = 64  # steps in which parasitic components are measured
METHODS = {"r = 4, a = 0.5": FOUR, "(A)": A, "r = 8": EIGHT}


# --- λ on linear problems ---------------------------------------------------------------------------------------------
def linear_problem() -> Model:
    """(25): six coordinates, a symmetric positive matrix A with frequencies up to 2.3, and two linear constraints."""
    random = np.random.default_rng(5)
    factor, jacobian = random.normal(size=(6, 6)), random.normal(size=(2, 6))
    stiffness = factor @ factor.T / 4 + 0.1 * np.eye(6)
    tangent = np.eye(6) - jacobian.T @ np.linalg.solve(jacobian @ jacobian.T, jacobian)
    system = System(lambda q: 0.5 * q @ stiffness @ q, constraint=lambda q: jacobian @ q)
    q0, v0 = (tangent @ random.normal(size=6) for _ in range(2))
    return Model(system, q0, v0, "linear problem", "a linear oscillator with linear constraints", Rattle(), 0.05, 10.0)


class Effect:
    """What errors of size 1 in the starting multipliers change in q and in λ, over the steps."""

    def __init__(self, model: Model, a: tuple[float, ...], h: float, steps: int):
        run = displaced_runs(model, Displaced(a=a, unsafe=True), h, steps, 0.0, [0.0, 1.0])
        change = lambda x: np.max(np.abs(x[1] - x[0]).reshape(x.shape[1], -1), axis=1)
        self.q = change(np.asarray(run.q))
        self.pull = change(np.asarray(run.columns["pull"]))[1:]

    @property
    def growth(self) -> float:
        """The factor by which the change of Gᵀλ grows in a step, from its largest values in two stretches."""
        size = len(self.pull) // 2
        first, last = self.pull[:size].max(), self.pull[-size:].max()
        return float((last / first) ** (1 / (len(self.pull) - size)))


# --- their order ------------------------------------------------------------------------------------------------------
class Order:
    """Errors hˢ in the q_j, or hˢ⁻² in the λ_j: the largest change of the energy for t ≤ 4; |z| at the root of ρ by the
    former, and the largest change of q by the latter, in the first 64 steps."""

    exponents = (3, 4, 5)

    def __init__(self, steps: tuple[float, ...]):
        self.steps, s = np.array(steps), np.array(self.exponents)
        self.energy, self.by_multipliers, self.rho, self.q = (np.empty((len(steps), len(s))) for _ in range(4))
        zero = np.zeros(len(s))
        for k, h in enumerate(steps):
            positions, multipliers = [0.0, *h**s, *zero], [0.0, *zero, *h ** (s - 2.0)]
            run = displaced_runs(two_bodies(), Displaced(a=FOUR), h, round(4 / h), positions, multipliers)
            energy = np.asarray(run.energy)[:, 1:]  # the momentum shown at the start is the given one
            change = np.max(np.abs(energy - energy[0]), axis=1)[1:]
            self.energy[k], self.by_multipliers[k] = change[: len(s)], change[len(s) :]
            self.q[k] = [largest(run.q[1 + len(s) + j, :FITTED] - run.q[0, :FITTED]) for j in range(len(s))]
            self.rho[k] = [size(component(run.q[1 + j, 1:], angles()[0], FITTED))[0] for j in range(len(s))]

    def of(self, x: np.ndarray) -> np.ndarray:
        """The order from the last two steps."""
        return np.log(x[-2] / x[-1]) / np.log(self.steps[-2] / self.steps[-1])


@experiment(
    PAPER,
    "starting-values",
    "Errors of the starting values: those of λ do not reach q on linear problems; hˢ in q_j makes hˢ⁻¹ in the energy",
    "section 7.1, Proposition 5",
)
def starting_values(quick: bool) -> Outcome:
    """Section 7.1: with linear constraints and a quadratic potential q_n does not depend on the starting values of λ,
    and the error of λ_n solves Σ β_j δλ_{n+j} = 0: it is Σ ζᵢⁿνᵢ with constant νᵢ, bounded under (13) and growing by
    1.3146 a step for (B). With nonlinear constraints, zᵢ = O(h³)νᵢ. Proposition 5: errors O(hˢ) of the q_j and O(hˢ⁻²)
    of the λ_j change y(0) and zᵢ(0) by O(hˢ), and ẏ(0), and so the energy, by O(hˢ⁻¹)."""
    linear = with_errors(linear_problem())
    shown = {"r = 4, a = 0.5": FOUR} if quick else METHODS
    effects = {label: Effect(linear, a, 0.05, 2000) for label, a in shown.items()}
    effects["(B)"] = Effect(linear, B, 0.05, 40)
    order = Order((0.01, 0.005) if quick else (0.02, 0.01, 0.005))
    return Outcome(
        [*linear_checks(effects), *order_checks(order)],
        draw_starting_values(effects, order),
        motion=motion(models.sphere_bodies(), SymmetricMultistep(a=EIGHT), 0.02, 20.0),
        parameters={
            "errors of λ": 1.0,
            "h, linear problem": 0.05,
            "steps": 2000,
            "h, order": tuple(order.steps),
            "seed": 1,
        },
        left_out=("orders 6 and 8 on the linear problem",),
    )


def linear_checks(effects: dict[str, Effect]) -> list[Check]:
    """Section 7.1: q does not change, and λ changes by Σ ζⁿν with constant ν."""
    checks = []
    for label, x in effects.items():
        where = "section 7.1, (27)"
        name = f"linear problem, errors 1 in the starting λ, {label}:"
        bound = 1e-9 if label == "(B)" else 1e-11
        checks.append(Check(f"{name} largest change of q", x.q.max(), (None, bound), paper="none", where=where))
        near = (1.29, 1.34) if label == "(B)" else (0.999, 1.001)
        said = "a zero of σ of modulus 1.3146" if label == "(B)" else "constant vectors ν"
        claim = f"{name} growth of the change of Gᵀλ a step"
        checks.append(Check(claim, x.growth, near, paper=said, where=where))
    return checks


def order_checks(x: Order) -> list[Check]:
    """Orders in h on the sphere, for errors of three sizes."""
    energy, multipliers, rho, q = x.of(x.energy), x.of(x.by_multipliers), x.of(x.rho), x.of(x.q)
    checks = []
    for k, s in enumerate(x.exponents):
        name, where = f"errors h^{s} in the q_j:", f"Proposition 5, s = {s}"
        checks += [
            Check(f"{name} order of the change of the energy", energy[k], (s - 1.2, s - 0.8), paper=s - 1, where=where),
            Check(f"{name} order of |z| at the root of ρ", rho[k], (s - 0.1, s + 0.1), paper=s, where=where),
        ]
    for k, s in enumerate(x.exponents):
        where, name = f"Proposition 5, s = {s}", f"errors h^{s - 2} in the λ_j:"
        said: dict[str, Any] = {"paper": f"at least {s - 1}", "where": where}
        checks.append(Check(f"{name} order of the change of the energy", multipliers[k], (s - 0.5, s + 0.5), **said))
        said |= {"paper": s + 1, "where": "(30): z = h³Cν + …"}
        checks.append(Check(f"{name} order of the change of q", q[k], (s + 0.8, s + 1.2), **said))
    return checks


def draw_starting_values(effects: dict[str, Effect], order: Order) -> Figure:
    """Changes of q and of Gᵀλ over the steps on the linear problem; changes of the energy against the step."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 4.6)
    steps, energy = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for k, (label, x) in enumerate(effects.items()):
        shown = min(len(x.q), 200)
        steps.semilogy(np.arange(1, shown), x.pull[: shown - 1], lw=1, color=f"C{k}", label=f"{label}: Gᵀλ")
        steps.semilogy(
            np.arange(shown), np.maximum(x.q[:shown], 1e-18), lw=1, ls=":", color=f"C{k}", label=f"{label}: q"
        )
    steps.set(xlabel="step", ylabel="largest change", title="Linear problem, errors 1 in the starting λ")
    steps.legend(frameon=False, fontsize=8, ncols=2, loc="center right")
    for k, s in enumerate(order.exponents):
        energy.loglog(order.steps, order.energy[:, k], "o-", ms=5, lw=1, color=f"C{k}", label=f"errors h^{s} in q_j")
        slope = order.energy[-1, k] * (order.steps / order.steps[-1]) ** (s - 1)
        energy.loglog(order.steps, slope, "--", lw=0.8, color=f"C{k}")
        energy.loglog(
            order.steps,
            order.by_multipliers[:, k],
            "s-",
            ms=5,
            lw=1,
            mfc="none",
            color=f"C{k}",
            label=f"errors h^{s - 2} in λ_j",
        )
    energy.set(
        xlabel="step h", ylabel="largest change of the energy, t ≤ 4", title="Sphere, order 4 (dashed: slope s − 1)"
    )
    energy.set_xticks(order.steps, [f"{h:g}" for h in order.steps])
    energy.set_xticks([], minor=True)
    energy.legend(frameon=False, fontsize=8, ncols=2)
    for axes in (steps, energy):
        axes.grid(alpha=0.25)
    return figure
