"""The error of one step (Theorem 2.7): of order h³ for the whole family, and what tells its members apart.

With f₀ = −M⁻¹∇U and K = M⁻¹ Hess of what is filtered (U; for stiff Z&Ss its stiff part), a step from (x, v) is off by

    in x   −h³/6 ḟ₀ + O(h⁴),        in v   h³(f̈₀/12 − β K f₀) + O(h⁴),

where dots are derivatives along the exact motion. So methods that filter the same Hessian share the leading term. They
differ by what they make of ∇U(x + c a), c = βh²: Z&Ss keeps its linear part in a; Z&S has the quadratic part too, since
its a is that of Z&Ss and the term −½c² M⁻¹ a·U‴·a completes the expansion of pushforward Newmark up to c³.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...analysis import measure
from ...methods import Method, PushforwardNewmark, SimplifiedZhangSkeel, State, StiffZhangSkeel, ZhangSkeel
from ...numerics.compilation import jit
from ...system.lagrangian import derive
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, PAPER
from .structure import coupled_quartic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINE, COARSE = 0.2 / 2.0 ** np.arange(6), 0.4 / 2.0 ** np.arange(4)  # steps: of the errors, and of the differences
START, MASSES = coupled_quartic().at, np.asarray(coupled_quartic().system.mass)


def split_quartic() -> System:
    """The coupled quartic of `structure`, with its separable part as the stiff one."""
    coupling = lambda q: 0.5 * (q[0] * q[1] ** 2 - q[1] * q[2]) + 0.3 * q[0] * q[1] * q[2] + 0.2 * q[0]
    return System(coupling, mass=MASSES, fast=lambda q: 0.25 * jnp.sum(q**4) + 0.5 * jnp.sum(q**2))


@jit
def one_step(method: Method, system: System, q: Array, p: Array, steps: Array) -> tuple[Array, Array]:
    """(x, v) after one step from (q, p), for each length of it."""
    mech = derive(system, q.shape)

    def go(h: Array) -> tuple[Array, Array]:
        carry = method.init(mech, State(q, p, jnp.zeros(()), jnp.zeros(2, jnp.uint32)), h)
        end = method.output(mech, method.step(mech, carry, h))
        return end.q, mech.velocity(end.p)

    return jax.vmap(go)(steps)


@jit
def leading_terms(system: System, q: Array, p: Array, beta: float) -> tuple[Array, Array, Array]:
    """The coefficients of h³: of the error in x; and in v with all of U filtered, and with its stiff part only."""
    mech = derive(system, q.shape)
    v, free = mech.velocity(p), lambda x: mech.velocity(mech.force(x))
    rate = lambda x, u: jax.jvp(free, (x,), (u,))[1]
    second = jax.jvp(rate, (q, v), (v, free(q)))[1] / 12
    filtered, stiff = (mech.velocity(of(q, free(q))) for of in (mech.hessian_product, mech.fast_hessian_product))
    return -rate(q, v) / 6, second - beta * filtered, second - beta * stiff


@jit
def dropped_term(system: System, q: Array) -> Array:
    """½ M⁻¹ f₀·U‴·f₀: times β²h⁵, what the velocities of Z&S and Z&Ss differ by after one step."""
    mech = derive(system, q.shape)
    a = mech.velocity(mech.force(q))
    return 0.5 * mech.velocity(jax.jvp(lambda y: mech.hessian_product(y, a), (q,), (a,))[1])


def power(steps: np.ndarray, sizes: np.ndarray) -> float:
    """The exponent between the two shortest steps."""
    return float(np.log(sizes[-2] / sizes[-1]) / np.log(steps[-2] / steps[-1]))


largest = lambda x: np.max(np.abs(x), axis=1)


class Errors:
    """Errors of x and v after one step, and differences of v between methods, by the length of the step."""

    def __init__(self) -> None:
        self.methods: dict[str, Method] = {
            "Z&S": ZhangSkeel(beta=BETA),
            "Z&Ss": SimplifiedZhangSkeel(beta=BETA),
            "stiff Z&Ss": StiffZhangSkeel(beta=BETA),
            "pushforward Newmark": PushforwardNewmark(beta=BETA),
        }
        system, q, p = split_quartic(), jnp.asarray(START.q), jnp.asarray(START.p)
        exact = measure.independent_reference(system, START, np.append(0.0, FINE[::-1]))
        there = (exact.q[:0:-1], exact.p[:0:-1] / MASSES)
        self.errors, coarse = {}, {}
        for label, method in self.methods.items():
            after = one_step(method, system, q, p, jnp.asarray(np.concatenate([FINE, COARSE])))
            self.errors[label] = tuple(
                np.asarray(x)[: len(FINE)] - right for x, right in zip(after, there, strict=True)
            )
            coarse[label] = np.asarray(after[1])[len(FINE) :]
        self.apart = {
            f"{one} − {other}": coarse[one] - coarse[other]
            for one, other in (("Z&Ss", "Z&S"), ("Z&Ss", "pushforward Newmark"), ("Z&S", "pushforward Newmark"))
        }
        in_x, in_v, in_v_stiff = (np.asarray(x) for x in leading_terms(system, q, p, BETA))
        self.leading = {label: (in_x, in_v_stiff if label == "stiff Z&Ss" else in_v) for label in self.methods}
        self.dropped = np.asarray(dropped_term(system, q))

    def off(self, label: str) -> float:
        """How far error/h³, extrapolated to h = 0 from the two shortest steps, is from the leading terms, relative to
        the largest of them."""
        found = [2 * x[-1] / FINE[-1] ** 3 - x[-2] / FINE[-2] ** 3 for x in self.errors[label]]
        size = max(np.max(np.abs(x)) for x in self.leading[label])
        return float(max(np.max(np.abs(a - b)) for a, b in zip(found, self.leading[label], strict=True)) / size)


def error_checks(found: Errors) -> list[Check]:
    """The powers of h, and the leading terms by their formulas."""
    stated = {"stiff Z&Ss": "(2.8), Theorem 2.7", "pushforward Newmark": "section 2.1"}
    checks = []
    for label, (in_x, in_v) in found.errors.items():
        for name, error in (("x", in_x), ("v", in_v)):
            checks.append(
                Check(
                    f"{label}: error of {name} after one step as a power of h",
                    power(FINE, largest(error)),
                    (2.95, 3.05),
                    paper="second-order accurate" if label == "pushforward Newmark" else 3,
                    where=stated.get(label, "Theorem 2.7"),
                )
            )
        note = "−h³/6 ḟ in x and h³(f̈/12 − βKf) in v"
        claim = f"{label}: error of a step over h³, as h → 0, off its formula by"
        checks.append(Check(claim, found.off(label), (None, 2e-3), verdict="information", note=note))
    return checks


def difference_checks(found: Errors) -> list[Check]:
    """What the third-derivative term does."""
    size = largest(found.apart["Z&Ss − Z&S"])
    formula = BETA**2 * COARSE[-1] ** 5 * np.max(np.abs(found.dropped))
    powers = {label: power(COARSE, largest(x)) for label, x in found.apart.items()}
    return [
        Check(
            "Z&Ss − Z&S: velocities after one step, as a power of h",
            powers["Z&Ss − Z&S"],
            (4.8, 5.2),
            paper=5,
            where="section 2.2",
        ),
        Check.near(
            "Z&Ss − Z&S: velocities after one step, over 2·¼β²h⁵ |M⁻¹a·V‴·a|",
            size[-1] / formula,
            1.0,
            0.1,
            paper="two terms ¼β²h⁵ a·V‴·a",
            where="section 2.2",
        ),
        Check(
            "Z&Ss − pushforward Newmark: velocities after one step, as a power of h",
            powers["Z&Ss − pushforward Newmark"],
            (4.8, 5.2),
            paper=5,
            where="section 2.2",
        ),
        Check(
            "Z&S − pushforward Newmark: velocities after one step, as a power of h",
            powers["Z&S − pushforward Newmark"],
            (6.8, 7.2),
            paper="a linearization with a small correction",
            where="section 2.2",
            note="the correction that makes Z&S symplectic also brings it two orders nearer to Newmark's method",
        ),
    ]


@experiment(
    PAPER,
    "local-error",
    "One step is off by O(h³); Z&Ss is off Newmark's method by O(h⁵), Z&S by O(h⁷)",
    "Theorem 2.7, section 2.2",
)
def local_error(quick: bool) -> Outcome:
    """Theorem 2.7: if V is three times differentiable, Z&S, Z&Ss, stiff Z&Ss (and pushforward Newmark, which is
    Newmark's method in another variable) make an error of order h³ in one step. Measured against the exact motion, on
    the coupled quartic with masses 1, 2 and ½."""
    found = Errors()
    checks = error_checks(found) + difference_checks(found)
    parameters: dict[str, Any] = {
        "β": BETA,
        "steps of the errors": f"{FINE[0]:g} … {FINE[-1]:g}",
        "steps of the differences": f"{COARSE[0]:g} … {COARSE[-1]:g}",
    }
    return Outcome(checks, draw_local_error(found), parameters=parameters)


def draw_local_error(found: Errors) -> Figure:
    """The errors of a step on the left, differences between the methods on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    styles = ("o-", "s--", "^-.", "D:")
    for k, (label, (in_x, in_v)) in enumerate(found.errors.items()):  # hollow and of four sizes: they nearly coincide
        size = np.maximum(largest(in_x), largest(in_v))
        left.loglog(FINE, size, styles[k], ms=13 - 3 * k, mfc="none", mew=1.3, lw=0.9, color=f"C{k}", label=label)
    left.loglog(FINE, 0.3 * FINE**3, "k:", lw=0.9)
    left.annotate("h³", (FINE[3], 0.3 * FINE[3] ** 3), xytext=(4, -12), textcoords="offset points")
    for k, (label, x) in enumerate(found.apart.items()):
        right.loglog(COARSE, largest(x), styles[k], ms=10 - 3 * k, mfc="none", mew=1.3, color=f"C{k + 4}", label=label)
    for exponent, label in ((5, "Z&Ss − Z&S"), (7, "Z&S − pushforward Newmark")):
        last = largest(found.apart[label])[-1]
        right.loglog(COARSE, 0.4 * last * (COARSE / COARSE[-1]) ** exponent, "k:", lw=0.9)
        right.annotate(
            "h⁵" if exponent == 5 else "h⁷",
            (COARSE[2], 0.4 * last * 2.0**exponent),
            xytext=(4, -12),
            textcoords="offset points",
        )
    left.set(xlabel="step h", ylabel="larger error of x and v", title="One step against the exact motion")
    right.set(xlabel="step h", ylabel="largest difference of v", title="One step of one method against another")
    for axes, ticks in ((left, FINE), (right, COARSE)):
        axes.set_xticks(ticks, [f"{h:.3g}" for h in ticks])
        axes.set_xticks([], minor=True)
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.25)
    figure.suptitle("Coupled quartic, masses 1, 2, ½, β = 0.4", fontsize=11)
    return figure
