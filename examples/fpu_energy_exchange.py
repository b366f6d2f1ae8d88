"""Three stiff springs exchange their energies slowly while the sum hardly changes.

Reference: Hairer, Lubich, Wanner, Geometric Numerical Integration, section I.5.1.
"""

import numpy as np

import geomint as gm


def stiff_energies(run, omega):
    """I_j = ½(ẋ₁ⱼ² + ω² x₁ⱼ²), one column for each stiff spring."""
    return 0.5 * (run.v[:, 1] ** 2 + omega**2 * run.q[:, 1] ** 2)


def main(omega=50.0):
    """(time when the third spring overtakes the first, smallest and largest sum of the three energies)."""
    model = gm.models.fpu(springs=3, omega=omega)
    run = gm.simulate(
        model.system, model.q0, model.v0, method=gm.Splitting("blanes-moan"), dt=0.01, t_end=200.0, save_every=5
    )
    energies = stiff_energies(run, omega)
    total = energies.sum(axis=1)
    overtakes = run.t[np.argmax(energies[:, 2] > energies[:, 0])]
    return overtakes, total.min(), total.max()


if __name__ == "__main__":
    overtakes, low, high = main()
    print(
        f"the third spring overtakes the first at t = {overtakes:.1f}; "
        f"the sum of the stiff energies stays in [{low:.3f}, {high:.3f}]"
    )
