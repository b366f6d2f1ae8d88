"""certify: a certificate of measured structure for any (system, method), each number beside the claim."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import measure
from .checks import positive, whole
from .errors import GeomintError
from .measure import Point
from .methods import Method, as_method
from .run.inputs import phase
from .system import Stated, checked_system

# Round-off of one step, its derivative and a few steps; a broken property at a large step lies far above.
EXACT = 1e-11


@dataclasses.dataclass(frozen=True)
class Row:
    """One property: the number measured, what it says, what the method claims, and whether the two agree."""

    name: str
    measured: float
    holds: bool | None
    claim: str
    agrees: bool | None

    @property
    def verdict(self) -> str:
        return "" if self.agrees is None else ("as claimed" if self.agrees else "NOT AS CLAIMED")


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Measured order, symplecticity, symmetry, reversibility, momentum maps, energy and constraints of a method on a system."""

    method: str
    system: str
    dt: float
    large_dt: float
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing measured contradicts a claim."""
        return all(row.agrees is not False for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_dict(self) -> dict[str, Any]:
        rows = {r.name: {"measured": r.measured, "holds": r.holds, "claim": r.claim, "agrees": r.agrees} for r in self.rows}
        return {"method": self.method, "system": self.system, "dt": self.dt, "large_dt": self.large_dt, "ok": self.ok, "properties": rows}

    def __str__(self) -> str:
        head = f"{self.method} on {self.system}, dt = {self.dt:g} (one-step properties at {self.large_dt:g})"
        holds = {True: "yes", False: "no", None: ""}
        table = [("property", "measured", "holds", "claimed", "")]
        table += [(r.name, f"{r.measured:.3g}", holds[r.holds], r.claim, r.verdict) for r in self.rows]
        widths = [max(len(line[i]) for line in table) for i in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([head, lines[0], "-" * len(lines[0]), *lines[1:]])

    __repr__ = __str__


def _exact(name: str, measured: float, claimed: bool) -> Row:
    holds = bool(measured < EXACT)
    return Row(name, measured, holds, "yes" if claimed else "no", holds or not claimed)


def certify(system: Stated, method: Method, q0: Any, v0: Any = None, *, p0: Any = None, dt: float, steps: int = 20_000) -> Certificate:
    """Measure the structure of a method on a system near (q0, v0), with steps around dt.

    order               exponent of the error against an independent reference, from dt down, extrapolated to h → 0
    symplecticity       defect of the derivative of one large step (on the constraint manifold's tangent bundle)
    symmetry            Φ(−h) after Φ(h);  reversibility: the same by flipping the momenta
    energy drift        per unit time over `steps` steps; it holds where the drift stays inside the oscillation
    momentum maps       of the stated symmetries, over the same run; constraint residuals likewise

    A property that a method does not claim may still hold on a system (a quadratic potential hides much).
    """
    if jnp.result_type(float) != jnp.float64:
        raise GeomintError("certify needs float64: round-off in float32 hides what it measures. Unset JAX_ENABLE_X64.")
    checked_system(system, callee="certify")
    method = as_method(method)
    dt, steps = positive(dt, "dt", "certify"), whole(steps, "steps", "certify", least=1, most=10**9)
    method.check(system)
    traits = method.traits
    if getattr(system, "force", None) is not None:  # forces do work and break time reversal: nothing of this is claimed
        traits = dataclasses.replace(traits, symplectic=False, symmetric=False, reversible=False, energy=None, momentum_maps=None)
    start = Point(*phase(system, q0, v0, p0))
    # A few steps away from the start: initial data are often too symmetric to show anything.
    at = Point(*(np.asarray(x) for x in measure.flow(method, system, start, dt, 3)))
    large = measure.large_step(method, system, at, dt)
    first = large / 4 if traits.steps > 2 else large  # a multistep method is watched four times as long
    rows = []
    if not traits.event_driven:  # which have no step
        slopes = (measure.order(method, system, start, factor * first).order for factor in (1, 2, 4))
        slope = next((s for s in slopes if not np.isnan(s)), np.nan)  # errors at round-off show no slope: look at longer steps
        rows.append(Row("order", slope, None, str(traits.order), None if np.isnan(slope) else bool(slope > traits.order - 0.25)))
    rows.append(_exact("symplecticity", measure.symplecticity(method, system, at, large), traits.symplectic))
    rows.append(_exact("symmetry", measure.symmetry(method, system, at, large), traits.symmetric))
    rows.append(_exact("reversibility", measure.reversibility(method, system, at, large), traits.reversible))
    long = measure.long_run(method, system, start, dt, steps)
    bounded = bool(long.excess < 1)
    rows.append(Row("energy drift", long.drift, bounded, traits.energy or "none", bounded or traits.energy is None))
    rows.append(Row("energy band", long.band, None, "", None))
    for name, symmetry in system.named_symmetries.items():
        claimed = traits.momentum_maps == "all" or (traits.momentum_maps == "linear" and symmetry.degree == 0)
        rows.append(_exact(f"momentum map {name}", long.momentum[name], claimed))
    if system.constraint is not None:
        rows.append(_exact("constraint g(q)", long.constraint, traits.constrained))
        rows.append(_exact("constraint G v", long.tangency, traits.tangent))
    return Certificate(method.name, system.origin or "a system", dt, large, tuple(rows))
