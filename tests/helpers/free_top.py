"""The free asymmetric top in closed form: the momentum in the body by Jacobi's elliptic functions, the attitude by one
quadrature (Landau, Lifshitz, Mechanics, section 37)."""

from __future__ import annotations

import numpy as np
from scipy.special import ellipj


class FreeTop:
    """A top with I₁ < I₂ < I₃ and |m|² > 2T I₂, which turns about its third axis; m is in the body.

    Ω = (a cn u, b sn u, c dn u), u = λt + start. In axes with the momentum in space along e₃ the attitude is
    R = Rz(φ)Rx(θ)Rz(ψ), with Rᵀe₃ = m/|m| and φ̇ = |m|(m₁²/I₁ + m₂²/I₂)/(m₁² + m₂²).
    """

    def __init__(self, inertia=(1.0, 2.0, 2.8), energy=1.0, square=4.6, start=0.4):
        i1, i2, i3 = self.inertia = np.array(inertia)
        above, below = 2 * energy * i3 - square, square - 2 * energy * i1
        assert above > 0 < square - 2 * energy * i2
        self.size = np.sqrt(square)
        self.amplitudes = np.sqrt([above / (i1 * (i3 - i1)), above / (i2 * (i3 - i2)), below / (i3 * (i3 - i1))])
        self.rate = np.sqrt((i3 - i2) * below / (i1 * i2 * i3))
        self.modulus = (i2 - i1) * above / ((i3 - i2) * below)
        self.start = start

    def momentum(self, t):
        sn, cn, dn, _ = ellipj(self.rate * np.asarray(t) + self.start, self.modulus)
        return self.inertia * self.amplitudes * np.stack([cn, sn, dn], axis=-1)

    def angle(self, t: float, panels: int = 400) -> float:
        """φ by Gauss–Legendre quadrature."""
        nodes, weights = np.polynomial.legendre.leggauss(12)
        edges = np.linspace(0, t, panels + 1)
        middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
        m = self.momentum(middle[:, None] + half[:, None] * nodes)
        slope = self.size * np.sum(m[..., :2] ** 2 / self.inertia[:2], -1) / np.sum(m[..., :2] ** 2, -1)
        return float(np.sum(half[:, None] * weights * slope))

    def attitude(self, t: float) -> np.ndarray:
        about = lambda c, s, k: np.roll(np.array([[1, 0, 0], [0, c, -s], [0, s, c]]), k, axis=(0, 1))
        x, y, z = self.momentum(t) / self.size
        across = np.hypot(x, y)
        phi = self.angle(t)
        return about(np.cos(phi), np.sin(phi), 2) @ about(z, across, 0) @ about(y / across, x / across, 2)
