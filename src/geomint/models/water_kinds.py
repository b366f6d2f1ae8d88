"""The constants of models of water: TIP3P, SPC/E and TIP4P."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MASSES = np.array([15.999, 1.008, 1.008])  # O, H, H


class Kind(NamedTuple):
    """A model of water, in ångströms, degrees, charges of the proton, and kcal/mol."""

    bond: float  # O–H
    angle: float  # H–O–H
    charge: float  # of each hydrogen; the opposite of both is on the oxygen, or on the massless site
    repulsion: float  # A of A/r¹² − C/r⁶ between oxygens
    attraction: float  # C
    offset: float = 0.0  # of the negative charge from the oxygen towards the hydrogens

    @property
    def sides(self) -> np.ndarray:
        """The distances OH, OH, HH."""
        return self.bond * np.array([1.0, 1.0, 2 * np.sin(np.deg2rad(self.angle) / 2)])

    @property
    def atoms(self) -> np.ndarray:
        """O, H, H (3, 3), with the hydrogens symmetric about x in the x–y plane and the centre of mass at 0."""
        half = np.deg2rad(self.angle) / 2
        x, y = self.bond * np.cos(half), self.bond * np.sin(half)
        molecule = np.array([[0.0, 0.0, 0.0], [x, y, 0.0], [x, -y, 0.0]])
        return molecule - MASSES @ molecule / MASSES.sum()

    @property
    def share(self) -> float:
        """a, where the negative charge is at (1 − 2a) x_O + a (x_H + x_H')."""
        return self.offset / (2 * self.bond * float(np.cos(np.deg2rad(self.angle) / 2)))


# Jorgensen and others, J. Chem. Phys. 79 (1983) 926, table I; Berendsen, Grigera, Straatsma, J. Phys. Chem. 91 (1987)
# 6269, with the Lennard-Jones constants of SPC.
KINDS = {
    "tip3p": Kind(0.9572, 104.52, 0.417, 582e3, 595.0),
    "spce": Kind(1.0, 109.47, 0.4238, 629.4e3, 625.5),
    "tip4p": Kind(0.9572, 104.52, 0.52, 600e3, 610.0, 0.15),
}
