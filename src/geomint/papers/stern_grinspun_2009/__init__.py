"""Stern, Grinspun: Implicit-explicit variational integration of highly oscillatory problems, Multiscale Model. Simul. 7
(2009) 1779.

IMEX evaluates the slow potential V at the ends of a step and the fast potential W at its midpoint. With a quadratic W
it is Verlet with the mass M + (hΩ/2)², and has no resonances.

Start with `fpu_chain`, the energy exchange that IMEX reproduces at large steps. `slow_exchange` compares other methods,
`modified_mass` verifies the identity with Verlet and `modified_frequency` that with the impulse method, `resonance` and
`linear_stability` measure resonances and limits of the step, `local_error` the order, `limits` shows where IMEX fails.
The method itself is in `methods/oscillatory.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import (
    local_error,
    modified_mass,
    linear_stability,
    resonance,
    fpu_chain,
    modified_frequency,
    slow_exchange,
    limits,
)

__all__ = [
    "fpu_chain",
    "limits",
    "linear_stability",
    "local_error",
    "modified_frequency",
    "modified_mass",
    "resonance",
    "slow_exchange",
]
