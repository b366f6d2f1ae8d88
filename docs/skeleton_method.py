"""Ruth's splitting of order 3: a complete method to copy.

Reference: Ruth, IEEE Trans. Nucl. Sci. 30 (1983) 2669.
"""

from geomint.methods import Method, Traits, register

KICKS = (7 / 24, 3 / 4, -1 / 24)
DRIFTS = (2 / 3, -2 / 3, 1.0)

# The conditions of order 1 to 3: sums over the kicks with all drifts after each,
# and over the drifts with all kicks before each.
DRIFTED = (sum(DRIFTS), sum(DRIFTS[1:]), DRIFTS[2])
KICKED = (KICKS[0], sum(KICKS[:2]), sum(KICKS))
for power in (0, 1, 2):
    for weights, points in ((KICKS, DRIFTED), (DRIFTS, KICKED)):
        moment = sum(w * x**power for w, x in zip(weights, points, strict=True))
        assert abs(moment - 1 / (power + 1)) < 1e-15


@register()
class Ruth3(Method):
    """p ← p + b_i h f(q), q ← q + a_i h M⁻¹p for i = 1, 2, 3.

    Order 3, symplectic, not symmetric.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            order=3, symplectic=True, symmetric=False, reversible=False,
            energy="bounded", momentum_maps="all", forces=3,
        )  # fmt: skip

    def step(self, mech, carry, dt):
        q, p = carry
        for kick, drift in zip(KICKS, DRIFTS, strict=True):
            p = p + kick * dt * mech.force(q)
            q = q + drift * dt * mech.velocity(p)
        return q, p
