"""What the engines of straight-line code share: they try, and where they can't, the reference engine runs and the reason is told."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

from ...methods import Carry, State, protocols
from ..block import Kept, Observed
from ..xla import Xla
from .values import NotCovered


@dataclasses.dataclass
class Straight(Xla):
    """An engine that runs a program of its own, or none."""

    name: ClassVar[str] = "straight"
    reason: str = ""
    program: Any = None

    def begin(self, state: State) -> tuple[Carry, Observed]:
        plain, self.method = self.method, protocols.for_scalar_code(self.method, self.spread != "one")
        carry, seen = super().begin(state)
        if self.attempt(carry):
            return carry, seen
        self.method = plain
        return super().begin(state)

    def attempt(self, carry: Carry) -> bool:
        """Make the program for a carry of the method's form for straight-line code; where there is none, the reason is noted."""
        try:
            self.program = self.made(carry)
        except NotCovered as reason:
            self.reason = str(reason)
        except Exception as reason:  # another version of JAX or LLVM: whatever it is, there is the reference engine
            self.reason = f"this program ({type(reason).__name__}: {str(reason)[:200]})"
        return self.program is not None

    @abc.abstractmethod
    def made(self, carry: Carry) -> Any:
        """The program, or NotCovered."""

    @abc.abstractmethod
    def run_program(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Kept) -> tuple[Carry, Kept]:
        """`advance` by the program."""

    def advance(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Kept) -> tuple[Carry, Kept]:
        go = super().advance if self.program is None else self.run_program
        return go(carry, first, steps, blocks, buffer)

    @property
    def described(self) -> str:
        return self.name if self.program is not None else f"xla (the {self.name} engine does not cover {self.reason})"
