"""`Module`, the base class of all pytrees with methods."""

from __future__ import annotations

import equinox as eqx


class Module(eqx.Module):
    """An equinox module whose methods are Python's own bound methods.

    equinox makes each method a pytree when it is looked up, so that methods can be arguments of jitted functions.
    Nothing here needs that, and it takes 5 % of the time of tracing a run.
    """

    __getattribute__ = object.__getattribute__
