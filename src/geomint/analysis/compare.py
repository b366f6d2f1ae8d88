"""compare: methods on one system, their errors against an independent reference beside their cost."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import GeomintError, InputError, nearest
from ..methods import Method, as_method, named
from ..models import Model
from ..numerics.keywords import checked_keywords
from ..run.defaults import of_model
from ..run.inputs import phase
from ..system.checks import positive, shown, whole
from ..system.constraints import measured_at
from ..system.system import Stated, checked_system
from .reference import Point
from .work_precision import SAMPLES, Measured, Motion, known_motion

COARSEST = 4  # times the step of the model, for one force a step: the largest step of the diagram
HEADINGS = ("method", "dt", "error", "energy error", "energy drift", "momentum", "CPU s per unit of time")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Methods on a system, measured: rows of gm.compare, one for each method and step.

    rows:      what was measured; see `to_dict` for the names
    system:    what moves
    t_end:     errors are measured at 20 times up to here
    accuracy:  of the reference
    """

    rows: tuple[Measured, ...]
    system: str
    t_end: float
    accuracy: float

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, in the order of the call."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def line(self, method: str) -> list[Measured]:
        """The points of a method at which it computes the motion, from the largest step to the smallest."""
        rows = [row for row in self.rows if row.method == method and row.usable]
        return sorted(rows, key=lambda row: -row.dt)

    def seconds_for(self, method: str, accuracy: float) -> float:
        """CPU seconds per unit of time that a method needs for an error, interpolated between its points on logarithmic
        scales; inf where it does not reach that error."""
        if method not in self.methods:
            raise InputError(
                f"there is no method {shown(method)} in this comparison.{nearest(str(method), self.methods)}"
            )
        return seconds_for(self.line(method), positive(accuracy, "accuracy", "seconds_for"))

    def best(self, accuracy: float) -> str:
        """The method that reaches an error at the least cost."""
        accuracy = positive(accuracy, "accuracy", "best")
        cost = {method: self.seconds_for(method, accuracy) for method in self.methods}
        method = min(cost, key=lambda name: cost[name])
        if not math.isfinite(cost[method]):
            least = min((row.error for row in self.rows if row.usable), default=math.nan)
            raise InputError(
                f"no method of this comparison reaches an error of {accuracy:g}; the least is {least:.2g}."
            )
        return method

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "rows": [dataclasses.asdict(row) for row in self.rows]}

    def _table(self) -> list[tuple[str, ...]]:
        number = lambda x: "–" if math.isnan(x) else f"{x:.2g}"
        lines: list[tuple[str, ...]] = [HEADINGS]
        for row in self.rows:
            numbers = (row.error, row.energy_error, row.energy_drift, row.momentum, row.seconds)
            cells = ["failed", *["–"] * 3, number(row.seconds)] if math.isnan(row.error) else map(number, numbers)
            lines.append((row.method, f"{row.dt:.6g}", *cells))
        return lines

    def _head(self) -> str:
        return f"{self.system} up to t = {self.t_end:g}, errors against a reference accurate to {self.accuracy:.0e}"

    def __str__(self) -> str:
        table = self._table()
        widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([self._head(), lines[0], "-" * len(lines[0]), *lines[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *rest = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._table()]
        head = first.replace("td>", "th>")
        rows = "".join(f"<tr>{line}</tr>" for line in rest)
        return f"<p>{html.escape(self._head())}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def plot(self, path: str | Path | None = None) -> Any:
        """The work-precision diagram: the error over CPU time per unit of simulated time; written to `path` where one
        is given."""
        from ..plots.work_precision import diagram

        return diagram(self, path)


def seconds_for(line: Sequence[Measured], accuracy: float) -> float:
    """CPU seconds per unit of time for an error, along the points of one method from the largest step on."""
    if min((row.error for row in line), default=math.inf) > accuracy:
        return math.inf
    first = next(k for k, row in enumerate(line) if row.error <= accuracy)
    if first == 0:
        return line[0].seconds
    before, after = line[first - 1], line[first]
    share = math.log(before.error / accuracy) / math.log(before.error / max(after.error, 1e-300))
    return math.exp((1 - share) * math.log(before.seconds) + share * math.log(after.seconds))


class Problem(NamedTuple):
    """What compare and recommend measure on."""

    system: Stated
    start: Point
    dt: float
    longest: float  # up to here errors are measured where t_end is not given
    method: Method | None  # that of the model


def problem(callee: str, system: Stated | Model, q0: Any, v0: Any, p0: Any, dt: Any, t_end: Any) -> Problem:
    """The arguments that compare and recommend share, checked."""
    if jnp.result_type(float) != jnp.float64:
        raise GeomintError(f"{callee} needs float64: errors in float32 are those of rounding. Unset JAX_ENABLE_X64.")
    if not isinstance(system, Model) and q0 is not None and dt is None and t_end is None:
        raise InputError(f"{callee} needs t_end, or dt, a step that resolves the motion; a model has both.")
    needless = ("method", "t_end", *(("dt",) if t_end is not None else ()))
    call = of_model(callee, system, q0, v0, p0, None, dt, not_needed=needless)
    checked_system(call.system, callee=callee)
    if call.dt is None and t_end is not None:
        step = float(positive(t_end, "t_end", callee)) / 1000
    else:
        step = float(positive(call.dt, "dt", callee))
    start = Point(*(np.asarray(x) for x in phase(call.system, call.q0, call.v0, p0)))
    longest = system.t_end if isinstance(system, Model) else math.inf
    return Problem(measured_at(call.system, start.q), start, step, longest, call.method)


@checked_keywords
def compare(
    system: Stated | Model,
    methods: Iterable[Method | str],
    q0: Any = None,
    v0: Any = None,
    *,
    p0: Any = None,
    dt: float | None = None,
    t_end: float | None = None,
    points: int = 6,
) -> Comparison:
    """Measure methods on a system: their errors against an independent reference, the energy, the momentum maps, and
    the CPU time per unit of simulated time, for steps around dt.

    system:   a System or a LagrangianSystem with q0 and v0; or a model, which has all but the methods.
    methods:  methods, or their names: [gm.Verlet(), "Composition(Verlet(), order=6)"]
    dt:       a step that works for a method with one force evaluation a step. Each method is measured with `points`
              steps, each half of the one before, from four times dt times its force evaluations a step: all methods
              cost about the same at their largest step.
    points:   steps of each method
    t_end:    errors are measured up to this time. Without it, up to that of the model, at most 2000 steps of dt, or as
              far as two independent references agree: the error of a chaotic motion grows without bound.

    The CPU time is that of the engine which runs a long run of one trajectory, without compiling and without saves.
    `print(comparison)` is the table, `comparison.plot()` the work-precision diagram, `comparison.best(1e-6)` the
    cheapest method for that error.
    """
    made = problem("compare", system, q0, v0, p0, dt, t_end)
    chosen = [named(method) if isinstance(method, str) else as_method(method, "methods") for method in _listed(methods)]
    for method in chosen:
        check_comparable(method, made.system)
    points = whole(points, "points", "compare", least=1, most=40)
    end = None if t_end is None else float(positive(t_end, "t_end", "compare"))
    motion = known_motion(made.system, made.start, end, made.longest, made.dt)
    rows = tuple(row for method in chosen for row in measured_line(motion, method, made.dt, points))
    return Comparison(rows, made.system.origin or "a system", motion.t_end, motion.accuracy)


def measured_line(motion: Motion, method: Method, dt: float, points: int) -> list[Measured]:
    """The points of a method, from the largest step on."""
    largest = COARSEST * dt * (method.traits.forces or method.traits.order)
    fewest = max(SAMPLES, round(motion.t_end / largest))
    counts = [2**k * fewest for k in range(points)]
    return list(dict.fromkeys(motion.measured(method, steps) for steps in counts))


def check_comparable(method: Method, system: Stated) -> None:
    """An error for a method that does not integrate the system, or whose motion has no error against a reference."""
    if method.traits.stochastic:
        raise InputError(f"{method.name} draws random numbers: its motion has no error against a reference.")
    if method.traits.event_driven:
        raise InputError(f"{method.name} chooses its own times, without a step that could be compared.")
    method.check(system)


def _listed(methods: Any) -> list[Any]:
    if isinstance(methods, (str, Method)) or not isinstance(methods, Iterable):
        raise InputError(f'methods must be a list, such as [gm.Verlet(), "gauss"], not {shown(methods)}.')
    found = list(methods)
    if not found:
        raise InputError("methods is empty: give at least one method.")
    return found
