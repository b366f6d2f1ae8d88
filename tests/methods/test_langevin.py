"""Geometric Langevin: averages known otherwise, one step against the generator of the equation, and the streams of
random numbers."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import integrate, stats

import geomint as gm
from geomint.engines import pallas
from geomint.methods import State
from geomint.methods.langevin import GeometricLangevin
from geomint.numerics.normal_numbers import Stream
from geomint.system.inertia import mass_root, root_product
from geomint.system.lagrangian import derive

FRICTION, TEMPERATURE = 0.8, 0.7
ORDERINGS = pytest.mark.parametrize("ordering", ["BAOAB", "OBABO"])


def langevin(base=None, ordering="BAOAB", friction=FRICTION, temperature=TEMPERATURE):
    return GeometricLangevin(gm.Verlet() if base is None else base, friction, temperature, ordering)


def after_equilibrium(run, share=0.25):
    """The saved q and p of all members after a share of the run."""
    begin = int(share * len(run.t))
    return (np.asarray(x)[:, begin:] for x in (run.q, run.p))


# --- one step -------------------------------------------------------------------------------------------------------
def anharmonic(q):
    return 0.5 * q[0] ** 2 + 0.3 * q[0] ** 3 + 0.25 * q[0] ** 4


@pytest.mark.parametrize(
    ("ordering", "base"),
    [
        ("BAOAB", gm.Verlet()),
        ("OBABO", gm.Verlet()),
        ("BAOAB", gm.SimplifiedZhangSkeel()),
        ("OBABO", gm.ImplicitMidpoint()),
    ],
    ids=str,
)
def test_weak_order(ordering, base, monkeypatch):
    """The average of f after a step is f + hLf + ½h²L²f up to O(h³), L the generator of the stochastic equation; the
    average over the normal numbers is taken by Gauss' quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    draws = 1 if ordering == "BAOAB" else 2
    numbers = jnp.asarray(list(itertools.product(nodes, repeat=draws)))
    shares = np.prod(list(itertools.product(weights / weights.sum(), repeat=draws)), axis=1)
    mass, system = 1.7, gm.System(anharmonic, mass=1.7)
    method, mech = langevin(base, ordering), derive(system, (1,))

    def f(q, p):
        return jnp.sin(q) + q * p + 0.3 * p**3 + q**2

    def generator(g):
        def applied(q, p):
            rise, push = jax.grad(g, 0)(q, p), jax.grad(g, 1)(q, p)
            force = -jax.grad(lambda x: anharmonic(x[None]))(q)
            bend = jax.grad(jax.grad(g, 1), 1)(q, p)
            return rise * p / mass + push * (force - FRICTION * p) + FRICTION * TEMPERATURE * mass * bend

        return applied

    q, p = 0.4, -0.6
    first = generator(f)
    expansion = [float(g(q, p)) for g in (f, first, generator(first))]

    def error(h):
        def moved(row):
            given = iter(row)
            with monkeypatch.context() as patch:
                patch.setattr(Stream, "normal", lambda self, shape, dtype: (jnp.full(shape, next(given)), self))
                state = State(jnp.array([q]), jnp.array([p]))
                carry = method.init(mech, state, jnp.asarray(h))
                out = method.output(mech, method.step(mech, carry, jnp.asarray(h)))
            return f(out.q[0], out.p[0])

        mean = shares @ np.asarray(jax.jit(jax.vmap(moved))(numbers))
        return abs(mean - expansion[0] - h * expansion[1] - h**2 / 2 * expansion[2])

    errors = [error(h) for h in (0.02, 0.01)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(3, abs=0.1)
    assert method.traits.stochastic
    assert method.traits.weak_order == 2


@ORDERINGS
def test_without_friction_it_is_the_base(ordering):
    model = gm.models.pendulum()
    whole = {"dt": 0.1, "t_end": 10.0, "save_every": 10}
    base = gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), **whole)
    run = gm.simulate(model.system, model.q0, model.v0, method=langevin(None, ordering, friction=0.0), **whole)
    np.testing.assert_allclose(run.q, base.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.p, base.p, rtol=0, atol=1e-13)
    assert np.all(run.heat == 0)


# --- invariant distributions ----------------------------------------------------------------------------------------
def sampled(system, q0, method, dt, members=4000, steps=800, save_every=8, **more):
    q0s = np.broadcast_to(q0, (members, *np.shape(q0)))
    grid = {"dt": dt, "t_end": steps * dt, "save_every": save_every}
    return gm.ensemble(system, q0s.copy(), method=method, engine="native", seed=7, **grid, **more)


@pytest.mark.parametrize(
    ("ordering", "of_q", "of_p"), [("BAOAB", 1.0, 0.75), ("OBABO", 4 / 3, 1.0)], ids=["BAOAB", "OBABO"]
)
def test_a_harmonic_oscillator(ordering, of_q, of_p):
    """hω = 1. Verlet's step conserves p²/m + (1 − ¼h²ω²) m ω²q², and O the Gaussian of p: the variance of q is too
    large by 1/(1 − ¼h²ω²) in OBABO. In BAOAB that of q is exact, and that of p too small by 1 − ¼h²ω²."""
    mass, omega = 2.0, 3.0
    system = gm.System(lambda q: 0.5 * mass * omega**2 * jnp.sum(q**2), mass=mass)
    run = sampled(system, [0.1], langevin(None, ordering, friction=2.0), 1 / omega)
    assert run.engine == "native"
    q, p = after_equilibrium(run)
    count = q[:, ::3].size  # saved points 8 steps apart are nearly independent
    for found, expected in (
        (mass * omega**2 * np.mean(q**2) / TEMPERATURE, of_q),
        (np.mean(p**2) / mass / TEMPERATURE, of_p),
    ):
        assert found == pytest.approx(expected, abs=5 * expected * np.sqrt(2 / count))
    assert 5 * np.sqrt(2 / count) < 0.03


def test_an_anharmonic_well():
    """A tilted double well: averages and the distribution function by quadrature. The error of OBABO is of second order
    in h, and that of BAOAB much smaller."""
    potential = lambda q: q**4 - 2 * q**2 + 0.3 * q
    grid = np.linspace(-6, 6, 4001)
    density = np.exp(-potential(grid) / TEMPERATURE)
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    expected = integrate.simpson(grid**2 * density, x=grid) / cdf[-1]
    system, errors, run = gm.System(lambda q: potential(q[0])), {}, None
    for ordering, h in (("OBABO", 0.125), ("OBABO", 0.25), ("BAOAB", 0.25)):
        steps = int(600 / h)
        run = sampled(system, [0.0], langevin(None, ordering, friction=1.5), h, steps=steps, save_every=steps // 200)
        q, _ = after_equilibrium(run)
        assert np.std(np.mean(q**2, axis=1)) / np.sqrt(len(q)) < 0.0009
        errors[ordering, h] = np.mean(q**2) - expected
    assert 2.5 < errors["OBABO", 0.25] / errors["OBABO", 0.125] < 5.5
    assert abs(errors["BAOAB", 0.25]) < abs(errors["OBABO", 0.25]) / 4
    last = np.asarray(run.q)[:, -1, 0]
    assert stats.kstest(last, lambda x: np.interp(x, grid, cdf / cdf[-1])).statistic < 0.026  # 1.63/√4000


def test_on_a_sphere():
    """V = z on the unit sphere: the density of z is exp(−z/kT), since its area is uniform in z; and two degrees of
    freedom have ½kT each. A unit of time is that of a relaxation."""
    system = gm.System(lambda q: q[0, 2], constraint=gm.OnSphere())
    method = langevin(gm.Rattle(), friction=1.0)
    run = sampled(system, [[1.0, 0.0, 0.0]], method, 0.2, members=2000, steps=300, save_every=10)
    q, p = after_equilibrium(run)
    z = q[..., 0, 2]
    b = 1 / TEMPERATURE
    assert np.mean(z) == pytest.approx(1 / b - 1 / np.tanh(b), abs=0.01)
    cdf = lambda x: (np.exp(b) - np.exp(-b * x)) / (np.exp(b) - np.exp(-b))
    assert stats.kstest(z[:, -1], cdf).statistic < 0.04  # 1.4/√2000 = 0.031
    kinetic = 0.5 * np.sum(p**2, axis=(2, 3))
    assert np.mean(kinetic) == pytest.approx(TEMPERATURE, rel=0.015)
    assert np.max(np.abs(np.sum(q**2, axis=-1) - 1)) < 1e-13
    assert np.max(np.abs(np.sum(q * p, axis=-1))) < 1e-12
    balance = np.asarray(run.energy - run.heat)
    assert np.max(np.abs(balance - balance[:, :1])) < 0.4 < np.ptp(np.asarray(run.energy))


def test_fixman():
    """A trimer with rods of length 1 in the plane and a light particle in its middle. Stiff springs make all angles
    equally probable, rods the angle θ with the weight √(11² − 10²cos²θ)."""
    mass = np.array([1.0, 0.1, 1.0])[:, None]
    rods = gm.System(None, mass=mass, constraint=gm.Distances([(0, 1), (1, 2)], [1.0, 1.0]))
    start = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    angle = np.linspace(0, 2 * np.pi, 2001)[:-1]
    of_rods = np.average(np.cos(angle) ** 2, weights=np.sqrt(121 - 100 * np.cos(angle) ** 2))
    system, method = gm.fixman(rods, TEMPERATURE), langevin(gm.Rattle(), friction=1.0)
    run = sampled(system, start, method, 0.04, members=1000, steps=1600, save_every=16)
    q, _ = after_equilibrium(run)
    cosine = np.sum((q[:, :, 0] - q[:, :, 1]) * (q[:, :, 2] - q[:, :, 1]), axis=-1)
    spread = np.std(np.mean(cosine**2, axis=1)) / np.sqrt(len(q))
    assert spread < 0.004
    assert np.mean(cosine**2) == pytest.approx(0.5, abs=4 * spread + 1e-3)
    assert of_rods < 0.42


def test_fixman_refuses():
    free = gm.System(lambda q: jnp.sum(q**2))
    with pytest.raises(gm.InputError, match="no constraint"):
        gm.fixman(free, 1.0)
    circle = gm.System(lambda q, t: t * jnp.sum(q**2), constraint=lambda q: jnp.sum(q**2) - 1)
    with pytest.raises(gm.InputError, match="must not depend on t"):
        gm.fixman(circle, 1.0)


# --- random numbers -------------------------------------------------------------------------------------------------
def test_members_have_streams_of_their_own(tmp_path):
    """Whatever the number of members, and resumed; a member with the seed s is gm.simulate(seed=s)."""
    model = gm.models.pendulum()
    settings = {"method": langevin(), "dt": 0.05, "save_every": 10}
    run = lambda members, t_end=5.0, **more: gm.ensemble(
        model.system, np.full((members, 1), 0.3), t_end=t_end, **settings, **more
    )
    four = run(4, seed=5)
    assert np.ptp(four.q[:, -1]) > 0.1
    np.testing.assert_allclose(run(21, seed=5).q[:4], four.q, rtol=1e-11)
    np.testing.assert_allclose(run(4, seed=5, engine="xla").q, four.q, rtol=1e-11)
    seeds = np.array([3, 2**33 + 1, 1, 3])
    own = run(4, seed=seeds)
    alone = [gm.simulate(model.system, np.array([0.3]), t_end=5.0, **settings, seed=int(s)).q for s in seeds]
    np.testing.assert_allclose(own.q, alone, rtol=1e-11)
    run(4, t_end=2.5, seed=5, output=tmp_path / "half.h5")
    resumed = gm.resume(tmp_path / "half.h5", system=model.system, t_end=5.0)
    assert np.array_equal(resumed.q, four.q)
    assert np.array_equal(resumed.heat, four.heat)


def test_a_kernel_draws_the_same_numbers(monkeypatch):
    monkeypatch.setattr(pallas.engine, "INTERPRET", True)
    monkeypatch.setattr(pallas.engine, "LANES", 4)
    model = gm.models.pendulum()
    runs = [
        gm.ensemble(model.system, [[0.3], [0.1]], method=langevin(), dt=0.1, t_end=1.0, save_every=5, engine=engine)
        for engine in ("xla", "kernel")
    ]
    assert runs[1].engine == "kernel"
    np.testing.assert_allclose(runs[1].q, runs[0].q, rtol=1e-12)


# --- masses ---------------------------------------------------------------------------------------------------------
def test_roots_of_masses():
    random = np.random.default_rng(0)
    matrix = random.normal(size=(6, 6))
    matrix = matrix @ matrix.T + 6 * np.eye(6)
    blocks = np.stack([matrix[:3, :3], matrix[3:, 3:]])
    near = scipy.sparse.diags([[2.0] * 6, [0.5] * 5, [0.5] * 5], [0, 1, -1])
    of_first = scipy.sparse.csr_matrix([[2.0, 0.5], [0.5, 1.0]])
    for mass, expected in (
        (2.0, 2 * np.eye(6)),
        (np.array([[1.0], [3.0]]), np.diag([1.0] * 3 + [3.0] * 3)),
        (matrix, matrix),
        (blocks, scipy.linalg.block_diag(*blocks)),
        (near, near.toarray()),
        (of_first, np.kron(of_first.toarray(), np.eye(3))),
    ):
        stated = gm.System(lambda q: jnp.sum(q**2), mass=mass).mass
        root = mass_root(stated, (2, 3))
        columns = [np.ravel(root_product(stated, root, e.reshape(2, 3))) for e in jnp.eye(6)]
        np.testing.assert_allclose(np.stack(columns, 1) @ np.stack(columns, 1).T, expected, atol=1e-13)


def test_a_full_mass_has_its_temperature():
    mass = np.array([[2.0, 0.8], [0.8, 1.0]])
    system = gm.System(lambda q: jnp.sum(q**2), mass=mass)
    run = sampled(system, [0.1, 0.2], langevin(friction=3.0), 0.05, members=4000, steps=120, save_every=120)
    covariance = np.cov(np.asarray(run.p)[:, -1].T) / TEMPERATURE
    np.testing.assert_allclose(covariance, mass, atol=0.25)


# --- in runs --------------------------------------------------------------------------------------------------------
def test_a_sweep_over_temperatures_compiles_once():
    traces = []

    def potential(q):
        traces.append(1)
        return 0.5 * jnp.sum(q**2)

    system = gm.System(potential)
    run = lambda kt, friction: gm.simulate(
        system, [0.3], method=langevin(friction=friction, temperature=kt), dt=0.1, t_end=2.0
    )
    first = run(0.5, 1.0)
    once = len(traces)
    second = run(0.7, 1.0)
    run(0.7, 2.0)
    assert len(traces) == once
    assert not np.allclose(first.q[-1], second.q[-1], rtol=1e-3)


def test_derivatives_along_a_path():
    """With the random numbers held."""

    def end(x):
        system = gm.System(lambda q: anharmonic(q))
        run = gm.simulate(system, x[:1], x[1:], method=langevin(), dt=0.1, t_end=2.0, save_every=10, seed=4)
        return run.q[-1, 0]

    x = jnp.array([0.4, 0.2])
    found = jax.grad(end)(x)
    differences = [(end(x + d) - end(x - d)) / 2e-5 for d in 1e-5 * jnp.eye(2)]
    np.testing.assert_allclose(found, differences, rtol=1e-7)


@pytest.mark.parametrize(
    ("base", "ordering"), [(gm.Verlet(), "BAOAB"), (gm.Verlet(), "OBABO"), (gm.Rattle(), "BAOAB")], ids=str
)
def test_forces_do_work_beside_the_heat(base, ordering):
    """A force of t and a potential of t: energy − work − heat changes by the error of the base, of second order."""
    drive = lambda q, t: 0.5 * jnp.cos(2 * t) + 0 * q
    circle = gm.OnSphere() if isinstance(base, gm.Rattle) else None
    system = gm.System(lambda q, t: (1 + 0.2 * jnp.sin(t)) * q[0, 1], force=drive, constraint=circle)
    start = [[1.0, 0.0, 0.0]] if circle is not None else [[1.0, 0.0]]
    balances = []
    for dt in (0.05, 0.025):
        run = gm.simulate(system, start, method=langevin(base, ordering), dt=dt, t_end=10.0, save_every=int(1 / dt))
        balance = np.asarray(run.energy - run.work - run.heat)
        balances.append(np.ptp(balance))
        assert np.ptp(run.work) > 0.3
        assert np.ptp(run.heat) > 0.3
    assert balances[0] < 0.02
    assert balances[1] < balances[0] / 2


def test_a_long_step_is_no_reason_for_a_warning(recwarn):
    """The energy of a run at constant temperature changes: run.heat is the reason."""
    run = gm.simulate(gm.models.pendulum(), method=langevin(temperature=5.0), dt=0.2, t_end=100.0)
    assert not [w for w in recwarn if issubclass(w.category, gm.InstabilityWarning)]
    assert np.ptp(run.energy) > 5
    assert np.ptp(run.energy - run.heat) < 0.3 * np.ptp(run.energy)
    assert "energy − heat" in repr(run)


# --- what is refused ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"friction": -1.0}, "friction"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"ordering": "ABOBA"}, "ordering"),
        ({"base": gm.ImplicitMidpoint()}, 'ordering="OBABO"'),
        ({"base": gm.Verlet(form="drift")}, 'ordering="OBABO"'),
        ({"base": gm.Composition(gm.Verlet(), order=4)}, 'ordering="OBABO"'),
        ({"base": gm.RungeKutta4(), "ordering": "OBABO"}, "symmetric one-step"),
        ({"base": gm.Shake(), "ordering": "OBABO"}, "symmetric one-step"),
        ({"base": gm.SymmetricMultistep(4), "ordering": "OBABO"}, "symmetric one-step"),
        ({"base": langevin(), "ordering": "OBABO"}, "symmetric one-step"),
        ({"base": "Verlet"}, "must be a method"),
    ],
    ids=lambda x: str(x)[:50],
)
def test_refused_settings(settings, words):
    with pytest.raises(gm.InputError, match=words):
        GeometricLangevin(**{"base": gm.Verlet(), "friction": 1.0, "temperature": 1.0} | settings)


def test_refused_systems():
    well = lambda q: jnp.sum(q**2)
    check = lambda method, **system: method.check(gm.System(well, **system))
    circle = lambda q: jnp.sum(q**2) - 1
    with pytest.raises(gm.InputError, match="friction of its own"):
        check(langevin(), damping=0.1)
    with pytest.raises(gm.InputError, match=r"use .*Rattle"):
        check(langevin(), constraint=circle)
    with pytest.raises(gm.InputError, match=r"base=Rattle\(\)"):
        check(langevin(gm.Variational(), "OBABO"), constraint=circle)
    with pytest.raises(gm.InputError, match="depend on t"):
        check(langevin(gm.Rattle()), constraint=lambda q, t: jnp.sum(q**2) - 1 - t)
    with pytest.raises(gm.InputError, match="constant mass"):
        langevin(gm.Variational(), "OBABO").check(gm.LagrangianSystem(lambda q, v: jnp.sum(v**2)))
    with pytest.raises(gm.InputError, match="lumped mass"):
        check(langevin(), mass=scipy.sparse.diags([[2.0] * 500, [0.5] * 499, [0.5] * 499], [0, 1, -1]))
    for refusing in (lambda m: gm.certify(gm.models.pendulum(), m), gm.stability_diagram):
        with pytest.raises(gm.InputError, match="base"):
            refusing(langevin())


def test_a_composition_on_a_manifold_is_projected():
    """Composition(Rattle()) passes on what it is asked for; OBABO with it keeps the manifold."""
    system = gm.System(lambda q: q[0, 2], constraint=gm.OnSphere())
    method = langevin(gm.Composition(gm.Rattle(), order=4), "OBABO")
    run = gm.simulate(system, [[1.0, 0.0, 0.0]], method=method, dt=0.05, t_end=2.0, save_every=10)
    assert np.max(np.abs(run.constraint_residual)) < 1e-13
    assert np.max(np.abs(run.velocity_residual)) < 1e-12
    assert np.ptp(run.energy - run.heat) < 1e-3 < np.ptp(run.energy)
