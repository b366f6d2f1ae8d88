"""What the engines of scalar code (LLVM, Pallas) share: where such an engine does not cover a program, the reference
engine runs in its place, and `described` gives the reason."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

from ...methods import Carry, State, protocols
from ..block import Buffer
from ..xla import Xla
from .values import NotCovered


@dataclasses.dataclass
class ScalarEngine(Xla):
    """An engine with a compiled program of its own, and the reference engine as a fallback.

    program:  the compiled program, None where there is none
    reason:   why there is none
    """

    name: ClassVar[str] = "scalar"
    reason: str = ""
    program: Any = None

    def start(self, state: State) -> Carry:
        plain, self.method = self.method, protocols.for_scalar_code(self.method, self.spread != "one")
        carry = super().start(state)
        if self.auxiliary is not None:
            self.reason = "systems with neighbour lists"
            return carry
        if self.attempt(carry):
            return carry
        self.method = plain
        return super().start(state)

    def attempt(self, carry: Carry) -> bool:
        """Compile the program for this carry, which is of the method's form for scalar code; False, and the reason in
        `reason`, where that fails."""
        try:
            self.program = self.compile_program(carry)
        except NotCovered as reason:
            self.reason = str(reason)
        except Exception as reason:  # another version of JAX or LLVM: the reference engine covers everything
            self.reason = f"this program ({type(reason).__name__}: {str(reason)[:200]})"
        return self.program is not None

    @abc.abstractmethod
    def compile_program(self, carry: Carry) -> Any:
        """The compiled program; raises NotCovered with the reason where there is none."""

    @abc.abstractmethod
    def run_program(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Buffer) -> tuple[Carry, Buffer]:
        """`advance`, carried out by the compiled program."""

    def advance(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Buffer) -> tuple[Carry, Buffer]:
        go = super().advance if self.program is None else self.run_program
        return go(carry, first, steps, blocks, buffer)

    @property
    def engine_name(self) -> str:
        return self.name if self.program is not None else Xla.name

    @property
    def described(self) -> str:
        return self.name if self.program is not None else f"xla (the {self.name} engine does not cover {self.reason})"
