"""Integrated autocorrelation times of time series."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WINDOW = 5.0  # Sokal's constant: the sum ends at the first lag that is at least so many times the sum

LEAST = 0.5


class IntegratedTime(NamedTuple):
    """τ in units of the spacing of the samples, and the lag at which its sum ends."""

    tau: float
    lag: int


def autocorrelation(x: np.ndarray) -> np.ndarray:
    """ρ at the lags 0 … n − 1 of series (members, n), which have one mean and one ρ. By FFT; the covariance at lag k is
    the sum over n − k products, divided by n."""
    n = x.shape[-1]
    size = 1 << (2 * n - 1).bit_length()
    transformed = np.fft.rfft(x - x.mean(), size, axis=-1)
    covariance = np.fft.irfft(np.mean(np.abs(transformed) ** 2, axis=0), size)[:n]
    return covariance / covariance[0] if covariance[0] > 0 else np.eye(1, n)[0]


def integrated_time(x: np.ndarray, window: float = WINDOW) -> IntegratedTime:
    """τ = ½ + Σ_{k=1}^{W} ρ(k) with W the smallest lag that is at least window · τ(W) (Sokal 1997, "Monte Carlo methods
    in statistical mechanics"; Madras and Sokal 1988): later lags add noise and no sum. Independent samples have τ = ½,
    and the mean of n samples has the variance 2τσ²/n. Anticorrelated ones have a smaller τ, which is returned as ½: the
    error of a mean is not claimed to be smaller than that of independent samples."""
    sums = np.cumsum(autocorrelation(x)) - 0.5
    ends = np.flatnonzero(np.arange(len(sums)) >= window * sums)
    lag = int(ends[0]) if len(ends) else len(sums) - 1
    return IntegratedTime(max(float(sums[lag]), LEAST), lag)
