"""What `make demo` runs: a certificate, a table of energy errors, and demo.png in the current directory.

Verlet's method and the classical Runge–Kutta method of order 4 get the same number of force evaluations: Runge–Kutta
needs four in a step, so that its steps are four times as long. The effort is chosen so that the difference shows:
here, with 50 days for a force evaluation, Runge–Kutta 4 ejects Jupiter; with 25 days it ends with a relative energy
error of 2e-2.
"""

import time

import numpy as np
from matplotlib.figure import Figure

import geomint as gm

YEAR = 365.25
BLUE, RED, GREEN = "#1f6fb4", "#c8442f", "#2e8b57"
PERIODS, KEPLER_FORCES = 2000, 400  # revolutions, force evaluations in each
YEARS, DAYS = 20_000, 50.0  # years, days for each force evaluation


def methods():
    """(label, method, color); the splitting of order 4 shows what a better method does with the same effort."""
    return (
        ("Verlet", gm.Verlet(), BLUE),
        ("Runge–Kutta 4", gm.RungeKutta4(), RED),
        ("splitting of order 4", gm.Splitting("blanes-moan-nystrom"), GREEN),
    )


def at_equal_cost(model, method, force_interval, t_end, saves):
    """A run with one force evaluation every `force_interval`, kept about `saves` times."""
    dt = force_interval * method.traits.forces
    every = max(1, round(t_end / dt / saves))
    blocks = round(t_end / dt / every)
    return gm.simulate(
        model.system, model.q0, model.v0, method=method, dt=dt, t_end=blocks * every * dt, save_every=every
    )


def kepler_runs():
    """The planet of eccentricity .6 for 2000 revolutions."""
    model, period = gm.models.kepler(eccentricity=0.6), 2 * np.pi
    return [
        (label, at_equal_cost(model, m, period / KEPLER_FORCES, PERIODS * period, 200_000), color)
        for label, m, color in methods()
    ]


def solar_runs():
    """The outer solar system for 20,000 years."""
    model = gm.models.outer_solar_system()
    return [(label, at_equal_cost(model, m, DAYS, YEARS * YEAR, 40_000), color) for label, m, color in methods()]


def relative_error(run):
    return np.abs(run.energy_error / run.energy[0])


def draw_errors(axes, runs, unit, xlabel):
    """The largest relative energy error in each of 200 intervals of time, which draws the envelope of the
    oscillation."""
    for label, run, color in runs:
        error, t = relative_error(run)[1:], run.t[1:] / unit
        width = len(t) // 200
        upper = error[: 200 * width].reshape(200, width).max(axis=1)
        axes.loglog(t[width - 1 : 200 * width : width], upper, color=color, lw=1.8, label=label)
    axes.set_title("relative energy error, at equal cost", fontsize=10)
    axes.set_xlabel(xlabel)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)


def draw_planet(axes, run, label, color):
    """One revolution in every 250; later ones are darker."""
    each = len(run) // PERIODS
    for k in range(0, PERIODS + 1, 250):
        begin = min(k * each, len(run) - each - 3)
        axes.plot(*run.q[begin : begin + each + 3].T, color=color, lw=1.2, alpha=0.2 + 0.8 * k / PERIODS)
    axes.plot(0, 0, "o", color="#e0a800", ms=7)
    axes.set_title(label, fontsize=10)
    axes.set(aspect="equal", xlim=(-1.75, 1.75), ylim=(-1.6, 1.9))


def draw_kepler(part, runs):
    """Orbits by Verlet and Runge–Kutta, and the energy errors."""
    left, middle, right = part.subplots(1, 3, width_ratios=(1, 1, 1.35))
    (_, verlet, blue), (_, kutta, red) = runs[:2]
    draw_planet(left, verlet, "Verlet: the ellipse turns and keeps its size", blue)
    draw_planet(middle, kutta, "Runge–Kutta 4: the ellipse shrinks", red)
    draw_errors(right, runs, 2 * np.pi, "revolutions")


def draw_solar(part, runs):
    """The last thousand years of the outer solar system by the same two methods."""
    left, middle, right = part.subplots(1, 3, width_ratios=(1, 1, 1.35))
    for axes, (label, run, _) in zip((left, middle), runs[:2], strict=True):
        last = run.t > (YEARS - 1000) * YEAR
        x = run.q[last] - run.q[last][:, :1]
        axes.plot(0, 0, "o", color="#e0a800", ms=5)
        for k, name in enumerate(("Jupiter", "Saturn", "Uranus", "Neptune", "Pluto"), start=1):
            away = np.linalg.norm(x[-1, k])
            axes.plot(
                x[:, k, 0],
                x[:, k, 1],
                lw=0.8,
                color=f"C{k}",
                label=name if away < 100 else f"{name}: thrown out,\n{away:,.0f} au away",
            )
        axes.set_title(f"{label}: the last 1000 of {YEARS:,} years", fontsize=10)
        axes.set(aspect="equal", xlim=(-40, 118), ylim=(-74, 84), xlabel="au")
        axes.legend(frameon=False, fontsize=8, loc="upper right")
    draw_errors(right, runs, YEAR, "years")


def table(kepler, solar):
    """The numbers behind the picture, as text."""
    lines = [f"{'largest relative energy error, at equal cost':<46}{'Kepler, e = 0.6':>18}{'outer solar system':>22}"]
    for (label, planet, _), (_, system, _) in zip(kepler, solar, strict=True):
        lines.append(f"  {label:<44}{relative_error(planet).max():>18.1e}{relative_error(system).max():>22.1e}")
    lines.append(f"  {'over':<44}{f'{PERIODS} revolutions':>18}{f'{YEARS:,} years':>22}")
    return "\n".join(lines)


def main(path="demo.png"):
    """Prints the certificates and the table, writes the picture, and returns the two sets of runs."""
    began = time.perf_counter()
    model = gm.models.kepler()
    for method in (gm.Verlet(), gm.RungeKutta4()):
        print(gm.certify(model.system, method, model.q0, model.v0, dt=model.dt), end="\n\n")
    kepler, solar = kepler_runs(), solar_runs()
    print(table(kepler, solar), end="\n\n")
    figure = Figure(figsize=(13, 8.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    draw_kepler(top, kepler)
    draw_solar(bottom, solar)
    top.suptitle("A planet on an ellipse of eccentricity 0.6", fontweight="bold")
    bottom.suptitle("The outer solar system", fontweight="bold")
    figure.savefig(path, dpi=110)
    print(f"{path} written; {time.perf_counter() - began:.1f} s in all")
    return kepler, solar


if __name__ == "__main__":
    main()
