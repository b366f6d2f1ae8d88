"""The kinetic temperature of a run, and its distribution against χ²."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.autocorrelation import integrated_time
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..run.trajectory import Trajectory
from ..system.checks import as_array, flag, instance, positive
from ..system.constraints import measured_at
from ..system.lagrangian import derive
from ..system.system import Stated, checked_system

DENSE = 4_000_000  # entries of the largest constraint Jacobian whose rank is computed


def degrees_of_freedom(system: Stated, q: Any, centre_of_mass: bool = False) -> int:
    """The number of quadratic terms in the kinetic energy: the coordinates, less the independent constraints, less the
    components of the centre of mass where the total momentum is held at zero (centre_of_mass=True).

    q: a position on the constraint. Constraints that depend on others there are not counted, by the rank of G; where G
    has more than 4e6 entries, all are taken as independent.
    """
    checked_system(system, callee="degrees_of_freedom")
    q = as_array(q, "q", "degrees_of_freedom")
    fixed = q.shape[-1] if flag(centre_of_mass, "centre_of_mass", "degrees_of_freedom") and q.ndim > 1 else 0
    held = 0
    if system.constraint is not None:
        system = measured_at(system, q)
        held = jax.eval_shape(derive(system, q.shape, 0.0).constraint, q).size
        if held * q.size <= DENSE:
            held = int(np.linalg.matrix_rank(np.asarray(_jacobian(system, q))))
    left = q.size - held - fixed
    if left < 1:
        raise InputError(f"degrees_of_freedom: {q.size} coordinates, {held} constraints and {fixed} components of the "
                         "centre of mass leave no degree of freedom.")  # fmt: skip
    return left


@jit
def _jacobian(system: Stated, q: Array) -> Array:
    return derive(system, q.shape, 0.0).constraint_jacobian(q)


@dataclasses.dataclass(frozen=True)
class TemperatureDistribution:
    """The kinetic temperature T_kin = 2K/(f k) at saved points beside the distribution that it has at a temperature T,
    f T_kin/T ~ χ²_f.

    temperatures:  T_kin, (saved,) or (members, saved)
    expected:      T; the mean of T_kin where none was given
    mean, error:   of T_kin, the error corrected for autocorrelation
    variance, expected_variance:  of T_kin; 2T²/f
    distance:      the Kolmogorov–Smirnov distance of the samples from the distribution
    p_value:       the probability of a larger distance, with the number of independent samples, n/2τ, in place of n;
                   NaN where T was not given
    """

    degrees_of_freedom: int
    temperatures: np.ndarray
    expected: float
    mean: float
    error: float
    distance: float
    p_value: float

    @property
    def variance(self) -> float:
        return float(np.var(self.temperatures))

    @property
    def expected_variance(self) -> float:
        return 2 * self.expected**2 / self.degrees_of_freedom

    def density(self, temperature: Any) -> np.ndarray:
        """The expected density of T_kin, for a histogram."""
        from scipy.stats import chi2

        f = self.degrees_of_freedom
        return chi2.pdf(np.asarray(temperature), f, scale=self.expected / f)


@checked_keywords
def temperature_distribution(
    run: Trajectory,
    temperature: float | None = None,
    *,
    centre_of_mass: bool = False,
    boltzmann: float = 1.0,
) -> TemperatureDistribution:
    """Compare the kinetic temperatures of a run with the χ² distribution of the canonical ensemble.

    temperature:     that of the thermostat; None: the mean of the run
    centre_of_mass:  whether the total momentum is held at zero, as in gm.degrees_of_freedom
    boltzmann:       k in the units of the run; 1 where temperatures are energies
    The momenta of the canonical distribution are Gaussian on the tangent space of the constraints, so that 2K/kT is a
    sum of f squares, whatever the potential.
    """
    from scipy.stats import chi2, kstwobign

    callee = "temperature_distribution"
    instance(run, "run", callee, kinds=Trajectory, must="a run of gm.simulate or gm.ensemble")
    if run.system is None:
        raise InputError(f"{callee}(run=...): the run needs its system; load it with gm.load(path, system=system).")
    boltzmann = positive(boltzmann, "boltzmann", callee)
    target = positive(temperature, "temperature", callee, none=True)
    f = degrees_of_freedom(run.system, run.q[0, 0] if run.members else run.q[0], centre_of_mass)
    found = 2 * np.asarray(run.kinetic) / (f * boltzmann)
    if not np.all(np.isfinite(found)):
        raise InputError(f"{callee}(run=...): the kinetic energy of some members is not finite; see run.failed_at.")
    series = np.atleast_2d(found)
    mean = float(series.mean())
    expected = mean if target is None else target
    effective = max(1.0, series.size / (2 * integrated_time(series).tau))
    below = chi2.cdf(np.sort(series, axis=None) * f / expected, f)
    steps = np.arange(series.size + 1) / series.size
    distance = float(max(np.max(steps[1:] - below), np.max(below - steps[:-1])))
    p_value = float("nan") if target is None else float(kstwobign.sf(distance * np.sqrt(effective)))
    error = float(np.sqrt(np.var(series) / effective))
    return TemperatureDistribution(f, found, expected, mean, error, distance, p_value)
