"""Averages over a run with errors that take the autocorrelation into account, and the drift of the energy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..errors import InputError
from ..numerics.autocorrelation import integrated_time
from ..run.trajectory import Trajectory
from ..system.checks import as_array, instance
from .temperature import degrees_of_freedom

ENOUGH = 50  # autocorrelation times in a series whose τ can be trusted


@dataclasses.dataclass(frozen=True)
class Average:
    """The mean of correlated samples, with its standard error √(2τσ²/n).

    tau:        the integrated autocorrelation time, in samples: ½ for independent ones
    effective:  n/2τ, the number of independent samples with the same error
    reliable:   whether a series has at least 50 autocorrelation times; the error is too small otherwise
    """

    mean: float
    error: float
    tau: float
    effective: float
    reliable: bool

    def __repr__(self) -> str:
        doubt = "" if self.reliable else "; too short a run for a reliable error"
        return f"{self.mean:.6g} ± {self.error:.2g} (τ = {self.tau:.3g} samples{doubt})"


def average(x: Any) -> Average:
    """The mean of a quantity along a run, and its standard error.

    x: the values at saved points, (saved,), such as run.energy or run.watched["…"]; or (members, saved) of an ensemble,
    whose members are independent and have one mean. The integrated autocorrelation time is summed in Sokal's window.
    Discard the points before equilibrium yourself: average(run.kinetic[500:]).
    """
    series = _series(x, "average")
    tau = integrated_time(series).tau
    effective = series.size / (2 * tau)
    error = float(np.sqrt(np.var(series) / max(effective, 1.0)))
    return Average(float(series.mean()), error, tau, effective, series.shape[1] >= ENOUGH * tau)


def autocorrelation_time(x: Any) -> float:
    """The integrated autocorrelation time τ = ½ + Σ ρ(k) of a quantity, in samples; x as for gm.average. The mean of n
    samples has the variance 2τσ²/n."""
    return integrated_time(_series(x, "autocorrelation_time")).tau


@dataclasses.dataclass(frozen=True)
class EnergyDrift:
    """The slope of the energy error over the time, by least squares, with its standard error.

    per_degree:  slope / degrees_of_freedom; per_degree_error its standard error
    """

    slope: float
    error: float
    degrees_of_freedom: int

    @property
    def per_degree(self) -> float:
        return self.slope / self.degrees_of_freedom

    @property
    def per_degree_error(self) -> float:
        return self.error / self.degrees_of_freedom


def energy_drift(run: Trajectory, centre_of_mass: bool = False) -> EnergyDrift:
    """The drift of the energy per unit time, in all and per degree of freedom. Of methods that save the work of forces
    or the heat of a thermostat, the drift of the energy less these.

    The error of one run takes the autocorrelation of what is left of the line into account; that of an ensemble is
    the standard error of the slopes of its members. centre_of_mass: as for gm.degrees_of_freedom.
    """
    instance(run, "run", "energy_drift", kinds=Trajectory, must="a run of gm.simulate or gm.ensemble")
    if run.system is None:
        raise InputError("energy_drift(run=...): the run needs its system; load it with gm.load(path, system=system).")
    energy = np.asarray(run.energy_error)
    energy = energy - sum(np.asarray(run.columns[name]) for name in ("work", "heat") if name in run.saved)
    rows, t = np.atleast_2d(energy), np.asarray(run.t)
    if rows.shape[1] < 3:
        raise InputError(f"energy_drift(run=...): a slope needs at least 3 saved points, and the run has {len(t)}.")
    if not np.all(np.isfinite(rows)):
        raise InputError("energy_drift(run=...): the energy of some members is not finite; see run.failed_at.")
    at = t - t.mean()
    slopes = rows @ at / (at @ at)
    if len(rows) > 1:
        error = np.std(slopes, ddof=1) / np.sqrt(len(rows))
    else:
        left = rows - rows.mean() - slopes[:, None] * at
        tau = integrated_time(left).tau
        error = np.sqrt(2 * tau * np.sum(left**2) / (rows.shape[1] - 2) / (at @ at))
    f = degrees_of_freedom(run.system, run.q[0, 0] if run.members else run.q[0], centre_of_mass)
    return EnergyDrift(float(slopes.mean()), float(error), f)


def _series(x: Any, callee: str) -> np.ndarray:
    x = as_array(x, "x", callee, copy=False)
    if x.ndim not in (1, 2) or x.shape[-1] < 2:
        raise InputError(
            f"{callee}(x=...): a series has shape (saved,), or (members, saved), with at least 2 points, not {x.shape}."
        )
    return np.atleast_2d(np.asarray(x, float))
