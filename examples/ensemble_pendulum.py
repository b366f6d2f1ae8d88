"""Five hundred pendula at once: the period grows with the amplitude A as 4 K(sin²(A/2)), with K the complete
elliptic integral of the first kind."""

import numpy as np

import geomint as gm


def periods(t, angle):
    """The period of each member from its downward passages through zero, by linear interpolation."""
    measured = []
    for x in angle:
        k = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
        zeros = t[k] + (t[1] - t[0]) * x[k] / (x[k] - x[k + 1])
        measured.append((zeros[-1] - zeros[0]) / (len(zeros) - 1))
    return np.array(measured)


def main(members=500):
    """Amplitudes and measured periods."""
    amplitudes = np.linspace(0.05, 3.0, members)
    run = gm.ensemble(
        gm.models.pendulum().system,
        amplitudes[:, None],
        method=gm.Composition(gm.Verlet(), order=4),
        dt=0.02,
        t_end=100.0,
    )
    return amplitudes, periods(run.t, run.q[..., 0])


if __name__ == "__main__":
    amplitudes, measured = main()
    for i in range(0, len(amplitudes), 83):
        print(f"amplitude {amplitudes[i]:.3f}: period {measured[i]:.6f}")
