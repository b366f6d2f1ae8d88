"""Charged particles in electric and magnetic fields: traps, a mirror and a tokamak.

Units: mass and charge 1, so that B is the angular frequency of gyration. `Boris` moves all of them; `MagneticSplitting`
is for the uniform field of the Penning trap, and any splitting for the Paul trap, which has no magnetic field.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..methods import Boris, MagneticSplitting
from ..system.magnetic import cross
from ..system.system import System
from .base import Model, Positive, model


@model
def penning_trap(frequency: Positive = 1.0, field: Positive = 5.0) -> Model:
    """A charge in a Penning trap: a uniform field B along z holds it radially, a quadrupole along z axially,

    U = ½ω_z² (z² − ½(x² + y²)),      ω_z = frequency, B = field.

    The motion is the sum of three circular or harmonic ones (Brown, Gabrielse, Rev. Mod. Phys. 58 (1986) 233), along z
    with ω_z and in the plane with ω± = ½(B ± √(B² − 2ω_z²)), and is bound for B > √2 ω_z. With these settings
    ω₊ = 4.898, ω_z = 1 and ω₋ = 0.102.
    """
    if not field > np.sqrt(2) * frequency:
        raise InputError(
            f"penning_trap: field must be larger than √2·frequency = {np.sqrt(2) * frequency:.6g}; the quadrupole "
            "repels the charge from the axis otherwise."
        )
    system = System(
        lambda q: 0.5 * frequency**2 * (q[2] ** 2 - 0.5 * (q[0] ** 2 + q[1] ** 2)),
        magnetic_field=np.array([0.0, 0.0, field]),
    )
    q0, v0 = np.array([1.0, 0.0, 0.5]), np.array([0.0, 0.5, 0.0])
    fastest = 0.5 * (field + np.sqrt(field**2 - 2 * frequency**2))
    description = "a charge between a quadrupole and a uniform magnetic field"
    return Model(
        system, q0, v0, "penning_trap", description, MagneticSplitting(), dt=0.1 / fastest, t_end=500 / fastest
    )


@model
def paul_trap(dc: float = 0.0, rf: float = 0.4) -> Model:
    """An ion in a linear Paul trap, a quadrupole that oscillates with the angular frequency 2,

    U = ½ (a − 2q cos 2t) (x² − y²) + ½·0.01 z²,      a = dc, q = rf,

    so that x and y obey Mathieu's equations ẍ + (a − 2q cos 2t) x = 0 and ÿ − (a − 2q cos 2t) y = 0. For a = 0 the ion
    is trapped for q < 0.908 (Paul, Rev. Mod. Phys. 62 (1990) 531). It oscillates slowly, with a frequency near q/√2 for
    small q, and trembles with the field. There is no magnetic field; the work of the drive is `run.work`.
    """

    def potential(q, t):
        x, y, z = q
        return 0.5 * (dc - 2 * rf * jnp.cos(2 * t)) * (x**2 - y**2) + 0.005 * z**2

    q0, v0 = np.array([1.0, 0.6, 0.5]), np.array([0.0, 0.1, 0.0])
    description = "an ion in an oscillating quadrupole"
    return Model(System(potential), q0, v0, "paul_trap", description, dt=np.pi / 100, t_end=30 * np.pi)


@model
def magnetic_mirror(ratio: Positive = 0.04, speed: Positive = 0.3, pitch: float = 1.0) -> Model:
    """A charge in a magnetic bottle: a field along z that grows on both sides,

    B = (−c x z, −c y z, 1 + c z²),      c = ratio, div B = 0,

    where the charge gyrates and is reflected back and forth. Its magnetic moment μ = |v⊥|²/(2|B|), here with B at the
    guiding centre q + v × B/B², is an adiabatic invariant, watched as run.watched["magnetic moment"]: it oscillates
    with the gyration and does not drift. On the axis the charge turns where B = |v|²/(2μ). It starts at z = 0 with the
    angle `pitch` between v and the axis.
    """

    def field(q):
        x, y, z = q
        return jnp.stack([-ratio * x * z, -ratio * y * z, 1 + ratio * z**2])

    def moment(q, v):
        here = field(q)
        b = field(q + cross(v, here) / jnp.sum(here**2))
        square = jnp.sum(b**2)
        return 0.5 * (jnp.sum(v**2) - jnp.sum(v * b) ** 2 / square) / jnp.sqrt(square)

    system = System(magnetic_field=field, watch={"magnetic moment": moment})
    across, along = speed * np.sin(pitch), speed * np.cos(pitch)
    # The charge gyrates around the axis: its radius is v⊥/B.
    q0, v0 = np.array([across, 0.0, 0.0]), np.array([0.0, -across, along])
    description = "a charge reflected between two regions of strong magnetic field"
    return Model(system, q0, v0, "magnetic_mirror", description, Boris(), dt=0.1, t_end=1000.0)


@model
def tokamak(parallel: float = 4.816e-4, perpendicular: float = -2.059e-3) -> Model:
    """A charge in the field of a tokamak of major radius 1, with circular cross-sections and safety factor 2,

    B = (−(2y + xz)/(2R²), (2x − yz)/(2R²), (R − 1)/(2R)),      R = √(x² + y²),

    a toroidal field 1/R and a poloidal one r/(2R), r² = (R − 1)² + z²; div B = 0. It starts at (1.05, 0, 0) with
    v = (0, parallel, perpendicular). With these settings it is trapped on the outside: its projection on the (R, z)
    plane is a banana, which it runs through once in 37,300 units of time. With twice the parallel velocity it
    passes around the axis.

    Energy and the toroidal momentum p_φ = R v_φ + ψ, ψ = R A_φ = ¼((R − 1)² + z²), are conserved, watched as
    run.watched["toroidal momentum"]. Without electric field the energy is the speed.

    Reference: Qin, Zhang, Xiao, Liu, Sun, Tang, Phys. Plasmas 20 (2013) 084503.
    """

    def field(q):
        x, y, z = q
        r2 = x**2 + y**2
        r = jnp.sqrt(r2)
        return jnp.stack([-(2 * y + x * z) / (2 * r2), (2 * x - y * z) / (2 * r2), (r - 1) / (2 * r)])

    def toroidal_momentum(q, v):
        x, y, z = q
        return x * v[1] - y * v[0] + _flux(jnp.sqrt(x**2 + y**2), z)

    system = System(magnetic_field=field, watch={"toroidal momentum": toroidal_momentum})
    q0, v0 = np.array([1.05, 0.0, 0.0]), np.array([0.0, parallel, perpendicular])
    description = "a charge on a banana orbit in a toroidal magnetic field"
    return Model(system, q0, v0, "tokamak", description, Boris(), dt=np.pi / 10, t_end=12_000 * np.pi)


def _flux(r, z):
    """ψ = R A_φ: B_R = −∂_z ψ/R and B_z = ∂_R ψ/R."""
    return 0.25 * ((r - 1) ** 2 + z**2)
