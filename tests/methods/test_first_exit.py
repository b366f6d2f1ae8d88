"""Where a straight flight first leaves its terrace: held to a scan in extended precision, at grazes as shallow as 1e-12
of a terrace."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.methods import State
from geomint.system.mechanics import Mechanics

DEPTHS = 10.0 ** -np.arange(2, 13)  # of a graze, in terraces
LOWER, UPPER, NONE = 0, 1, -1


# --- functions along a ray, written once for jax and for numpy in extended precision, their derivatives by hand -----
def poly(xp, t, k):
    """Σ c_j t^j up to j = 8."""
    f, slope = 0 * t, 0 * t
    for c in k["c"][::-1]:
        f, slope = f * t + c, slope * t + f
    return f, slope


def sines(xp, t, k):
    x = k["w"][:, None] * t + k["phase"][:, None]
    a = k["a"][:, None]
    return (a * xp.sin(x)).sum(0), (a * k["w"][:, None] * xp.cos(x)).sum(0)


def pair(xp, t, k):
    """Lennard-Jones of a particle that passes another at the distance b, nearest at the time 3."""
    r2 = k["b"] ** 2 + (t - 3) ** 2
    y = 1 / r2**3
    return 4 * y * (y - 1), -12 * (2 * y - 1) * y / r2 * 2 * (t - 3)


def everything(xp, t, k):
    return tuple(a + b + c for a, b, c in zip(poly(xp, t, k), sines(xp, t, k), pair(xp, t, k), strict=True))


FAMILIES = {"polynomial": (poly, 3.0), "sines": (sines, 6.0), "lennard_jones": (pair, 6.0), "sums": (everything, 3.0)}


def ray(rng, name):
    degree = rng.integers(3, 9)
    c = np.where(np.arange(9) <= degree, rng.normal(size=9) * 3.0 ** -np.arange(9) * 4, 0.0)
    few = name == "sums"
    return {
        "c": c * (0.3 if few else 1),
        "a": rng.normal(size=3) * (0.3 if few else 1),
        "w": rng.uniform(0.5, 4, 3),
        "phase": rng.uniform(0, 6.3, 3),
        "b": rng.uniform(0.85, 1.6),
    }


# --- the oracle: monotone pieces between extrema, and bisection, in 64 bits of mantissa -----------------------------
def bisect(g, low, high):
    """A change of sign of g in each of [low, high]."""
    before = g(low) > 0
    for _ in range(80):
        middle = (low + high) / 2
        same = (g(middle) > 0) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2


class Ray:
    """f on [0, T], its extrema known."""

    def __init__(self, family, k, end, points=600):
        self.k = {name: np.asarray(x, np.longdouble) for name, x in k.items()}
        self.f = lambda t: family(np, np.asarray(t, np.longdouble), self.k)[0]
        slope = lambda t: family(np, t, self.k)[1]
        grid = np.linspace(0, end, points, dtype=np.longdouble)
        s = slope(grid)
        at = np.flatnonzero((s[1:] > 0) != (s[:-1] > 0))
        self.extrema = bisect(slope, grid[at], grid[at + 1])
        self.ends = np.concatenate([[np.longdouble(0)], self.extrema, [np.longdouble(end)]])
        self.at_ends = self.f(self.ends)

    def exit(self, low, high):
        """(time, edge) of the first exit from [low, high], from a start inside."""
        for a, b, fa, fb in zip(self.ends[:-1], self.ends[1:], self.at_ends[:-1], self.at_ends[1:], strict=True):
            for edge, level in ((LOWER, low), (UPPER, high)):
                if (fa - level) * (fb - level) < 0 and ((fb < low) if edge == LOWER else (fb > high)):
                    return bisect(lambda t, level=level: self.f(t) - level, np.array([a]), np.array([b]))[0], edge
        return np.inf, NONE


@functools.partial(jax.jit, static_argnums=(0, 5))
def searched(family, k, base, height, end, search="hermite"):
    """What the method finds: for each ray (time, edge, status), the edge −1 where it passed `end`."""

    def one(k, base, height):
        system = gm.System(lambda q, k: family(jnp, q, k)[0][0], params=k)
        mech, method = Mechanics(system, (1,)), gm.EnergyStepping(height, base, search=search)
        flight = method.init(mech, State(jnp.zeros(1), jnp.ones(1), jnp.zeros(())), jnp.ones(()))
        going = lambda f: (f.exit_gauge < 0) & (f.a < end) & (f.status == 0)
        flight = jax.lax.while_loop(going, lambda f: method.step(mech, f, 0.0), flight)
        due = jnp.where((flight.exit_gauge >= 0) & (flight.a > end), NONE, flight.exit_gauge)
        return flight.a, due, flight.status, flight.counts.jets

    return jax.vmap(one)(k, base, height)


def grazes(name, count, seed):
    """Rays with an extremum that no earlier point of the ray exceeds, and terraces whose edge passes it at the depth
    ±δ."""
    family, end = FAMILIES[name]
    rng = np.random.default_rng(seed)
    rays, made = [], []
    while len(rays) < count:
        k = ray(rng, name)
        r = Ray(family, k, end)
        values = r.at_ends[:-1]
        good = [
            i
            for i in range(1, len(values))
            if min(abs(values[i] - np.max(values[:i])), abs(values[i] - np.min(values[:i]))) > 0
            and (values[i] > np.max(values[:i]) + 0.05 or values[i] < np.min(values[:i]) - 0.05)
            and np.ptp(values[: i + 1]) < 30
        ]
        if not good:
            continue
        i, depth, sign = rng.choice(good), DEPTHS[len(rays) % len(DEPTHS)], rng.choice([-1, 1])
        rises = values[i] > values[0]
        height = float(np.ptp(values[: i + 1])) * rng.uniform(1.02, 2.0)
        edge = values[i] - sign * (1 if rises else -1) * depth * np.longdouble(height)  # sign = 1: crosses by the depth
        base = float(edge - height if rises else edge)
        base -= height * rng.integers(-3, 4)
        rays.append(k)
        made.append((r, base, height, float(r.extrema[i - 1]), depth, sign))
    return rays, made


def expected(r, base, height):
    level = np.floor((np.float64(r.f(np.zeros(1))[0]) - base) / height)
    low = np.longdouble(base) + np.longdouble(height) * level
    return r.exit(low, low + np.longdouble(height))


def check_grazes(name, count, seed, search):
    family, end = FAMILIES[name]
    rays, made = grazes(name, count, seed)
    k = {n: np.stack([x[n] for x in rays]) for n in rays[0]}
    base, height = (np.array([m[i] for m in made]) for i in (1, 2))
    found = [np.asarray(x) for x in searched(family, k, base, height, end, search)]
    wrong, deep = [], {d: 0 for d in DEPTHS}
    for i, (r, b, h, touch, depth, sign) in enumerate(made):
        when, edge = expected(r, b, h)
        crossed = abs(float(when) - touch) < 0.02 + 3 * np.sqrt(depth)
        deep[depth] += crossed == (sign > 0)
        # The time of a shallow crossing is known as well as rounding in V allows: ε V/h over the slope, √δ.
        close = edge == NONE or abs(found[0][i] - float(when)) < 2e-13 * (1 + abs(b) / h) / np.sqrt(depth) + 1e-11
        if found[2][i] or found[1][i] != edge or not close:
            wrong.append((i, depth, sign, (float(when), edge), tuple(x[i] for x in found)))
    assert all(n > 0 for n in deep.values())  # every depth is there, and the oracle tells crossings from misses
    return wrong, found


@pytest.mark.parametrize(("name", "count"), [("polynomial", 200), ("lennard_jones", 100)])
def test_grazes_are_crossed_or_missed(name, count):
    wrong, found = check_grazes(name, count, 0, "hermite")
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    assert np.mean(found[3]) < 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["polynomial", "sines", "lennard_jones", "sums"])
def test_thousands_of_grazes(name):
    wrong, _ = check_grazes(name, 3000, 1, "hermite")
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


@pytest.mark.parametrize("name", ["sines", "lennard_jones"])
def test_grazes_by_proof(name):
    wrong, _ = check_grazes(name, 120, 1, "interval")
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_thousands_of_grazes_by_proof(name):
    wrong, _ = check_grazes(name, 3000, 2, "interval")
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


# --- two atoms from far away ----------------------------------------------------------------------------------------
def atoms(q):
    y = 1 / jnp.sum((q[1] - q[0]) ** 2) ** 3
    return 4 * y * (y - 1)


def head_on(search, far, aside, **more):
    q0, v0 = [[0.0, 0.0], [far, aside]], [[1.0, 0.0], [-1.0, 0.0]]
    return gm.simulate(
        gm.System(atoms), q0, v0, method=gm.EnergyStepping(0.2, search=search, **more), dt=far / 50, t_end=far
    )


@pytest.mark.parametrize("aside", [0.0, 0.3])
@pytest.mark.parametrize("far", [10.0, 100.0])
@pytest.mark.parametrize(("search", "more"), [("hermite", {}), ("hermite", {"reach": 0.1}), ("interval", {})])
def test_no_tunnel_through_a_core(search, more, far, aside):
    run = head_on(search, far, aside, **more)
    assert np.min(np.linalg.norm(run.q[:, 1] - run.q[:, 0], axis=1)) > 0.9
    assert run.events.counts["reflected"] >= 1
    assert run.events.counts["up"] >= 5
    away = run.q[-1, 1] - run.q[-1, 0]
    assert away[0] > 0  # turned back
    assert np.max(np.abs(run.energy_error)) < 1e-13


# --- the start, and potentials that are hardly any ------------------------------------------------------------------
PARABOLAS = {  # V = x + ay + ½by² from x = 1, on an edge, along y: (φ', φ'') = (a, b) decide the terrace, level 2 or 1
    "falls": (-1.0, 0.0, 1),
    "rises": (1.0, 0.0, 2),
    "bends down": (0.0, -1.0, 1),
    "bends up": (0.0, 1.0, 2),
    "goes along": (0.0, 0.0, 2),
}
PARABOLA = gm.System(lambda q, k: q[0] + k[0] * q[1] + 0.5 * k[1] * q[1] ** 2, params=np.zeros(2))


@pytest.mark.parametrize("name", PARABOLAS)
def test_starts_on_an_edge(name):
    *bend, level = PARABOLAS[name]
    system = PARABOLA.with_params(np.array(bend))
    run = gm.simulate(system, [1.0, 0.0], [0.0, 1.0], method=gm.EnergyStepping(0.5, 0.0), dt=0.125, t_end=0.5)
    assert run.level[0] == level
    assert len(run.events.times) == 0 or run.events.times[0] > 0.2  # no event at the start itself
    assert run.energy[0] == 0.5 + 0.5 * level


def test_a_start_just_below_an_edge_climbs_it():
    """V = x, edges at 0, .5, 1: at a speed of 2 the edge is 2.5e-8 of time away, and the climb costs .5 of energy."""
    slope = gm.System(lambda q: jnp.sum(q))
    run = gm.simulate(slope, [1 - 5e-8], [2.0], method=gm.EnergyStepping(0.5, 0.0), dt=0.05, t_end=0.1)
    assert run.level[0] == 1
    assert run.events.kinds[0] == "up"
    assert run.events.times[0] == pytest.approx(2.5e-8, rel=1e-6)
    assert run.energy[0] == pytest.approx(2.5, rel=1e-15)  # ½·2² + ½


def test_only_a_turning_point_lies_on_an_edge():
    """V = x: a motion along y is at a turning point and starts on an edge, V_h = V; one aslant starts between two."""
    field = gm.System(lambda q: q[0])
    go = lambda v0: gm.simulate(field, [1.0, 0.0], v0, method=gm.EnergyStepping(0.5), dt=0.05, t_end=0.1)
    assert go([0.0, 1.0]).energy[0] == pytest.approx(1.5, rel=1e-14)
    assert go([0.01, 1.0]).energy[0] == pytest.approx(0.5 * (1 + 1e-4) + 0.75, rel=1e-14)
    assert go([1e-4, 1.0]).energy[0] == pytest.approx(0.5 + 0.75, rel=1e-7)


def test_a_tie_is_reflected():
    """V = 2x and v = 2: a² = 16 = 2hk, k = 4, for h = 2 exactly."""
    slope = gm.System(lambda q: 2 * jnp.sum(q))
    for height, kind in ((2.0, "reflected"), (1.9999, "up"), (2.0001, "reflected")):
        run = gm.simulate(slope, [0.0], [2.0], method=gm.EnergyStepping(height, -0.5), dt=0.25, t_end=1.0)
        assert run.events.kinds[0] == kind
        assert run.energy[-1] == pytest.approx(run.energy[0], rel=1e-15)


def test_no_force_no_event():
    for potential in (None, lambda q: 0.0 * jnp.sum(q), lambda q: 7.0 + 0.0 * q[0]):
        run = gm.simulate(gm.System(potential), [1.0], [5.0], method=gm.EnergyStepping(0.1), dt=10.0, t_end=1e6)
        assert len(run.events) == 0
        np.testing.assert_allclose(run.q[:, 0], 1 + 5 * run.t, rtol=1e-15)


def test_a_constant_in_the_potential_changes_nothing_but_digits():
    """The rounding of V is up to 1e-6 of a terrace here; the search must not lose its way in it."""
    system = lambda c: gm.System(lambda q, k: k + 0.5 * jnp.sum(q**2), params=c)
    go = lambda c: gm.simulate(
        system(c), [0.3, 0.1], [1.0, 0.4], method=gm.EnergyStepping(0.01, c - 0.003), dt=0.1, t_end=3.0
    )
    plain = go(0.0)
    assert len(plain.events) > 100
    for shift in (1e3, 1e6, 1e8):
        shifted = go(shift)
        assert np.array_equal(plain.events.codes[:50], shifted.events.codes[:50])
        np.testing.assert_allclose(plain.events.times[:50], shifted.events.times[:50], rtol=0, atol=1e-12 * shift)


def test_a_slow_fall_from_an_edge():
    """V leaves V(∞), here an edge, by less than rounding for a long while, then falls."""
    dip = gm.System(lambda q: -jnp.sum(jnp.exp(-(q**2))))
    run = gm.simulate(dip, [-10.0], [1.0], method=gm.EnergyStepping(0.1, 0.0, reach=0.5), dt=0.5, t_end=20.0)
    assert run.level[0] == -1  # it falls from its edge
    assert run.events.counts["down"] == run.events.counts["up"] == 9


def test_reach_finds_what_hides_behind_a_plain():
    dip = gm.System(lambda q: -jnp.sum(jnp.exp(-((q / 0.05) ** 2))))
    run = gm.simulate(dip, [-10.0], [1.0], method=gm.EnergyStepping(0.1, 0.03, reach=0.02), dt=0.5, t_end=20.0)
    assert run.events.counts["down"] == run.events.counts["up"] == 10
