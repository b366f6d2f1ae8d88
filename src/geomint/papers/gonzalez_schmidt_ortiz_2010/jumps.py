"""The formulas for one event, (15), (18), (21), (25) and (27), as printed and corrected (sections 2.1 and 2.3).

With n = ∇V, a = q̇·n, k = nᵀM⁻¹n and ΔV = h for a ≥ 0, else −h,

    q̇⁺ = q̇⁻ + λ M⁻¹n,   λ = −2a/k if a² ≤ 2ΔV k,   else λ = (−a + sign(ΔV) √(a² − 2ΔV k))/k,

the second of which equals −2ΔV/(a + sign(ΔV) √(a² − 2ΔV k)), where no digits cancel.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, shown, terraced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...view import Scene

SIZE = 4  # coordinates


def slope(q: Any, params: Any) -> Any:
    """V = n·q."""
    return jnp.vdot(params, q)


def first(q: Any) -> Any:
    return q[0]


class Event(NamedTuple):
    """A linear potential V = n·q, terraces of height h, and the velocity before and after the first event."""

    n: np.ndarray
    h: float
    before: np.ndarray
    after: np.ndarray  # by EnergyStepping


class Events:
    """The first events of random motions from the middle of a terrace, with one random mass matrix."""

    def __init__(self, count: int, seed: int = 0):
        random = np.random.default_rng(seed)
        root = random.normal(size=(SIZE, SIZE))
        self.mass = root @ root.T + np.eye(SIZE)
        self.inverse = np.linalg.inv(self.mass)
        self.found = [self._event(random) for _ in range(count)]

    def _event(self, random: np.random.Generator) -> Event:
        n, v, h = random.normal(size=SIZE), random.normal(size=SIZE), float(10 ** random.uniform(-3, 0))
        system = System(slope, mass=self.mass, params=jnp.asarray(n))
        until = float(1.001 * 0.5 * h / abs(n @ v))  # just after the first event
        run = terraced(system, 0.5 * h * n / (n @ n), v, h, until)
        return Event(n, h, v, np.asarray(run.v[-1]))

    def k(self, x: Event) -> float:
        return float(x.n @ self.inverse @ x.n)

    def passes(self, x: Event) -> bool:
        return bool((x.n @ x.before) ** 2 > 2 * x.h * self.k(x))

    @property
    def uphill(self) -> list[Event]:
        """Those that overcome a step upwards."""
        return [x for x in self.found if x.n @ x.before > 0 and self.passes(x)]

    @property
    def downhill(self) -> list[Event]:
        return [x for x in self.found if x.n @ x.before < 0]

    def printed(self, x: Event, n: np.ndarray, change: float) -> np.ndarray:
        """(15) for the change −h of V, (18) for h, as printed."""
        a, k = float(n @ x.before), float(n @ self.inverse @ n)
        return x.before - (a + np.sqrt(a**2 - 2 * change * k)) / k * (self.inverse @ n)

    def corrected(self, x: Event) -> np.ndarray:
        """(25)."""
        a, k = float(x.n @ x.before), self.k(x)
        change = x.h if a >= 0 else -x.h
        if a**2 <= 2 * change * k:
            return x.before - 2 * a / k * (self.inverse @ x.n)
        return x.before + (-a + np.sign(change) * np.sqrt(a**2 - 2 * change * k)) / k * (self.inverse @ x.n)

    def gained(self, x: Event) -> float:
        """The error of (12) relative to the kinetic energy, of the velocity after the event by EnergyStepping."""
        square = lambda v: float(v @ self.mass @ v)
        step = 2 * x.h * np.sign(x.n @ x.before) if self.passes(x) or x.n @ x.before < 0 else 0.0
        return float(abs(square(x.after) - square(x.before) + step) / square(x.before))


def advances(after: list[np.ndarray], events: list[Event]) -> float:
    """The share of the motions that go on in the direction in which they came."""
    return float(np.mean([(x.n @ v) * (x.n @ x.before) > 0 for v, x in zip(after, events, strict=True)]))


def multipliers(ratio: float = 1e7) -> tuple[float, float]:
    """The relative errors of λ by the stable form and by (25) in double precision, where a = ratio · √(2ΔV k)."""
    a, change, k = ratio, 0.5, 1.0
    with localcontext() as context:
        context.prec = 60
        exact = float(-Decimal(a) + (Decimal(a) ** 2 - 1).sqrt())
    stable, printed = -2 * change / (a + np.sqrt(a**2 - 2 * change * k)), (-a + np.sqrt(a**2 - 2 * change * k)) / k
    return abs(stable / exact - 1), abs(printed / exact - 1)


@experiment(
    PAPER,
    "jump-conditions",
    "The formulas for an event: (18) and (15) as printed send the particle back",
    "Sections 2.1 and 2.3, (12) to (27)",
)
def jump_conditions(quick: bool) -> Outcome:
    """Random motions in four dimensions with a random mass matrix meet their first edge. The velocity after it is
    compared with the formulas of the paper, as printed and corrected."""
    events = Events(60 if quick else 200)
    up, down = events.uphill, events.downhill
    checks = [
        *energy_checks(events),
        *direction_checks(events, up, down),
        *level_checks(),
    ]
    return Outcome(
        checks,
        draw_jumps(events),
        motion=moving_jump,
        parameters={"events": len(events.found), "coordinates": SIZE, "seed": 0},
        left_out=("200 events instead of 60",),
    )


def energy_checks(events: Events) -> list[Check]:
    apart = [np.max(np.abs(x.after - events.corrected(x))) / np.max(np.abs(x.before)) for x in events.found]
    return [
        Check(
            "largest error of the energy over an event",
            max(events.gained(x) for x in events.found),
            (None, 1e-12),
            paper="q̇⁺ᵀM q̇⁺ = q̇⁻ᵀM q̇⁻ − 2ΔV",
            where="(12)",
            note="relative to the kinetic energy",
        ),
        Check(
            "velocity after an event, EnergyStepping against (25)",
            max(apart),
            (None, 1e-11),
            paper="(24), (25)",
            where="Definition 2.1",
            note="relative",
        ),
    ]


def direction_checks(events: Events, up: list[Event], down: list[Event]) -> list[Check]:
    """Whether particles go on over the edge."""
    eighteen = advances([events.printed(x, x.n, x.h) for x in up], up)
    fifteen = advances([events.printed(x, -x.n, -x.h) for x in down], down)
    gradient = advances([events.printed(x, x.n, -x.h) for x in down], down)
    ahead = "the system overcomes the energy barrier"
    return [
        Check(
            "steps uphill by (18) as printed: share that goes on uphill",
            eighteen,
            (0, 0),
            verdict="information",
            note="the printed form, as a control: it sends the particle back; the square root needs a minus sign, as "
            "in (25)",
        ),
        Check(
            "steps uphill by EnergyStepping: share that goes on uphill",
            advances([x.after for x in up], up),
            (1, 1),
            paper=f"all: {ahead}",
            where="(18)",
            verdict="corrected",
            note="q̇⁺ = q̇⁻ − (a − √(a² − 2hk))/k · M⁻¹n",
        ),
        Check(
            "steps downhill by (15), n in the direction of advance: share that goes on downhill",
            fifteen,
            (0, 0),
            verdict="information",
            note="the printed form, as a control: with this n = −∇V the particle is sent back",
        ),
        Check(
            "steps downhill by (15), n = ∇V: share that goes on downhill",
            gradient,
            (1, 1),
            paper="all",
            where="(15)",
            verdict="corrected",
            note="(15) holds for n = ∇V, which points uphill",
        ),
        tie_check(),
    ]


def tie_check() -> Check:
    """V = q, h = ½, q̇ = 1: the kinetic energy is exactly that of the step."""
    run = terraced(System(first), [0.25], [1.0], 0.5, 0.3)
    return Check(
        "a² = 2ΔV k: velocity after the event over that before",
        run.v[-1, 0],
        (-1, -1),
        paper="reflected by “≤” in Algorithm 2; 0 by “<” in (25), and the particle would stay on the edge",
        where="Algorithm 2, (25)",
        verdict="corrected",
        note="reflected: Algorithm 2 is right",
    )


def level_checks() -> list[Check]:
    """V = q from the edge q = 0, h = 1: where the first step upwards is found; and how λ is computed."""
    run = terraced(System(first), [0.0], [3.0], 1.0, 0.5)
    stable, printed = multipliers()
    return [
        Check(
            "V(q₁) − V(q₀) over ΔV at the first step",
            3.0 * run.events.times[0],
            (1 - 1e-12, 1 + 1e-12),
            paper="V(q₁) − V(q₀) + ΔV = 0, ΔV in {0, h, −h}",
            where="(27), Algorithm 1",
            verdict="information",
            note="with ΔV of Definition 2.1 the sign would be −; since ΔV takes both signs, the roots are the same",
        ),
        Check(
            "λ = −2ΔV/(a + √(a² − 2ΔV k)) at a = 1e7 √(2ΔV k), relative error",
            stable,
            (None, 1e-15),
            verdict="information",
            note=f"the same number as (25) without cancellation, which leaves it an error of {printed:.1g} here",
        ),
    ]


def moving_jump() -> Scene:
    """A particle on a staircase by EnergyStepping, and by (18) as printed from the first edge on."""
    n, h, v = np.array([1.0, 0.0]), 0.5, np.array([1.6, 0.8])
    run = terraced(System(first), [-0.45, 0.0], v, h, 3.0, 239, offset=0.0)
    t = np.asarray(run.t)
    met = float(run.events.times[0])
    back = v - (n @ v + np.sqrt((n @ v) ** 2 - 2 * h)) * n
    start = np.array([-0.45, 0.0])
    wrong = np.where(t[:, None] < met, start + t[:, None] * v, start + met * v + (t[:, None] - met) * back)
    edges = [np.array([(h * k, 0.0), (h * k, 2.4)]) for k in range(-3, 6)]
    return shown(
        t,
        np.stack([np.asarray(run.q), wrong], axis=1),
        lines=edges,
        colors=(0, 1),
        names={"energy-stepping": 0, "(18) as printed": 1},
        series={"V over h": (t, np.asarray(run.q)[:, 0] / h)},
        trail=240,
        title="An event uphill, and (18) as printed",
        subtitle="V = x, h = ½; the lines are the edges",
    )


def draw_jumps(events: Events) -> Figure:
    """The velocity along ∇V after events against that before; and rays over an edge."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    scale = lambda x: np.sqrt(2 * x.h * events.k(x))
    before = np.array([x.n @ x.before / scale(x) for x in events.found])
    after = np.array([x.n @ x.after / scale(x) for x in events.found])
    a = np.linspace(-4, 4, 801)
    root = np.sqrt(np.maximum(a**2 - np.sign(a), 0))
    true = np.where(a < 0, -root, np.where(a <= 1, -a, root))
    left.plot(a, true, "k-", lw=1, label="(25)")
    left.plot(a[a > 1], -root[a > 1], "C3--", lw=1.2, label="(18) as printed")
    left.plot(a[a < 0], root[a < 0], "C1:", lw=1.6, label="(15), n in the direction of advance")
    left.plot(before, after, "o", ms=4, color="C0", label="EnergyStepping")
    left.set(xlim=(-4, 4), ylim=(-4.5, 4.5), xlabel="q̇⁻·n/√(2hk), n = ∇V", ylabel="q̇⁺·n/√(2hk)")
    left.set_title("The velocity along ∇V before and after an event")
    left.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.45, 0.0))
    left.grid(alpha=0.25)
    draw_rays(right)
    return figure


def draw_rays(axes: Axes) -> None:
    """Rays that meet an edge from below with the same speed at several angles."""
    for angle, color in zip(np.deg2rad([20, 45, 60, 80]), ("C0", "C2", "C4", "C1"), strict=True):
        v = 1.6 * np.array([np.sin(angle), np.cos(angle)])
        root = v[1] ** 2 - 1.0  # 2hk = 1
        out = np.array([v[0], np.sqrt(root) if root > 0 else -v[1]])
        label = f"{np.rad2deg(angle):.0f}° " + ("passes" if root > 0 else "is reflected")
        axes.plot([-v[0], 0, out[0]], [-v[1], 0, out[1]], "-", color=color, lw=1.6, label=label)
        if root > 0:
            axes.plot([0, v[0]], [0, -np.sqrt(root)], "--", color=color, lw=1)
    axes.axhline(0, color="k", lw=1)
    axes.set(aspect="equal", xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), title="Speed 1.6 √(2h), uphill (dashed: (18))")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
