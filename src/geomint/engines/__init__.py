"""How a block of steps is executed."""

from .block import Clock, Layout, advance, begin
from .xla import Xla, choose

__all__ = ["Clock", "Layout", "Xla", "advance", "begin", "choose"]
