"""Labels: what the coordinates of a system stand for, such as atoms in a box. They change no number of a run; files for
other programs and the analysis of many particles read them."""

from __future__ import annotations

import abc
from typing import Any

from ..errors import InputError
from .checks import shown


class Labels(abc.ABC):
    """The base of `gm.md.Atoms`. Labels are compared and hashed, since they are a static part of the system."""

    @abc.abstractmethod
    def check(self, q_shape: tuple[int, ...]) -> None:
        """Raise an InputError where positions of this shape do not fit."""

    @abc.abstractmethod
    def in_box(self, box: Any) -> Labels:
        """The same labels in the periodic box of the potential. An error where they were given another box."""


def checked_labels(atoms: Any) -> Any:
    if atoms is not None and not isinstance(atoms, Labels):
        raise InputError(f'atoms must be labels such as gm.md.Atoms("OHH"), or None, not {shown(atoms)}.')
    return atoms
