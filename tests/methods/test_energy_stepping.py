"""Energy-stepping: exact events, no exit missed, saving and stopping change nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.analysis import measure
from geomint.methods import State
from geomint.system.mechanics import Mechanics
from helpers.runs import ARGON, ARGON_ENERGY, argon

pytestmark = pytest.mark.filterwarnings("ignore:EnergyStepping was trapped")


def argon_potential(q):
    """V by hand, (..., 7, 2)."""
    i, j = np.triu_indices(7, 1)
    y = (0.341**2 / np.sum((q[..., i, :] - q[..., j, :]) ** 2, axis=-1)) ** 3
    return np.sum(4 * ARGON.system.params["epsilon"] * y * (y - 1), axis=-1)


# --- no exit is missed ----------------------------------------------------------------------------------------------
@functools.partial(jax.jit, static_argnums=3)
def flown(method, system, flight, steps):
    """So many steps, and the flights they end, as they stood before their event."""
    mech = Mechanics(system, flight.q.shape)

    def step(f, _):
        return method.step(mech, f, 0.0), (f.q, mech.velocity(f.p), f.level, f.a, f.exit_gauge >= 0)

    return jax.lax.scan(step, flight, None, length=steps)


@jax.jit
def least_gauge(method, system, base, q, v, level, a):
    """The least distance from the edges, in terraces, on each flight: 200 points, and 50 more around the least for each
    edge."""
    mech = Mechanics(system, q.shape[1:])

    def one(flight):
        q, v, level, a = flight
        above = lambda s: (mech.potential(q + s * v) - base) / method.height - level
        grid = a * jnp.linspace(1e-3, 1 - 1e-3, 200)
        for gauge in (above, lambda s: 1 - above(s)):
            w = jax.vmap(gauge)(grid)
            at = grid[jnp.argmin(w)]
            yield jnp.minimum(
                jnp.min(w), jnp.min(jax.vmap(gauge)(jnp.clip(at + a * jnp.linspace(-0.006, 0.006, 50), 0, a)))
            )

    return jax.lax.map(lambda f: jnp.min(jnp.stack(list(one(f)))), (q, v, level, a), batch_size=64)


def scan(model, height, events, chunk=16_000):
    """(events, worst): the most negative gauge between events."""
    method = gm.EnergyStepping(height)
    p = jnp.asarray(model.system.mass * model.v0 if np.ndim(model.system.mass) < 2 else model.v0)
    begun = jax.jit(lambda state: method.init(Mechanics(model.system, model.q0.shape), state, 0.0))
    flight = begun(State(jnp.asarray(model.q0), p, jnp.zeros(())))
    worst, seen = 0.0, 0
    while seen < events:
        flight, (q, v, level, a, ended) = flown(method, model.system, flight, chunk)
        # All of one length, so that nothing compiles twice; flights still going count as far as they are known.
        worst = min(worst, float(jnp.min(least_gauge(method, model.system, flight.base, q, v, level, a))))
        assert int(flight.status) == 0
        seen += int(ended.sum())
    return int(flight.counts.events), worst


def test_no_exit_is_missed_in_5000_events_of_argon():
    count, worst = scan(ARGON, ARGON_ENERGY / 60, 5000, 4000)
    assert count >= 5000
    assert -1e-10 < worst <= 0  # rounding of V, some 1e-13 of a terrace


@pytest.mark.slow
@pytest.mark.parametrize("parts", [100, 60, 30])
def test_no_exit_is_missed_in_a_million_events_of_argon(parts):
    count, worst = scan(ARGON, ARGON_ENERGY / parts, 1_000_000, 100_000)
    assert count >= 1_000_000
    assert -1e-10 < worst <= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "height"),
    [
        ("kepler(eccentricity=0.3)", 0.01),
        ("fpu", 0.05),
        ("morse_cluster(temperature=0.3)", 0.2),
        ("lennard_jones_cluster(temperature=0.3)", 0.3),
    ],
)
def test_no_exit_is_missed_elsewhere(text, height):
    model = gm.models.named(text)
    assert scan(model, height, 20_000)[1] > -1e-9


# --- exactness ------------------------------------------------------------------------------------------------------
def test_energy_and_momenta_of_argon_are_exact():
    run = argon(60, t_end=1.0, dt=1e-3)
    assert np.max(np.abs(run.energy_error)) <= 1e-13 * ARGON_ENERGY
    assert np.max(np.abs(run.momentum_maps["translation"])) <= 1e-12 * np.max(np.sum(np.abs(run.p), axis=(1, 2)))
    turning = run.momentum_maps["rotation"]
    assert np.max(np.abs(turning - turning[0])) <= 1e-11 * abs(turning[0])
    assert np.max(np.abs(run.smooth_energy - run.energy)) <= (1 + 1e-9) * ARGON_ENERGY / 60
    assert run.events.counts["jets"] <= 4.5 * len(run.events)


def test_saved_states_lie_on_their_terraces_and_on_straight_lines():
    run = argon(60, t_end=0.02, dt=1e-6)
    base = float(run.checkpoint.carry.base)
    above = (argon_potential(run.q) - base) / (ARGON_ENERGY / 60) - run.level
    assert above.min() > -1e-9
    assert above.max() < 1 + 1e-9
    events = run.events.times
    assert len(events) > 100
    piece = np.searchsorted(events, run.t)
    assert np.array_equal(run.level[1:][np.diff(piece) == 0], run.level[:-1][np.diff(piece) == 0])
    for k in np.unique(piece):
        on = np.flatnonzero(piece == k)
        line = run.q[on[0]] + (run.t[on] - run.t[on[0]])[:, None, None] * run.v[on[0]]
        assert np.max(np.abs(run.q[on] - line)) < 1e-14
        assert np.ptp(run.p[on], axis=0).max() == 0
    after = np.concatenate([[0], run.events.levels])
    assert np.array_equal(after[piece], run.level - run.level[0])


def by_hand(potential, square, slope, q, v, height, offset, count):
    """Energy-stepping in a central field V(r²) with r²(V) and dV/d(r²): exits are roots of quadratics. (time, level,
    kind) of events."""
    q, v, t, out = np.array(q), np.array(v), 0.0, []
    level, on = int(np.floor((potential(q @ q) - offset) / height)), None
    while len(out) < count:
        best = (np.inf, None)
        for edge in (level, level + 1):
            r2 = square(offset + height * edge)
            a, b, c = v @ v, q @ v, (0.0 if edge == on else q @ q - r2)
            if not r2 > 0 or b * b - a * c < 0:
                continue
            root = np.sqrt(b * b - a * c)
            both = (
                [-2 * b / a]
                if edge == on
                else ([c / (-b - root), (-b - root) / a] if b < 0 else [(-b - root) / a, c / (-b - root)])
            )
            best = min([best, *((s, edge) for s in both if s > 1e-14)])
        s, edge = best
        q, t = q + s * v, t + s
        n = 2 * slope(q @ q) * q
        up = edge == level + 1
        a, k, step = n @ v, n @ n, height if up else -height
        reflected = a * a <= 2 * step * k
        v = v + (-2 * a / k if reflected else (-a + np.sign(step) * np.sqrt(a * a - 2 * step * k)) / k) * n
        level += 0 if reflected else (1 if up else -1)
        on = edge
        out.append((t, level, 3 if reflected else 1 if up else 2))
    return np.array(out)


@pytest.mark.parametrize(
    ("field", "q0", "v0", "height", "offset"),
    [
        ("bowl", [1.0, 0.2], [0.1, 0.7], 0.037, -0.01),
        ("bowl", [0.3, 0.0], [1.0, 0.0], 0.11, -0.03),
        ("kepler", [1.0, 0.1], [0.2, 0.8], 0.031, -0.015),
    ],
)
def test_events_agree_with_exact_roots(field, q0, v0, height, offset):
    if field == "bowl":
        system, hand = gm.System(lambda q: 0.5 * jnp.sum(q**2)), (lambda r2: 0.5 * r2, lambda x: 2 * x, lambda r2: 0.5)
    else:
        system, hand = (
            gm.System(lambda q: -1 / jnp.sqrt(jnp.sum(q**2))),
            (lambda r2: -(r2**-0.5), lambda x: x**-2 if x < 0 else -1.0, lambda r2: 0.5 * r2**-1.5),
        )
    exact = by_hand(*hand, q0, v0, height, offset, 100)
    run = gm.simulate(
        system, q0, v0, method=gm.EnergyStepping(height, offset), dt=0.5, t_end=0.5 * np.ceil(2 * exact[-1, 0] + 1)
    )
    assert len(np.unique(exact[:, 2])) >= 2
    assert np.array_equal(run.events.levels[:100], exact[:, 1])
    assert np.array_equal(run.events.codes[:100], exact[:, 2])
    np.testing.assert_allclose(run.events.times[:100], exact[:, 0], rtol=0, atol=1e-10)


@pytest.mark.slow  # the experiment examples-4 shows the same in the quick tests
def test_the_papers_examples():
    """4.1: the speed on the highest terrace; 4.2: along the edge for ever; 4.3: reflected along the circle if γ²(1 − θ)
    ≤ 1 + 2h(1 − θ), which the paper has without its last term, for h → 0: (v·n)² = 2h(1 − θ)γ², nᵀM⁻¹n = 2V there."""
    h = 0.12
    run = gm.simulate(
        gm.models.harmonic_oscillator().system, [0.0], [1.0], method=gm.EnergyStepping(h, 0.0), dt=0.01, t_end=20.0
    )
    k = int(0.5 / h)
    assert run.level.max() == k
    np.testing.assert_allclose(np.abs(run.p[run.level == k]), np.sqrt(1 - 2 * k * h), rtol=1e-13)
    trough = gm.models.harmonic_trough()
    run = gm.simulate(trough.system, trough.q0, trough.v0, method=gm.EnergyStepping(0.05, 0.0), dt=0.1, t_end=10.0)
    np.testing.assert_allclose(run.q, np.stack([np.ones_like(run.t), run.t], axis=1), rtol=0, atol=1e-12)
    for speed, h in ((0.5, 0.11), (1.5, 0.11), (1.57, 0.11), (2.0, 0.11), (1.1, 0.07)):
        rest = 1 - (0.5 / h) % 1
        bowl = gm.models.harmonic_bowl(speed)
        run = gm.simulate(bowl.system, bowl.q0, bowl.v0, method=gm.EnergyStepping(h, 0.0), dt=0.1, t_end=20.0)
        assert (run.events.counts["up"] + run.events.counts["down"] == 0) == (speed**2 * rest <= 1 + 2 * h * rest)


# --- symplecticity and reversal -------------------------------------------------------------------------------------
def jacobian_by_hand(hessian, n, inverse_mass, p, tau, rest, impulse):
    """d(q, p)(t)/d(q, p)(0) through one event after τ, `rest` before t: λ a + ½λ²k = −ΔV, or 0 for a reflection, is
    differentiated."""
    size, v = len(n), inverse_mass @ p
    dq, dp = np.eye(size, 2 * size), np.eye(size, 2 * size, size)
    a, k = n @ v, n @ inverse_mass @ n
    dt = -(n @ (dq + tau * inverse_mass @ dp)) / a
    there = dq + tau * inverse_mass @ dp + np.outer(v, dt)
    dn = hessian @ there
    da, dk = v @ dn + n @ inverse_mass @ dp, 2 * n @ inverse_mass @ dn
    dimpulse = -(impulse * da + 0.5 * impulse**2 * dk) / (a + impulse * k)
    after = dp + np.outer(n, dimpulse) + impulse * dn
    return np.concatenate([there + rest * inverse_mass @ after - np.outer(inverse_mass @ (p + impulse * n), dt), after])


def jacobian_of_the_appendix(hessian, n, v, tau, rest, impulse):
    """As printed, for M = 1; there n is a unit vector and λ includes |∇V|."""
    size, steep = len(n), np.linalg.norm(n)
    n, lam = n / steep, impulse * steep
    a, one, nn = v @ n, np.eye(len(n)), np.outer(n, n)
    s, hv = a + lam, hessian @ v
    p_q = (
        lam / steep * hessian
        - lam**2 / (steep * s) * nn @ hessian
        - lam / (steep * s) * np.outer(n, hv)
        - lam / (steep * a) * np.outer(hv, n)
    )
    p_q += lam * ((v + lam * n) @ hv) / (s * steep * a) * nn
    bracket = one + lam / a * nn
    p_p = one - lam / s * nn + tau * p_q
    out = np.block([[rest * p_q + bracket, rest * p_p + tau * bracket], [p_q, p_p]])
    assert out.shape == (2 * size, 2 * size)
    return out


POTENTIALS = {
    "quartic": lambda q: (
        jnp.sum(0.5 * q**2) + 0.1 * jnp.sum(q**4) + 0.3 * jnp.sin(q[0] * q[1]) + 0.2 * q[0] * q[2] * q[3]
    ),
    "exponentials": lambda q: jnp.sum(jnp.exp(jnp.diff(q))) + jnp.sum(q**2),
}


@pytest.mark.parametrize(
    ("name", "heavy"), [("quartic", True), pytest.param("exponentials", False, marks=pytest.mark.slow)]
)
def test_the_jacobian_of_an_event(name, heavy):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    mass = root @ root.T + 4 * np.eye(4) if heavy else np.eye(4)
    system, inverse, kinds = gm.System(POTENTIALS[name], mass=mass if heavy else 1.0), np.linalg.inv(mass), []
    mech = Mechanics(system, (4,))
    slope, bend = jax.jit(jax.grad(system.potential)), jax.jit(jax.hessian(system.potential))
    for height in (0.1, 0.3, 3.0):
        for _ in range(5):
            q, v = rng.normal(size=4), rng.normal(size=4)
            p, method = mass @ v, gm.EnergyStepping(height, float(mech.potential(q)) - 0.4 * height)
            run = gm.simulate(system, q, v, method=method, dt=0.1, t_end=10.0)
            if len(run.events) < 2 or run.events.times[1] - run.events.times[0] < 1e-3:
                continue
            tau, t = run.events.times[0], 0.5 * (run.events.times[0] + run.events.times[1])
            if kinds.count(kind := str(run.events.kinds[0])) == 2:
                continue
            kinds.append(kind)
            there = jnp.asarray(q + tau * v)
            n, hessian = np.asarray(slope(there)), np.asarray(bend(there))
            after = np.asarray(measure.flow(method, system, measure.Point(q, p), t).p)
            impulse = (after - p) @ n / (n @ n)
            np.testing.assert_allclose(after, p + impulse * n, atol=1e-12)
            found = np.asarray(measure.step_jacobian(method, system, jnp.asarray(q), jnp.asarray(p), jnp.asarray(t)))
            exact = jacobian_by_hand(hessian, n, inverse, p, tau, t - tau, impulse)
            size = np.max(np.abs(exact))
            assert np.max(np.abs(found - exact)) < 1e-10 * size**2
            if not heavy:
                assert (
                    np.max(np.abs(found - jacobian_of_the_appendix(hessian, n, v, tau, t - tau, impulse)))
                    < 1e-10 * size**2
                )
            omega = np.kron([[0, 1], [-1, 0]], np.eye(4))
            assert np.max(np.abs(found.T @ omega @ found - omega)) < 1e-13 * max(1, size**2)
    assert set(kinds) == {"up", "down", "reflected"}


def test_a_hundred_events_of_argon_are_reversed():
    offset = float(argon_potential(ARGON.q0)) - 0.5 * ARGON_ENERGY / 100
    there = argon(100, 6e-3, 1e-3, offset=offset)
    assert len(there.events) > 100
    back = argon(100, 6e-3, 1e-3, there.q[-1], -there.v[-1], offset=offset)
    assert np.max(np.abs(back.q[-1] - ARGON.q0)) <= 1e-10
    assert np.array_equal(back.events.codes[::-1] == 3, there.events.codes == 3)


def test_the_certificate():
    certificate = gm.certify(ARGON.system, gm.EnergyStepping(ARGON_ENERGY / 60), ARGON.q0, ARGON.v0, dt=1e-4, steps=500)
    assert certificate.ok
    assert certificate["symplecticity"].measured < 1e-13
    for word in ("EnergyStepping(height=", "reversibility", "momentum map rotation", "as claimed"):
        assert word in str(certificate)
