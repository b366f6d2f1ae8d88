"""How a block of steps is executed."""

from .block import Clock, Kept, Layout, advance, begin, march
from .xla import Xla, choose

__all__ = ["Clock", "Kept", "Layout", "Xla", "advance", "begin", "choose", "march"]
