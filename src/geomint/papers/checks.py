"""Check: a measured number beside what the paper says of it, with a verdict."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args

Verdict = Literal["reproduced", "corrected", "contradicted", "chaotic", "information"]
Range = tuple[float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured number, the range it must lie in, and what the paper says.

    claim:     what is measured, in words; rows of one experiment have different claims
    measured:  the number
    range:     (low, high): low ≤ measured ≤ high, None where there is no bound on a side. NaN is never in range
    paper:     what the paper states: its number, or words; None where it says nothing
    where:     the figure, equation or section; empty for that of the experiment
    verdict:   what the range shows when it holds, see below
    note:      what is true where the paper is wrong, or what the number depends on
    spread:    the number is `measured` ± `spread`, as of an ensemble
    rtol:      the relative difference to the number in docs/results that the tests accept. Where it is None
               (chaotic motion) or there is no lower bound (rounding errors), the digits differ between machines and
               only the range counts

    The verdicts:

    reproduced     the paper's statement holds. If it is a number, it lies in the range.
    corrected      the paper has a slip (a sign, a factor, an index, a unit); the number is that of the corrected form.
    contradicted   the statement does not hold. If it is a number, it lies outside the range.
    chaotic        the paper shows one chaotic trajectory; the range is that of an ensemble.
    information    no statement of the paper: a control, a wall time. It may have no range, and proves nothing.
    """

    claim: str
    measured: float
    range: Range | None = None
    paper: float | str | None = None
    where: str = ""
    verdict: Verdict = "reproduced"
    note: str = ""
    spread: float | None = None
    rtol: float | None = 0.02

    def __post_init__(self) -> None:
        object.__setattr__(self, "measured", float(self.measured))  # NumPy scalars become floats, which JSON can hold
        if self.verdict not in get_args(Verdict):
            raise ValueError(f"{self.claim!r}: there is no verdict {self.verdict!r}; {', '.join(get_args(Verdict))}.")
        if self.range is not None:
            low, high = (None if bound is None else float(bound) for bound in self.range)
            object.__setattr__(self, "range", None if low is None and high is None else (low, high))
        if self.range is None and self.verdict != "information":
            raise ValueError(f"the check {self.claim!r} has no bound, so it cannot fail; its verdict is 'information'.")
        if isinstance(self.paper, int | float):
            object.__setattr__(self, "paper", float(self.paper))
            self._agree_with_paper(float(self.paper))

    def _agree_with_paper(self, stated: float) -> None:
        """A number of the paper is in the range where it is reproduced, and outside where it is contradicted."""
        if self.verdict == "reproduced" and not self._inside(stated):
            raise ValueError(f"{self.claim!r}: the paper's number, {stated:g}, is not in the range {self.range_text}.")
        if self.verdict == "contradicted" and self._inside(stated):
            raise ValueError(f"{self.claim!r}: the paper's number, {stated:g}, is in the range {self.range_text}.")

    @classmethod
    def near(cls, claim: str, measured: float, value: float, share: float = 0.05, **others: Any) -> Check:
        """A check that `measured` is `value` up to the relative difference `share`."""
        low, high = sorted((value * (1 - share), value * (1 + share)))
        return cls(claim, measured, (low, high), **others)

    def _inside(self, number: float) -> bool:
        if self.range is None:
            return True
        low, high = self.range
        return not math.isnan(number) and (low is None or number >= low) and (high is None or number <= high)

    @property
    def ok(self) -> bool:
        """The number is in its range; without a range always."""
        return self._inside(self.measured)

    @property
    def judged(self) -> bool:
        """The row says something of the paper."""
        return self.verdict != "information"

    @property
    def outcome(self) -> str:
        """The verdict, or FAILED where the number is out of its range."""
        return self.verdict if self.ok else "FAILED"

    @property
    def range_text(self) -> str:
        """The range as text: "0.93 … 0.94", "≤ 1e-13", "= 4", "–" without one."""
        if self.range is None:
            return "–"
        low, high = self.range
        if low is None or high is None:
            return f"≤ {high:.4g}" if low is None else f"≥ {low:.4g}"
        if low == high:
            return f"= {low:.4g}"
        digits = next((d for d in range(4, 17) if f"{low:.{d}g}" != f"{high:.{d}g}"), 17)
        return f"{low:.{digits}g} … {high:.{digits}g}"

    @property
    def measured_text(self) -> str:
        """The number, with its spread."""
        return f"{self.measured:.5g}" + ("" if self.spread is None else f" ± {self.spread:.2g}")

    @property
    def paper_text(self) -> str:
        """What the paper states, "–" for nothing."""
        return "–" if self.paper is None else self.paper if isinstance(self.paper, str) else f"{self.paper:.6g}"

    def agrees(self, recorded: float) -> bool:
        """Whether a number recorded earlier is the same up to `rtol`, or at least in the same range."""
        if self.rtol is None or self.range is None or self.range[0] is None:
            return self._inside(recorded)
        return abs(self.measured - recorded) <= self.rtol * abs(recorded)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN or infinity: such a number is null."""
        low, high = self.range or (None, None)
        finite = self.measured if math.isfinite(self.measured) else None
        row = {"claim": self.claim, "measured": finite, "spread": self.spread, "low": low, "high": high}
        about = {"paper": self.paper, "where": self.where, "verdict": self.verdict, "note": self.note}
        return {**row, **about, "ok": self.ok}
