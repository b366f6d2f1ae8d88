"""How g(q) = 0 is solved in the slides' first example, chains: by Newton's method and by the classical sweep.

On a straight chain the matrix G M⁻¹Gᵀ is a discrete Laplacian, so that the sweep is a Gauss–Seidel iteration for it:
the error falls by cos²(π/2n) in each sweep, a digit takes (4 ln 10/π²) n² = 0.933 n² sweeps, and with the best
over-relaxation ω = 2/(1 + sin(π/2n)) about (ln 10/π) n = 0.733 n. Where links are at right angles G M⁻¹Gᵀ is diagonal,
and two sweeps suffice.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numba
import numpy as np

from ... import models
from ...manifold import ConstraintSolver
from ...methods import Rattle
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .problems import EPS, PAPER, animated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 0.01
chain: Any = functools.cache(models.chain)


# --- chains -----------------------------------------------------------------------------------------------------------
@numba.njit
def count_sweeps(q: Any, free: Any, relaxation: float, tolerance: float, most: int) -> int:
    """Cycles of the slides' iteration, ΔΛ_i = g_i(Q)/(G_i(Q) G_i(q)ᵀ), Q ← Q − G_i(q)ᵀΔΛ_i, until |g_i| ≤ tolerance
    for all links; 0 if `most` cycles do not suffice. Written for numba: one link after another, the first at the
    origin."""
    Q = free.copy()
    for cycle in range(1, most + 1):
        worst = 0.0
        for i in range(len(q)):
            dx, dy, ex, ey = q[i, 0], q[i, 1], Q[i, 0], Q[i, 1]
            if i > 0:
                dx, dy, ex, ey = dx - q[i - 1, 0], dy - q[i - 1, 1], ex - Q[i - 1, 0], ey - Q[i - 1, 1]
            g = ex * ex + ey * ey - (dx * dx + dy * dy)
            worst = max(worst, abs(g))
            change = relaxation * g / (2 * (ex * dx + ey * dy) * (2 if i > 0 else 1))
            Q[i, 0] -= change * dx
            Q[i, 1] -= change * dy
            if i > 0:
                Q[i - 1, 0] += change * dx
                Q[i - 1, 1] += change * dy
        if worst <= tolerance:
            return cycle
    return 0


def straight(n: int) -> np.ndarray:
    return np.arange(1.0, n + 1)[:, None] * np.array([1.0, -2.0])


def zigzag(n: int) -> np.ndarray:
    """Links at right angles."""
    return np.cumsum(np.where(np.arange(n)[:, None] % 2, [1.0, -2.0], [2.0, 1.0]), axis=0)


def sweeps(q: np.ndarray, relaxation: float = 1.0, tolerance: float = 1e-10) -> int:
    """For the first step of .01 from rest, to a tolerance relative to the square of the length of a link, 5."""
    return count_sweeps(q, q + np.array([0.0, -0.5 * STEP**2]), relaxation, 5 * tolerance, 3_000_000)


def best_relaxation(n: int) -> float:
    return 2 / (1 + np.sin(np.pi / (2 * n)))


@jit
def first_place(manifold: ConstraintSolver, system: Any, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The position after the same first step by a solver of geomint, and the number of its iterations."""
    mech = derive(system, q.shape)
    p = 0.5 * STEP * mech.force(q)
    placed = manifold.place(
        mech, q, p, jnp.asarray(STEP), manifold.guess(jnp.zeros(len(q), q.dtype), jnp.zeros_like(q))
    )
    return q + mech.displacement(p - placed.normal_impulse, jnp.asarray(STEP)), placed.rounds


def place(n: int, solver: str, relaxation: float = 1.0) -> tuple[np.ndarray, int]:
    system, q = chain(n).system, jnp.asarray(chain(n).q0, float)
    manifold = Rattle(solver=solver, relaxation=relaxation).prepare([(system, q)]).constraint_solver
    there, rounds = first_place(manifold, system, q)
    return np.asarray(there), int(rounds)


class Cost(NamedTuple):
    """Rattle on a chain of n links."""

    n: int
    microseconds: float  # a step, best of some
    rounds: int  # of Newton's method in the first step
    residual: float  # max |g| over ε L max |q|, in a thousand steps or more


def cost(n: int, repeats: int) -> Cost:
    model, times, run = chain(n), [], None
    steps = max(1000, 60_000 // n // 20 * 20)  # long enough that the start-up time is negligible
    for _ in range(1 + repeats):  # the first one compiles
        began = time.perf_counter()
        run = simulate(
            model.system, model.q0, model.v0, method=Rattle(), dt=STEP, t_end=steps * STEP, save_every=steps // 20
        )
        times.append(time.perf_counter() - began)
    assert run is not None
    residual = np.max(np.abs(run.constraint_residual)) / (EPS * np.sqrt(5) * np.max(np.abs(run.q)))
    return Cost(n, 1e6 * min(times[1:]) / steps, place(n, "newton")[1], float(residual))


SWEEPS = {
    10: (484, 54),
    100: (39_232, 531),
    300: (313_029, 1592),
    1000: (np.nan, 5299),
}  # plain, and at the best relaxation


@experiment(
    PAPER,
    "chain",
    "Chains of up to 1000 links: Newton's method with the band costs O(n), the sweep O(n³)",
    "slides on the chain and on SHAKE iteration",
)
def chain_of_links(quick: bool) -> Outcome:
    """Sweeps are counted in the first step from a straight chain at rest, by the slides' rule: until all residuals
    are below a tolerance. Times are not checked."""
    lengths = (10, 100) if quick else (3, 10, 30, 100, 300, 1000)
    costs = [cost(n, 1 if quick else 3) for n in lengths]
    swept = (3, 10, 30, 100) if quick else (3, 10, 30, 100, 300)
    far = swept if quick else (*swept, 1000)
    plain, best, bent = (
        {n: sweeps(straight(n)) for n in swept},
        {n: sweeps(straight(n), best_relaxation(n)) for n in far},
        {n: sweeps(zigzag(n)) for n in far},
    )
    roots = {
        n: float(np.max(np.abs(place(n, "sweep", best_relaxation(n))[0] - place(n, "newton")[0])))
        for n in ((10,) if quick else (10, 30, 100))
    }
    checks = [*sweep_checks(plain, best, bent), *newton_checks(costs), *sign_checks(20)]
    checks += [
        Check(
            f"Rattle(solver='sweep') against Newton, {n} links",
            x,
            (None, 1e-12 * n),
            paper="this iterative method eventually converges",
            where="SHAKE iteration",
        )
        for n, x in roots.items()
    ]
    information = [
        Check(f"µs a step, {x.n} links", x.microseconds, verdict="information", note="wall time", rtol=None)
        for x in costs
    ]
    each = {
        n: {
            r: sweeps(straight(n), r)
            for r in (*np.linspace(1, 1.9, 19), *np.linspace(1.91, 1.99, 9), best_relaxation(n))
        }
        for n in ((10, 30) if quick else (10, 30, 100))
    }
    if not quick:
        checks.append(
            Check.near(
                "sweeps of 100 links at the relaxation 1.8 over those at the best",
                each[100][relaxation_near(each[100], 1.8)] / best[100],
                10.0,
                0.2,
                verdict="information",
                note="over-relaxation helps only near its best value, 1.969",
            )
        )
    return Outcome(
        [*checks, *information],
        draw_chain(costs, plain, best, bent, each),
        motion=lambda: animated(chain(30), Rattle(), STEP, 24.0, "A chain of 30 links by RATTLE"),
        parameters={"h": STEP, "links": list(lengths), "tolerance over L²": 1e-10},
        left_out=("chains of 300 and 1000 links", "the sweep of 300 links", "over-relaxation of 100 links"),
    )


def newton_checks(costs: list[Cost]) -> list[Check]:
    return [
        Check(
            "most rounds of Newton's method in the first step",
            max(x.rounds for x in costs),
            (2, 4),
            verdict="information",
            note="for any length",
            rtol=None,
        ),
        Check(
            "largest |g| over ε L max |q|",
            max(x.residual for x in costs),
            (None, 10),
            paper="the constraints are accurately resolved at each step",
            where="Motivation",
            note="at the rounding error of the coordinates",
            rtol=None,
        ),
    ]


def sign_checks(n: int) -> list[Check]:
    """One cycle of the iteration with Gᵀ = −∇g, as the slides define it, and with the matrix that they print for the
    chain, which is +∇g: the residual of each link after its own correction over that before."""
    q = zigzag(n)
    free = q + np.array([0.0, -0.5 * STEP**2])
    worst = {}
    for name, sign in (("−∇g", -1.0), ("+∇g", 1.0)):
        Q, ratios = free.copy(), []
        for i in range(n):
            link = lambda x, i=i: x[i] - (x[i - 1] if i else 0.0)
            g = lambda x, i=i, link=link: 0.5 * (np.sum(link(x) ** 2) - np.sum(link(q) ** 2))
            before = g(Q)
            column, here = np.zeros_like(Q), np.zeros_like(Q)  # Gᵢ(q)ᵀ and Gᵢ(Q)ᵀ
            for matrix, x in ((column, q), (here, Q)):
                matrix[i] += sign * link(x)
                if i:
                    matrix[i - 1] -= sign * link(x)
            Q = Q + column * before / np.sum(here * column)
            if abs(before) > 1e-9:
                ratios.append(abs(g(Q) / before))
        worst[name] = max(ratios), min(ratios)
    where = "SHAKE iteration; chain example"
    return [
        Check(
            "a link's |g| after its correction over before, Gᵀ = −∇g",
            worst["−∇g"][0],
            (None, 0.01),
            paper="satisfies the linearized equation",
            where=where,
            verdict="corrected",
            note="Q ← Q − M⁻¹∇gᵢ(qₙ) gᵢ(Q)/(Gᵢ(Q) M⁻¹ Gᵢ(qₙ)ᵀ): masses and a transpose are missing in the print",
        ),
        Check(
            "a link's |g| after its correction over before, G as printed for the chain",
            worst["+∇g"][1],
            (1.9, 2.1),
            verdict="information",
            note="the chain's matrix is +∇g, which only changes the sign of λ; the iteration needs −∇g as in (3)",
        ),
    ]


def sweep_checks(plain: dict[int, int], best: dict[int, int], bent: dict[int, int]) -> list[Check]:
    """The numbers of sweeps by chain length: straight, straight at the best relaxation, and with right angles."""
    digit = {n: (plain[n] - sweeps(straight(n), tolerance=1e-8)) / 2 for n in (30, 100)}
    relaxed = (best[100] - sweeps(straight(100), best_relaxation(100), 1e-8)) / 2
    about: dict[str, Any] = {
        "paper": "eventually converges; a variant of Gauss-Seidel-Newton",
        "where": "SHAKE iteration",
    }
    checks = [
        Check.near(
            f"sweeps for a digit over n², {n} links",
            x / n**2,
            0.933,
            0.005,
            note="4 ln 10/π² = 0.933, the rate of Gauss–Seidel's method for a discrete Laplacian",
            **about,
        )
        for n, x in digit.items()
    ]
    checks += [
        Check.near(f"sweeps of a straight chain of {n} links, |g| ≤ 5e-10", plain[n], SWEEPS[n][0], 0.01, **about)
        for n in plain
        if n in SWEEPS
    ]
    own: dict[str, Any] = {"verdict": "information"}
    checks += [
        Check.near(f"the same at the best relaxation, {n} links", best[n], SWEEPS[n][1], 0.03, **own)
        for n in best
        if n in SWEEPS
    ]
    checks += [
        Check(
            "sweeps for a digit over n, 100 links, best relaxation",
            relaxed / 100,
            (0.72, 0.82),
            note="a little above ln 10/π = 0.733",
            **own,
        ),
        Check(
            "most sweeps of a chain with right angles",
            max(bent.values()),
            (2, 2),
            paper="the constraints may admit a decoupling",
            where="Numerical methods",
            note="links at right angles do not couple: two sweeps for any length",
        ),
    ]
    return checks


def relaxation_near(found: dict[float, int], value: float) -> float:
    return min(found, key=lambda r: abs(r - value))


def draw_chain(
    costs: list[Cost],
    plain: dict[int, int],
    best: dict[int, int],
    bent: dict[int, int],
    each: dict[int, dict[float, int]],
) -> Figure:
    """Time of a step, sweeps by length, sweeps by relaxation, and the residual of g."""
    from ...plots.figures import new_figure

    figure = new_figure(11.0, 8.0)
    ((times, counts), (relaxations, residuals)) = figure.subplots(2, 2)
    n = np.array([x.n for x in costs])
    times.loglog(n, [x.microseconds for x in costs], "o-", ms=4, color="C0", label="Rattle")
    times.loglog(n[n >= 30], costs[-1].microseconds * n[n >= 30] / n[-1], "k:", lw=1, label="∝ n")
    times.set(xlabel="links n", ylabel="µs a step", title="Time of a step")
    for label, found, style in (
        ("sweeps, straight chain", plain, "o-C3"),
        ("over-relaxed at its best", best, "s-C1"),
        ("sweeps, links at right angles", bent, "^-C2"),
    ):
        counts.loglog(list(found), list(found.values()), style[:-2], ms=4, color=style[-2:], label=label)
    counts.loglog(n, [x.rounds for x in costs], "D-", ms=4, color="C0", label="Newton")
    far = np.array(list(best))
    counts.loglog(far, 8 * far**2, "k:", lw=1, label="∝ n², ∝ n")
    counts.loglog(far, 8 * far, "k:", lw=1)
    counts.set(ylim=(1, 1e8), xlabel="links n", ylabel="rounds in the first step", title="Until |g| ≤ 10⁻¹⁰ L²")
    for k, (length, found) in enumerate(each.items()):
        r, y = np.array(sorted(found.items())).T
        relaxations.semilogy(r, y, ".-", ms=4, lw=1, color=f"C{k}", label=f"{length} links")
        relaxations.plot(best_relaxation(length), found[best_relaxation(length)], "o", ms=7, mfc="none", color=f"C{k}")
    relaxations.set(
        xlabel="relaxation ω", ylabel="sweeps", title="Over-relaxation, straight chain (rings: 2/(1 + sin(π/2n)))"
    )
    residuals.semilogx(n, [x.residual for x in costs], "o-", ms=4, color="C0")
    residuals.set(
        ylim=(0, None), xlabel="links n", ylabel="largest |g| / (ε L max |q|)", title="What is left of the constraint"
    )
    for axes in (times, counts, relaxations, residuals):
        axes.grid(alpha=0.25)
        if axes is not residuals:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"Chains in the plane, stretched out at rest, h = {STEP:g}", fontsize=11)
    return figure
