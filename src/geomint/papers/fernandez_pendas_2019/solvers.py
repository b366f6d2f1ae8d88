"""How g(q) = 0 is solved in the slides' two examples: chains, by Newton's method and by the classical sweep, and
spheres, in closed form.

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
from .problems import EPS, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    microseconds: float  # a step, best of three
    rounds: int  # of Newton's method in the first step
    residual: float  # max |g| over ε L max |q|, in a thousand steps or more


def cost(n: int) -> Cost:
    model, times, run = chain(n), [], None
    steps = max(1000, 60_000 // n // 20 * 20)  # long enough that the start-up time is negligible
    for _ in range(4):  # the first one compiles
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
    lengths = (10, 300) if quick else (3, 10, 30, 100, 300, 1000)
    costs = [cost(n) for n in lengths]
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
    checks = sweep_checks(plain, best, bent)
    checks += [
        Check(
            "most rounds of Newton's method in the first step",
            max(x.rounds for x in costs),
            (2, 4),
            note="3",
            rtol=None,
        ),
        Check(
            "largest |g| over ε L max |q|",
            max(x.residual for x in costs),
            (None, 10),
            note="2 … 4: at round-off",
            rtol=None,
        ),
    ]
    checks += [
        Check(f"Rattle(solver='sweep') against Newton, {n} links", x, (None, 1e-12 * n), note=f"below {1e-12 * n:.0e}")
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
            )
        )
    return Outcome([*checks, *information], draw_chain(costs, plain, best, bent, each))


def sweep_checks(plain: dict[int, int], best: dict[int, int], bent: dict[int, int]) -> list[Check]:
    """The numbers of sweeps by chain length: straight, straight at the best relaxation, and with right angles."""
    digit = {n: (plain[n] - sweeps(straight(n), tolerance=1e-8)) / 2 for n in (30, 100)}
    relaxed = (best[100] - sweeps(straight(100), best_relaxation(100), 1e-8)) / 2
    checks = [
        Check.near(f"sweeps for a digit over n², {n} links", x / n**2, 0.933, 0.005, note="4 ln 10/π² = 0.933")
        for n, x in digit.items()
    ]
    checks += [
        Check.near(f"sweeps of a straight chain of {n} links, |g| ≤ 5e-10", plain[n], SWEEPS[n][0], 0.01)
        for n in plain
        if n in SWEEPS
    ]
    checks += [
        Check.near(f"the same at the best relaxation, {n} links", best[n], SWEEPS[n][1], 0.03)
        for n in best
        if n in SWEEPS
    ]
    checks += [
        Check(
            "sweeps for a digit over n, 100 links, best relaxation",
            relaxed / 100,
            (0.72, 0.82),
            note="0.785, a little above ln 10/π = 0.733",
        ),
        Check("most sweeps of a chain with right angles", max(bent.values()), (2, 2), note="2, of any length"),
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


# --- spheres ----------------------------------------------------------------------------------------------------------
class Particles:
    """N charges on the unit sphere, by the closed form and by Newton's method."""

    def __init__(self, n: int, t_end: float):
        model = models.sphere_bodies(n, "coulomb")
        go = lambda solver, t_end, every: simulate(
            model.system, model.q0, model.v0, method=Rattle(solver=solver), dt=STEP, t_end=t_end, save_every=every
        )
        closed, newton = go("auto", 1.0, 1), go("newton", 1.0, 1)
        self.n, self.system, self.solver = n, model.system, closed.solver
        self.apart = np.max(np.abs(closed.q - newton.q), axis=(1, 2))
        self.steps = by_hand(closed.q, closed.p, model.system)
        times: dict[str, list[float]] = {"auto": [], "newton": []}
        for _ in range(3):
            for solver, taken in times.items():
                began = time.perf_counter()
                run = go(solver, t_end, 5)
                taken.append(time.perf_counter() - began)
                if solver == "auto":
                    self.run = run
        self.ratio = min(times["newton"]) / min(times["auto"])
        momentum = np.asarray(next(iter(self.run.momentum_maps.values())))
        self.momentum = np.max(np.abs(momentum - momentum[0]), axis=1)
        self.energy = np.asarray(self.run.energy_error)


def by_hand(q: Any, p: Any, system: Any) -> float:
    """How far each next position is from X − a q with X = q + hp + ½h²f, a = c/(b + √(b² − c)), b = q·X, c = |X|² −
    1."""
    force = np.asarray(jax.vmap(derive(system, q.shape[1:]).force)(jnp.asarray(q)))
    free = q + STEP * p + 0.5 * STEP**2 * force
    b, c = np.sum(q * free, axis=-1), np.sum(free**2, axis=-1) - 1
    there = free - (c / (b + np.sqrt(b**2 - c)))[..., None] * q
    return float(np.max(np.abs(there[:-1] - q[1:])))


ENERGY = {2: (1.9e-5, 2.4e-5), 7: (4e-6, 2e-5)}  # error over H


@experiment(
    PAPER,
    "sphere-particles",
    "Particles on a sphere: N independent quadratic equations, solved in closed form",
    "slides on particles on the unit sphere",
)
def sphere_particles(quick: bool) -> Outcome:
    """Charges that repel each other: the closed form compared with Newton's method and with the formula written out
    in NumPy. The ratio of times is not checked."""
    both = [Particles(n, 40.0 if quick else 400.0) for n in (2, 7)]
    checks = []
    for x in both:
        first, second = np.array_split(x.energy, 2)
        checks += [
            Check(
                f"N = {x.n}: closed form against Newton, 100 steps", x.apart.max(), (None, 1e-13), note="below 1e-13"
            ),
            Check(f"N = {x.n}: against the formula in NumPy, a step", x.steps, (None, 5e-15), note="below 5e-15"),
            Check(
                f"N = {x.n}: largest energy error over H",
                np.max(np.abs(x.energy)) / x.run.energy[0],
                ENERGY[x.n],
                rtol=0.05 if x.n == 2 else None,
            ),
            Check(
                f"N = {x.n}: mean energy, second half − first, over its spread",
                abs(second.mean() - first.mean()) / x.energy.std(),
                (None, 0.1),
                note="below 0.1: no drift",
                rtol=None,
            ),
            Check(f"N = {x.n}: angular momentum", x.momentum.max(), (None, 1e-12), note="below 1e-12"),
            Check(
                f"N = {x.n}: largest ||q|² − 1|",
                np.max(np.abs(x.run.constraint_residual)),
                (None, 2e-15),
                note="below 2e-15",
            ),
        ]
    information = [
        Check(
            f"N = {x.n}: time of Newton over the closed form",
            x.ratio,
            verdict="information",
            note="wall time",
            rtol=None,
        )
        for x in both
    ]
    return Outcome([*checks, *information], draw_spheres(both))


def draw_spheres(both: list[Particles]) -> Figure:
    """The paths, the conserved quantities, and the difference of the two solvers."""
    from ...plots.figures import envelope, new_figure

    figure = new_figure(13.0, 7.0)
    for row, x in enumerate(both):
        paths, energy, momentum = (figure.add_subplot(2, 3, 3 * row + k) for k in (1, 2, 3))
        draw_paths(paths, x)
        energy.plot(*envelope(x.run.t, 1e6 * x.energy), lw=0.7, color="C0")
        energy.set(ylabel="10⁶ (H − H(0))", title=f"N = {x.n}: energy, H = {x.run.energy[0]:.3f}")
        seen = lambda y: np.where(y > 0, y, np.nan)
        momentum.semilogy(x.run.t, seen(x.momentum), ".", ms=3, color="C1", label="angular momentum")
        momentum.semilogy(
            x.run.t, seen(np.max(np.abs(x.run.constraint_residual), axis=1)), ".", ms=3, color="C2", label="||q|² − 1|"
        )
        momentum.axhline(x.apart.max(), color="k", lw=0.9, ls="--", label="closed form − Newton, 100 steps")
        momentum.set(ylim=(1e-17, 1e-11), ylabel="largest deviation", title=f"N = {x.n}: kept to round-off")
        momentum.legend(frameon=False, fontsize=8, loc="upper left")
        for axes in (energy, momentum):
            axes.set(xlim=(0, x.run.t[-1]), xlabel="time")
            axes.grid(alpha=0.25)
    figure.suptitle(f"Charges on the unit sphere, Rattle, h = {STEP:g}", fontsize=11)
    return figure


def draw_paths(axes: Axes, x: Particles) -> None:
    """The sphere from the side; what is behind it is pale."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color="0.5", lw=0.8)
    early = np.asarray(x.run.q)[x.run.t <= 20]
    for k in range(x.n):
        right, depth, up = early[:, k].T
        for front in (False, True):
            seen = np.where((depth < 0) == front, right, np.nan)
            axes.plot(seen, up, lw=1.0, color=f"C{k}", alpha=1.0 if front else 0.25)
        axes.plot(right[0], up[0], "o", ms=5, color=f"C{k}", alpha=1.0 if depth[0] < 0 else 0.35)
    axes.set(xlabel="x", ylabel="z", title=f"N = {x.n}: paths, t ≤ 20 (dots: start)")
    axes.set_aspect("equal")
