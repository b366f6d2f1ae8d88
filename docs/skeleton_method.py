"""Ruth's splitting of order 3: a complete method to copy.

Reference: Ruth, IEEE Trans. Nucl. Sci. 30 (1983) 2669.
"""

from geomint.methods import Method, Traits, register

KICKS = (7 / 24, 3 / 4, -1 / 24)
DRIFTS = (2 / 3, -2 / 3, 1.0)

# Consistency, and the conditions of order 2 and 3 for kicks b and drifts a that alternate, the kick first.
_after = (DRIFTS[0] + DRIFTS[1] + DRIFTS[2], DRIFTS[1] + DRIFTS[2], DRIFTS[2])  # what follows each kick
assert abs(sum(KICKS) - 1) < 1e-15
assert abs(sum(DRIFTS) - 1) < 1e-15
assert abs(sum(b * a for b, a in zip(KICKS, _after, strict=True)) - 1 / 2) < 1e-15
assert abs(sum(b * a**2 for b, a in zip(KICKS, _after, strict=True)) - 1 / 3) < 1e-15


@register()
class Ruth3(Method):
    """p ← p + b_i h f(q), q ← q + a_i h M⁻¹p for i = 1, 2, 3. Order 3, symplectic, not symmetric."""

    @property
    def traits(self) -> Traits:
        return Traits(order=3, symplectic=True, symmetric=False, reversible=False, energy="bounded", momentum_maps="all", forces=3)

    def step(self, mech, carry, dt):
        q, p = carry
        for kick, drift in zip(KICKS, DRIFTS, strict=True):
            p = p + kick * dt * mech.force(q)
            q = q + drift * dt * mech.velocity(p)
        return q, p
