"""Random programs: the native engine against XLA against an interpreter in numpy (programs.py).

Each case is a random system: some random energies as potential, as a fast part and as constraints, a random mass, and
a method. Both engines integrate it from the same start. The results may differ by what rounding makes of them: for
methods that the interpreter knows, it integrates the system itself and measures that with random rounding; for the
others, the start is shifted by some units in the last place.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import geomint as gm
from helpers.programs import noisy
from helpers.random_systems import Motion, Springs, Sum, Surfaces


@dataclasses.dataclass(frozen=True)
class Kind:
    """A method, what it needs of a system, and how the interpreter does it (None: it does not)."""

    method: Any
    oracle: str | None = None
    fast: str | None = None  # "any" or "quadratic"
    constrained: bool = False
    smooth: bool = True
    parts: int = 3  # random energies in one potential
    near: str = "verlet"  # of methods without an oracle: the interpreter's method that differs from it by O(h²)
    floor: float = 1e-12  # what the tolerance of an iteration may leave


EXPLICIT = {"smooth": False, "parts": 10, "floor": 1e-14}
KINDS = [
    Kind(gm.Verlet(), "verlet", **EXPLICIT),
    Kind(gm.Verlet(), "verlet", "any", **EXPLICIT),
    Kind(gm.Verlet("drift"), "drift_verlet", **EXPLICIT),
    Kind(gm.SymplecticEuler(), "kick_drift", **EXPLICIT),
    Kind(gm.SymplecticEuler("drift"), "drift_kick", **EXPLICIT),
    Kind(gm.RungeKutta4(), "runge_kutta", smooth=False, parts=4, floor=1e-14),
    Kind(gm.Composition(gm.Verlet("drift"), scheme="yoshida"), "yoshida", **EXPLICIT),
    Kind(gm.RESPA(), "respa", "any", **EXPLICIT),
    Kind(gm.RESPA(), "respa", "quadratic", **EXPLICIT),
    Kind(gm.IMEX(), "imex", "any", parts=2),
    Kind(gm.IMEX(), "imex", "quadratic", parts=6, floor=1e-13),
    Kind(gm.ImplicitMidpoint(), "midpoint", parts=2),
    Kind(gm.Gauss(), "gauss", parts=1),
    Kind(gm.Rattle(), "rattle", constrained=True, parts=1),
    Kind(gm.LobattoIIIAB(stages=2), "verlet", parts=1),
    Kind(gm.Variational(quadrature="trapezoid"), "verlet", parts=1),
    Kind(gm.Variational(), "midpoint", parts=1),
    Kind(gm.Splitting(), parts=4),
    Kind(gm.Splitting("blanes-moan"), parts=4),
    Kind(gm.MultiStage(), parts=4),
    Kind(gm.ZhangSkeel(), parts=1),
    Kind(gm.SimplifiedZhangSkeel(), parts=1),
    Kind(gm.StiffZhangSkeel(), fast="any", parts=1),
    Kind(gm.PushforwardNewmark(), parts=1),
    Kind(gm.Newmark(), parts=1),
    Kind(gm.SymmetricMultistep(4), parts=2),
    Kind(gm.SymmetricMultistep(8), parts=2),
    Kind(gm.Trigonometric(), fast="quadratic", parts=4),
    Kind(gm.MollifiedImpulse(), fast="quadratic", parts=2),
    Kind(gm.Gautschi(), fast="quadratic", parts=4),
    Kind(gm.Shake(), constrained=True, parts=1, near="rattle"),
    Kind(gm.Rattle(base=gm.Splitting()), constrained=True, parts=1, near="rattle"),
    Kind(gm.SymmetricMultistep(4), constrained=True, parts=1, near="rattle"),
    Kind(gm.LobattoIIIAB(stages=2), constrained=True, parts=1, near="rattle"),
]
DT, STEPS, EVERY = 0.04, 8, 4


class Case:
    """A random system and its start, for one kind of method."""

    def __init__(self, seed: int, kind: Kind, length: int = 4):
        self.random = random = np.random.default_rng(seed)
        self.kind, self.seed = kind, seed
        sizes = [int(n) for n in random.choice([2, 2, 3, 4], kind.parts)]
        n = sum(sizes)
        self.shape = (n // 2, 2) if n % 2 == 0 and random.integers(2) else (n,)
        slow = Sum(random, sizes, length, kind.smooth, takes_params=True)
        fast = {
            None: lambda: None,
            "any": lambda: Sum(random, sizes, 2, True),
            "quadratic": lambda: Springs(random, n),
        }[kind.fast]()
        self.q = random.normal(size=n) * 0.8
        surfaces = (
            Surfaces(random, self.q.reshape(self.shape), int(random.integers(1, n))) if kind.constrained else None
        )
        mass, whole = self._mass(n)
        self.motion = Motion(slow, fast, surfaces, whole, self.shape)
        self.p = whole @ (random.normal(size=n) * 0.8)
        if surfaces is not None:
            self.p = self.motion.tangent(self.q, self.p)
        params = slow.scales if random.integers(2) else None
        self.system = gm.System(slow, mass=mass, fast=fast, constraint=surfaces, params=params)
        self.programs = sum(len(part.parts) for part in (slow, fast, surfaces) if part is not None)
        self.members = 3 if random.integers(4) == 0 else 0

    def _mass(self, n: int) -> tuple[Any, np.ndarray]:
        """A number, an array or a matrix, and the same as a matrix."""
        choice = self.random.integers(3 if n <= 12 else 2)  # a large matrix takes long to compile
        if choice == 0:
            mass = float(self.random.uniform(0.5, 2))
            return mass, mass * np.eye(n)
        if choice == 1:
            mass = self.random.uniform(0.5, 2, self.shape)
            return mass, np.diag(mass.ravel())
        root = self.random.normal(size=(n, n)) / n
        return (whole := np.eye(n) + root @ root.T), whole

    def starts(self, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """q and p, of all members where there are several: the first is the start itself, the others move more
        slowly."""
        bend = lambda x: x * (1 + shift * np.random.default_rng(1).normal(size=x.shape))
        q, p = bend(self.q), bend(self.p)
        if shift and self.motion.surfaces is not None:
            q, p = self.q, self.motion.tangent(self.q, p)
        if not self.members:
            return q.reshape(self.shape), p.reshape(self.shape)
        slower = 1 - 0.1 * np.arange(self.members)[:, None]
        return (x.reshape(-1, *self.shape) for x in (np.repeat(q[None], self.members, 0), slower * p))

    def run(self, engine: str, shift: float = 0.0) -> Any:
        setting = {"method": self.kind.method, "dt": DT, "t_end": STEPS * DT, "save_every": EVERY, "engine": engine}
        q, p = self.starts(shift)
        if self.members:
            return gm.ensemble(self.system, q, p0s=p, **setting)
        return gm.simulate(self.system, q, p0=p, **setting)

    def seen(self, run: Any) -> np.ndarray:
        """(members, saves, 2, n)."""
        flat = lambda x: np.asarray(x).reshape(self.members or 1, STEPS // EVERY + 1, -1)
        return np.stack([flat(run.q), flat(run.p)], axis=2)

    # --- the comparison
    def check(self) -> str:
        """Compare all three; the name of the native engine, which says why where it could not be used."""
        reference, native = self.run("xla"), self.run("native")
        expected, got = self.seen(reference), self.seen(native)
        scale = 1 + np.max(np.abs(expected))
        exact, spread = self._interpreted()
        if exact is None:
            spread = np.max(np.abs(self.seen(self.run("xla", 1e-14)) - expected))
        bound = self.kind.floor * scale + 60 * spread
        assert bound < 1e-6, f"{self}: too sensitive to say anything ({spread:.1e})"
        assert np.max(np.abs(got - expected)) <= bound, (
            f"{self}: native and xla differ by {np.max(np.abs(got - expected)):.2e}, bound {bound:.1e}"
        )
        last = -1
        if exact is not None:
            off = np.max(np.abs(expected[last] - exact))
            assert off <= bound, f"{self}: xla differs from numpy by {off:.2e}, bound {bound:.1e}"
        else:
            q, p = (x.reshape(-1, self.q.size)[last] for x in self.starts())
            near = self.motion.run(self.kind.near, q, p, DT / 2, 2 * STEPS, 2 * EVERY)
            assert np.max(np.abs(expected[last, :, 0] - near[:, 0])) < 0.1 * scale, f"{self}: another motion"
        for run, x in ((reference, expected), (native, got)):
            energies = np.asarray(run.energy).reshape(len(x), -1)[last]
            np.testing.assert_allclose(
                energies, [self.motion.energy(*state) for state in x[last]], rtol=1e-12, atol=1e-11, err_msg=str(self)
            )
            if self.motion.surfaces is not None:
                off = max(
                    np.max(np.abs(self.motion.surfaces.numbers(state[0].reshape(self.shape))[0])) for state in x[last]
                )
                assert off < 1e-11, f"{self}: off the constraint by {off:.1e}"
        return native.engine

    def _interpreted(self) -> tuple[np.ndarray | None, float]:
        """The motion of the last member by numpy, and how far runs with random rounding are from it."""
        if self.kind.oracle is None:
            return None, 0.0
        q, p = (x.reshape(-1, self.q.size)[-1] for x in self.starts())
        run = lambda: self.motion.run(self.kind.oracle, q, p, DT, STEPS, EVERY)
        exact = run()
        with noisy(self.seed):
            return exact, max(np.max(np.abs(run() - exact)) for _ in range(2))

    def __repr__(self) -> str:
        name, mass = self.kind.method.name, np.shape(self.system.mass)
        return (
            f"seed {self.seed}, {name}, q {self.shape}, mass {mass}, members {self.members}, {self.motion.slow.parts}"
        )


def check_all(cases: list[Case], wanted: int) -> None:
    """All of them, and at least so many random programs, nearly all of them in machine code."""
    engines = [case.check() for case in cases]
    assert sum(case.programs for case in cases) >= wanted
    assert np.mean([engine == "native" for engine in engines]) >= 0.9, engines


# (seed, kind): methods that compile fast, with ten programs or more in each system but the last, which is constrained.
QUICK = [(34, 1), (25, 2), (12, 8), (27, 13)]


def test_forty_random_programs():
    """Some alone, some in an ensemble. The slow tests take two thousand, with every kind of method."""
    cases = [Case(seed, KINDS[k], length=2) for seed, k in QUICK]
    assert {case.members > 0 for case in cases} == {False, True}
    check_all(cases, 40)


SLICE = len(KINDS)  # cases: each kind once


@pytest.mark.slow
@pytest.mark.parametrize("part", range(13))
def test_two_thousand_random_programs(part):
    """442 cases; every slice has each kind of method once and at least 154 programs, which makes 2002."""
    check_all([Case(100 + seed, KINDS[seed % len(KINDS)]) for seed in range(part * SLICE, (part + 1) * SLICE)], 154)
