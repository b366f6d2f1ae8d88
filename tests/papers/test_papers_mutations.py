"""Wrong methods, signs, factors and orders put into the papers' experiments: each must be caught by a row.

A mutation replaces one name in the modules of an experiment, as a wrong line of code would change it, and the
experiment runs at reduced size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import papers
from geomint.papers.console_hairer_lubich_2013 import (
    book_methods,
    coefficients,
    heavy_top,
    parasitic,
    sphere,
    starting_values,
    triple_pendulum,
)
from geomint.papers.console_hairer_lubich_2013 import modified_energy as backward
from geomint.papers.console_hairer_lubich_2013.displaced import Displaced
from geomint.papers.console_hairer_lubich_2013.periodicity import WIDEST
from geomint.papers.fernandez_pendas_2019 import adaptive, masses, shake_and_rattle, splittings, stiff_bonds
from geomint.papers.gonzalez_schmidt_ortiz_2010 import (
    argon,
    argon_steps,
    cube,
    force_stepping_runs,
    mollified,
    terraces,
)
from geomint.papers.stern_grinspun_2009 import (
    fpu_chain,
    limits,
    linear_stability,
    modified_frequency,
    modified_mass,
    resonance,
    slow_exchange,
)
from geomint.papers.stern_grinspun_2009 import local_error as imex_error
from geomint.papers.tao_owhadi_2015 import (
    chain,
    dna_runs,
    double_pendulum,
    lie_group,
    penalty,
    step_limit,
    structure,
    water,
    water_free,
)
from geomint.papers.tao_owhadi_2015 import local_error as filtered_error
from geomint.run.instability import unwatched


def with_wrong_sigma(method):
    """The method with β_2 and its mirror image off by a thousandth."""
    sigma, k = list(method.sigma), len(method.sigma) - 1
    for j in {2, k - 2}:
        sigma[j] *= Fraction(1001, 1000)
    return dataclasses.replace(method, sigma=tuple(sigma))


class Mutation(NamedTuple):
    experiment: str  # PAPER/EXPERIMENT
    module: Any
    name: str  # of what is replaced
    by: Callable[[Any], Any]  # the wrong thing, made from the right one
    row: str  # the beginning of a row that must fail


TAO, STERN, CONSOLE = "tao-owhadi-2015", "stern-grinspun-2009", "console-hairer-lubich-2013"
FERNANDEZ, GONZALEZ = "fernandez-pendas-2019", "gonzalez-schmidt-ortiz-2010"

simplified = lambda _: gm.SimplifiedZhangSkeel
quarter = lambda right: lambda beta: right(beta=0.25)


class MissesEvents(gm.EnergyStepping):
    """Every fifth event changes the level of the terrace, and not the velocity. (A reflection is then repeated at the
    same place, so that the method recovers; a step is not.)"""

    def _event(self, mech, flight):
        after, missed = super()._event(mech, flight), flight.counts.events % 5 == 3
        return dataclasses.replace(after, p=jnp.where(missed, flight.p, after.p))


MUTATIONS = {
    "Z&S without its third-derivative term, chain": Mutation(
        f"{TAO}/chain", chain, "ZhangSkeel", simplified, "Z&S against the constrained motion, t ≤ 50"
    ),
    "Z&S without its third-derivative term, double pendulum": Mutation(
        f"{TAO}/double-pendulum", double_pendulum, "ZhangSkeel", simplified, "Z&S: largest error of x₂"
    ),
    "Z&S without its third-derivative term, structure": Mutation(
        f"{TAO}/structure", structure, "ZhangSkeel", simplified, "symplecticity defect: Z&S, double"
    ),
    "Z&S without its third-derivative term, SO(3)": Mutation(
        f"{TAO}/so3", lie_group, "ZhangSkeel", simplified, "Z&S: f against a"
    ),
    "Z&S without its third-derivative term, one step": Mutation(
        f"{TAO}/local-error", filtered_error, "ZhangSkeel", simplified, "Z&S − pushforward Newmark"
    ),
    "Verlet for Z&S, one step": Mutation(
        f"{TAO}/local-error", filtered_error, "ZhangSkeel", lambda _: lambda beta: gm.Verlet(), "Z&S: error of a step"
    ),
    "Lie-Verlet for variational Euler, SO(3)": Mutation(
        f"{TAO}/so3", lie_group, "CayleyVariationalEuler", lambda _: gm.LieVerlet, "variational Euler: largest |ΔH|"
    ),
    "β = ¼ for .4, double pendulum": Mutation(
        f"{TAO}/double-pendulum", double_pendulum, "ZhangSkeel", quarter, "Z&S: largest error of x₂"
    ),
    "β halved, linear stability": Mutation(
        f"{TAO}/linear-stability",
        structure,
        "ZhangSkeel",
        lambda right: lambda beta: right(beta=0.5 * beta),
        "limit of hω, β = 0.1",
    ),
    "composition of order 4 for 6": Mutation(
        f"{TAO}/structure",
        structure,
        "Composition",
        lambda right: lambda base, order: right(base, order=4),
        "order: composition of order 6",
    ),
    "springs of twice the stiffness": Mutation(
        f"{TAO}/penalty-against-multipliers",
        penalty,
        "penalize",
        lambda right: lambda s, omega: right(s, np.sqrt(2) * omega),
        "ω = 10: largest error of q₂",
    ),
    "multipliers of the wrong sign": Mutation(
        f"{TAO}/penalty-against-multipliers",
        penalty,
        "recover_multipliers",
        lambda right: lambda *a: -right(*a),
        "ω = 250: rms of the average",
    ),
    "β = .25 for .3, DNA": Mutation(
        f"{TAO}/dna", dna_runs, "SOFT", lambda _: gm.ZhangSkeel(beta=0.25), "Z&S: step from which"
    ),
    "a thermostat that is too hot, water": Mutation(
        f"{TAO}/water-7",
        water,
        "GeometricLangevin",
        lambda right: lambda base, temperature, **more: right(base, temperature=1.3 * temperature, **more),
        "RATTLE: kinetic temperature",
    ),
    "Verlet for stiff Z&Ss, a hundred molecules": Mutation(
        f"{TAO}/water-100",
        water,
        "BASES",
        lambda right: right | {"stiff Z&Ss": (False, gm.Verlet())},
        "total variation",
    ),
    "multipliers of the wrong sign, water": Mutation(
        f"{TAO}/water-multipliers",
        water_free,
        "recover_multipliers",
        lambda right: lambda *a: -right(*a),
        "ω = 500, stiff Z&Ss, h = 0.01: rms error",
    ),
    "stiff Z&Ss for Z&S, water": Mutation(
        f"{TAO}/water-conservation",
        water_free,
        "ZhangSkeel",
        lambda _: gm.StiffZhangSkeel,
        "Z&S: change of the angular momentum",
    ),
    "Z&S for pushforward Newmark": Mutation(
        f"{TAO}/step-limit", step_limit, "PushforwardNewmark", lambda _: gm.ZhangSkeel, "pushforward Newmark"
    ),
    "impulse for IMEX, resonance": Mutation(
        f"{STERN}/resonance", resonance, "IMEX", lambda _: gm.Impulse, "IMEX: largest of all"
    ),
    "a filtered method for IMEX, resonance": Mutation(
        f"{STERN}/resonance", resonance, "IMEX", lambda _: gm.Trigonometric, "IMEX: largest of all"
    ),
    "half the inner steps of r-RESPA": Mutation(
        f"{STERN}/resonance", resonance, "RESPA", lambda right: lambda inner: right(inner // 2), "r-RESPA at"
    ),
    "impulse for IMEX, FPU": Mutation(
        f"{STERN}/fpu", fpu_chain, "IMEX", lambda _: gm.Impulse, "IMEX, h = 0.1: first time"
    ),
    "impulse for IMEX, long times": Mutation(f"{STERN}/fpu-long", limits, "IMEX", lambda _: gm.Impulse, "h = 0.3"),
    "another filter for Gautschi's": Mutation(
        f"{STERN}/slow-exchange", slow_exchange, "Gautschi", lambda _: gm.Trigonometric, "Gautschi: smallest"
    ),
    "the midpoint rule for IMEX, stiff pendulum": Mutation(
        f"{STERN}/stiff-pendulum", limits, "IMEX", lambda _: gm.ImplicitMidpoint, "h = 0.05, h²ω = 5"
    ),
    "IMEX with the mass M + ½(hΩ)² for M + ¼(hΩ)²": Mutation(
        f"{STERN}/modified-mass",
        modified_mass,
        "heavier",
        lambda right: lambda system, q, h: right(system, q, np.sqrt(2) * h),
        "FPU: from Verlet with the modified mass",
    ),
    "impulse for IMEX, linear stability": Mutation(
        f"{STERN}/linear-stability", linear_stability, "IMEX", lambda _: gm.Impulse, "IMEX, h = 0.5: largest"
    ),
    "the midpoint rule for IMEX, modified frequency": Mutation(
        f"{STERN}/modified-frequency", modified_frequency, "IMEX", lambda _: gm.ImplicitMidpoint, "FPU, 100 steps: IMEX"
    ),
    "symplectic Euler for IMEX, local error": Mutation(
        f"{STERN}/local-error", imex_error, "IMEX", lambda _: gm.SymplecticEuler, "FPU: order of the error of q and p"
    ),
    "a wrong coefficient of σ": Mutation(
        f"{CONSOLE}/coefficients",
        coefficients,
        "construct",
        lambda right: lambda a: with_wrong_sigma(right(a)),
        "σ of order 6",
    ),
    "a wrong coefficient of σ, book methods": Mutation(
        f"{CONSOLE}/book-methods",
        book_methods,
        "sigma_of_order_8",
        lambda right: lambda *s: tuple(x * (1 + (j in (2, 6)) / 1000) for j, x in enumerate(right(*s))),
        "SY8: β_j of 9",
    ),
    "the modified energy without the error of the momenta": Mutation(
        f"{CONSOLE}/modified-energy",
        backward,
        "leading_terms",
        lambda right: lambda method: (right(method)[0], 0.0),
        "H + h⁴H₄: order",
    ),
    "order 6 for 4, parasitic components": Mutation(
        f"{CONSOLE}/parasitic",
        parasitic,
        "METHOD",
        lambda _: Displaced(a=(-0.7, 0.4)),
        "accurate starting values: order",
    ),
    "(A) for (B), starting values": Mutation(
        f"{CONSOLE}/starting-values",
        starting_values,
        "B",
        lambda _: starting_values.A,
        "linear problem, errors 1 in the starting λ, (B): growth",
    ),
    "order 6 for 8, heavy top": Mutation(
        f"{CONSOLE}/heavy-top",
        heavy_top,
        "PARAMETERS",
        lambda right: right | {8: right[6]},
        "r = 8, quaternions: order",
    ),
    "another method of order 6 for (A)": Mutation(
        f"{CONSOLE}/triple-pendulum", triple_pendulum, "A", lambda _: WIDEST, "(A), h = 0.01: largest"
    ),
    "kick form for drift form": Mutation(
        f"{CONSOLE}/sphere",
        sphere,
        "Verlet",
        lambda right: lambda form: right("kick"),
        "composition of 17 Rattle steps, drift form: longest",
    ),
    "order 6 for the composition of order 8": Mutation(
        f"{CONSOLE}/sphere",
        sphere,
        "Composition",
        lambda right: lambda base, order: right(base, order=6),
        "composition of 17",
    ),
    "b of the two-stage splittings exchanged": Mutation(
        f"{FERNANDEZ}/generalized-rattle",
        splittings,
        "BASES",
        lambda right: (
            right | dict(zip(splittings.TWO_STAGE, (right[x] for x in splittings.TWO_STAGE[::-1]), strict=True))
        ),
        "gain per force over Verlet, triple",
    ),
    "RATTLE for SHAKE": Mutation(
        f"{FERNANDEZ}/shake-equals-rattle", shake_and_rattle, "Shake", lambda _: gm.Rattle, "SHAKE: largest |G M⁻¹p|"
    ),
    "SHAKE without its multiplier": Mutation(
        f"{FERNANDEZ}/masses",
        masses,
        "placed",
        lambda right: lambda q, free, *rest, **more: (free, right(q, free, *rest, **more)[1]),
        "SHAKE from the guess with h²M⁻¹F, against Shake",
    ),
    "one set of coefficients for all frequencies": Mutation(
        f"{FERNANDEZ}/adaptive-splitting",
        adaptive,
        "adaptive_splitting",
        lambda _: lambda *_: gm.Splitting("two-stage"),
        "hω = 3.6: energy error of the adaptive",
    ),
    "bonds whose stiffness is the root of the stated one": Mutation(
        f"{FERNANDEZ}/stiff-bonds",
        stiff_bonds,
        "springs",
        lambda right: lambda alpha, *soft: right(alpha**0.5, *soft),
        "largest stretch of a bond",
    ),
    "a missed event, planet": Mutation(
        f"{GONZALEZ}/kepler-terraces", terraces, "EnergyStepping", lambda _: MissesEvents, "h = 0.1: largest relative"
    ),
    "a missed event, theorem 2.1": Mutation(
        f"{GONZALEZ}/mollified-terraces", terraces, "EnergyStepping", lambda _: MissesEvents, "rate of the positions"
    ),
    "a staircase of another height": Mutation(
        f"{GONZALEZ}/mollified-terraces",
        mollified,
        "terraced",
        lambda right: lambda system, q0, v0, height, *rest: right(system, q0, v0, 1.01 * height, *rest),
        "rate of the positions",
    ),
    "terraces of twice the height, planet": Mutation(
        f"{GONZALEZ}/kepler-terraces",
        terraces,
        "EnergyStepping",
        lambda right: lambda height, offset: right(2 * height, offset=offset),
        "h = 0.1: from aphelion",
    ),
    "edges elsewhere, examples 4": Mutation(
        f"{GONZALEZ}/examples-4",
        terraces,
        "EnergyStepping",
        lambda right: lambda height, offset: right(height, offset=0.3 * height),
        "4.1",
    ),
    "terraces of twice the height, cube": Mutation(
        f"{GONZALEZ}/cube-motion",
        cube,
        "terraced",
        lambda right: lambda system, q0, v0, height, *rest, **more: right(system, q0, v0, 2 * height, *rest, **more),
        "h = 1e-05: mean step",
    ),
    "terraces of twice the height, argon": Mutation(
        f"{GONZALEZ}/argon-energy", argon, "height", lambda right: lambda parts: 2 * right(parts), "E₀/100: mean step"
    ),
    "climbs counted as reflections": Mutation(
        f"{GONZALEZ}/step-statistics", argon_steps, "REFLECTED", lambda right: right - 1, "E₀/100: reflected"
    ),
    "a grid half as fine": Mutation(
        f"{GONZALEZ}/force-stepping",
        force_stepping_runs,
        "kepler_grid",
        lambda right: lambda h, *shift: right(2 * h, *shift),
        "planet, h = 1/8",
    ),
}
# The others take some minutes together.
QUICK = ("Z&S without its third-derivative term, one step", "β halved, linear stability", "impulse for IMEX, resonance")


def failing_rows(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(mutation.module, mutation.name, mutation.by(getattr(mutation.module, mutation.name)))
    [experiment] = papers.find(mutation.experiment)
    jax.clear_caches()  # programs compiled with the right name
    cube.stepped.cache_clear()
    for module in (argon, argon_steps):  # runs of another height must not be taken from the cache
        for cached in ("long_run", "nanoseconds"):
            getattr(module, cached).cache_clear()
    try:
        with unwatched():  # as `papers.reproduce` runs them
            return [check.claim for check in experiment(quick=True).checks if not check.ok]
    except gm.RunStopped as stopped:
        return [f"{mutation.row} (the run stopped: {stopped})"]
    finally:
        jax.clear_caches()
        for cached in (argon.long_run, argon.nanoseconds):
            cached.cache_clear()


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MUTATIONS])
def test_a_wrong_method_is_caught(name, monkeypatch):
    failed = failing_rows(MUTATIONS[name], monkeypatch)
    print(f"{name}: {len(failed)} rows fail, {failed[:3]}")
    assert any(row.startswith(MUTATIONS[name].row) for row in failed), failed
