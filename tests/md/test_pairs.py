"""Sums over all pairs: derivatives of all orders against automatic differentiation of the dense sum, by machine code
and by array operations; who takes part; runs with them."""

from __future__ import annotations

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.md import pair_gpu, pair_sums
from geomint.md.pair_tables import tables

RANDOM = np.random.default_rng(3)
N = 45  # particles: more than are written out, not a multiple of a vector
LATTICE = np.stack(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)[:N]
Q = LATTICE + RANDOM.uniform(-0.2, 0.2, (N, 3))
CHARGE, SIZE = RANDOM.normal(size=N), RANDOM.uniform(0.5, 1.0, N)
BOX = gm.md.Box([4.0, 4.2, 4.4])


def charges(r, a, b):
    return a["charge"] * b["charge"] / r


def mixed(s, a, b):
    """Lennard-Jones of arithmetic means, with a transcendental function and a quotient that is no distance."""
    x = (0.5 * (a["size"] + b["size"])) ** 2 / s
    return x**6 - x**3 + jnp.exp(-s) / (1 + a["charge"] * b["charge"] * s * s / (1 + s))


SITES = {"charge": CHARGE, "size": SIZE}
CASES = {
    "charges in molecules": (charges, {"sites": {"charge": CHARGE}, "molecules": 3}),
    "a subset": (mixed, {"sites": SITES, "on": [7, *range(1, N, 2)][1:], "squared": True, "exclude": [(3, 1), (5, 9)]}),
    "in a box": (lambda r: jnp.cos(r) / r, {"cutoff": 1.9, "box": BOX, "exclude": [(0, 44), (44, 1), (8, 30)]}),
}
# Of the kernel for GPUs: lanes, particles of a lane, programs, numbers in memory. By turns one launch with one group of
# particles for each program, several launches, and several groups.
KERNELS = [(4, 2, 1000, 2**20), (4, 2, 1000, 200), (8, 1, 6, 2**20)]


def dense(phi, q, settings):
    """The sum over index pairs, written with jax.numpy."""
    n, box, sites = len(q), settings.get("box"), settings.get("sites", {})
    on, size = set(settings.get("on", range(n))), settings.get("molecules", 1)
    out = {tuple(sorted(x)) for x in settings.get("exclude", ())}
    pairs = [
        (i, j)
        for i in range(n)
        for j in range(i + 1, n)
        if {i, j} <= on and (i, j) not in out and (size == 1 or i // size != j // size)
    ]
    i, j = np.array(pairs).T
    d = q[i] - q[j]
    s = jnp.sum((d if box is None else box.nearest(d)) ** 2, axis=1)
    given = [{name: jnp.asarray(x)[k] for name, x in sites.items()} for k in (i, j)] if sites else []
    energy = phi(s if settings.get("squared") else jnp.sqrt(s), *given)
    if "cutoff" in settings:
        on_, end = (0.9 * settings["cutoff"]) ** 2, settings["cutoff"] ** 2
        x = jnp.clip((s - on_) / (end - on_), 0, 1)
        energy = jnp.where(s < end, energy * (1 - 10 * x**3 + 15 * x**4 - 6 * x**5), 0)
    return jnp.sum(energy)


def derivatives(energy, q, u, w, third):
    """V and ∇V; the products V″u, and V″w by the transpose; the derivative of V″(q) u where both q and u change."""
    gradient = jax.grad(energy)
    product = lambda x, u: jax.jvp(gradient, (x,), (u,))[1]
    out = [*jax.value_and_grad(energy)(q), product(q, u), jax.grad(lambda x: jnp.vdot(gradient(x), w))(q)]
    return [*out, jax.jvp(product, (q, u), (w, w - u))[1]] if third else out


@pytest.mark.parametrize("case", CASES)
def test_derivatives_of_all_orders(case):
    """Against automatic differentiation of the dense sum."""
    phi, settings = CASES[case]
    potential, third = gm.md.PairPotential(phi, **settings), case == "charges in molecules"
    q, u, w = jnp.asarray(Q), *map(jnp.asarray, RANDOM.normal(size=(2, N, 3)))
    evaluated = lambda energy: jax.jit(lambda q: derivatives(energy, q, u, w, third))(q)
    expected, found = evaluated(lambda x: dense(phi, x, settings)), evaluated(potential)
    rows = jax.jit(lambda q: pair_sums.by_rows(potential.term, 2, q, u, *settings_of(settings)))(q)
    for order, (x, y) in enumerate(zip((*found, rows), (*expected, expected[2]), strict=True)):
        assert np.abs(x - y).max() <= 2e-14 * np.abs(y).max(), order


def settings_of(settings):
    return [jnp.asarray(settings["sites"][name]) for name in sorted(settings.get("sites", ()))]


@pytest.mark.parametrize("case", CASES)
def test_kernels(case, monkeypatch):
    """The kernel for GPUs, interpreted: several blocks, even and odd numbers of them, and several launches."""
    monkeypatch.setattr(pair_gpu, "INTERPRET", True)
    lanes, rows, programs, numbers = KERNELS[list(CASES).index(case) % len(KERNELS)]
    monkeypatch.setattr(pair_gpu, "LANES", lanes)
    monkeypatch.setattr(pair_gpu, "ROWS", {0: rows})
    monkeypatch.setattr(pair_gpu, "PROGRAMS", programs)
    monkeypatch.setattr(pair_gpu, "NUMBERS", numbers)
    phi, settings = CASES[case]
    term, q, u = gm.md.PairPotential(phi, **settings).term, jnp.asarray(Q), jnp.asarray(RANDOM.normal(size=(N, 3)))
    order = list(CASES).index(case)
    operands = [q, *[u] * (order == 2), *settings_of(settings)]
    found = jax.jit(functools.partial(pair_gpu.by_kernel, term, order))(*operands)
    expected = pair_sums.pair_sum(term, order, *operands)
    assert np.abs(found - expected).max() <= 1e-14 * np.abs(expected).max()


def test_kernels_are_accepted_by_triton():
    """Up to the code that Triton compiles; benchmarks/pairs_gpu.py checks the numbers of a GPU."""
    if jax.__version_info__ >= (0, 11):
        pytest.skip("this version of JAX lowers kernels on a machine with a GPU only")
    potential = gm.md.PairPotential(charges, sites={"charge": CHARGE}, molecules=3)
    made = jax.jit(lambda q: jax.grad(lambda x: potential(x))(q)).trace(jnp.asarray(Q))
    assert "geomint_pairs" in made.lower(lowering_platforms=("cuda",)).as_text()


def test_gradients_by_the_parameters_of_sites():
    potential = lambda e: gm.md.PairPotential(charges, sites={"charge": e}, molecules=3)(jnp.asarray(Q))
    settings = lambda e: {"sites": {"charge": e}, "molecules": 3}
    expected = jax.jit(jax.grad(lambda e: dense(charges, jnp.asarray(Q), settings(e))))(jnp.asarray(CHARGE))
    assert np.abs(jax.jit(jax.grad(potential))(jnp.asarray(CHARGE)) - expected).max() < 1e-13


@pytest.mark.parametrize(("rows", "lanes"), [(2, 2), (2, 4), (2, 8), (4, 8)])
def test_every_pair_is_taken_once(rows, lanes):
    """The loop of the machine code, in Python, for all sizes of vectors."""
    for n, settings in ((1, {}), (5, {}), (16, {"molecules": 2}), (27, {"molecules": 3}), (30, {"exclude": [(0, 29)]})):
        term = gm.md.PairPotential(lambda r: r, **settings).term
        made, found = tables(term, n, 1, rows, lanes), []
        for block in range(made.settings[3]):
            vector = block * rows // lanes
            for e in range(made.starts[block], made.starts[block + 1]):
                whole = [
                    (i, j)
                    for v in range(vector, made.at[e])
                    for i in range(rows)
                    for j in range(lanes * v, lanes * (v + 1))
                ]
                found += [(block * rows + i, j) for i, j in whole]
                vector = made.at[e] + 1
                bits = [(i, k) for i in range(rows) for k in range(lanes) if made.masks[e, i] >> k & 1]
                found += [(block * rows + i, lanes * made.at[e] + k) for i, k in bits]
            assert vector == made.settings[2]
        assert sorted(found) == list(zip(*map(list, term.pairs(n)), strict=True))


def test_sums_do_not_depend_on_their_company():
    """The same bits for a member alone and in a batch, and every time."""
    potential = gm.md.PairPotential(charges, sites={"charge": CHARGE}, molecules=3)
    members = jnp.asarray(Q + 0.01 * RANDOM.normal(size=(3, N, 3)))
    force = jax.jit(jax.grad(potential))
    together = jax.jit(jax.vmap(jax.grad(potential)))(members)
    for one, among in zip(members, together, strict=True):
        assert np.array_equal(force(one), among)
        assert np.array_equal(force(one), force(one))


def test_forces_to_rounding():
    """Reciprocal roots from an approximation: within a few units in the last place, over many sizes of distances, and
    right where they are 0 or infinite."""
    scale = 10.0 ** RANDOM.uniform(-60, 60, N)
    q = np.zeros((N, 3))
    q[:, 0] = np.cumsum(scale)
    one = lambda x: gm.md.PairPotential(lambda r: 1 / r, on=[0, 1])(x)
    both = jax.jit(jax.value_and_grad(one))
    for far in scale:
        x = np.array(q)
        x[:2] = [[0.0, 0, 0], [far, 0, 0]]
        energy, gradient = both(x)
        assert abs(energy * far - 1) < 1e-15
        assert abs(gradient[0, 0] * far * far - 1) < 2e-15
    x[1] = 0.0
    assert both(x)[0] == np.inf
    softened = jax.jit(gm.md.PairPotential(lambda r: 1 / (1 + jnp.exp(r)) + jnp.sqrt(r), on=[0, 1]))
    assert softened(x) == 0.5
    x[1, 0] = 1e4
    assert softened(x) == 100.0


def test_runs_of_every_kind(tmp_path):
    """Verlet, an ensemble, a gradient and a resumed run; against the dense sum."""
    settings = {"sites": {"charge": np.abs(CHARGE)}}
    potential = gm.md.PairPotential(charges, **settings)
    system, h = gm.System(potential), 0.01
    v = 0.1 * RANDOM.normal(size=Q.shape)
    run = gm.simulate(system, Q, v, method=gm.Verlet(), dt=h, t_end=20 * h, save_every=5)
    plain = gm.simulate(
        gm.System(lambda q: dense(charges, q, settings)), Q, v, method=gm.Verlet(), dt=h, t_end=20 * h, save_every=5
    )
    assert np.abs(run.q - plain.q).max() < 1e-12
    assert np.abs(run.energy - plain.energy).max() < 1e-11
    gm.simulate(system, Q, v, method=gm.Verlet(), dt=h, t_end=10 * h, save_every=5, output=tmp_path / "a.h5")
    again = gm.System(pickle.loads(pickle.dumps(potential)))
    assert np.array_equal(gm.resume(tmp_path / "a.h5", system=again, t_end=20 * h).q, run.q)
    members = gm.ensemble(
        system, np.stack([Q, Q + 0.01]), np.stack([v, v]), method=gm.Verlet(), dt=h, t_end=20 * h, save_every=5
    )
    assert np.abs(members.q[0] - run.q).max() < 1e-13
    end = lambda x: gm.simulate(system, x, v, method=gm.Verlet(), dt=h, t_end=3 * h, save_every=3).q[-1, 7, 1]
    u, small = RANDOM.normal(size=Q.shape), 1e-5
    differences = (end(Q + small * u) - end(Q - small * u)) / (2 * small)
    assert abs(np.vdot(jax.grad(end)(jnp.asarray(Q)), u) - differences) < 1e-8


def test_machine_code_of_few_particles():
    """The engines of scalar code see the sum written out."""
    q = Q[:9]
    system = gm.System(gm.md.PairPotential(charges, sites={"charge": CHARGE[:9]}, molecules=3))
    run = lambda engine: gm.simulate(system, q, method=gm.Verlet(), dt=0.01, t_end=0.1, engine=engine)
    native, xla = run("native"), run("xla")
    assert native.engine == "native"
    assert np.abs(native.q - xla.q).max() < 1e-13
    assert np.abs(native.energy - xla.energy).max() < 1e-13


def test_lists_with_parameters_and_exclusions():
    """By a neighbour list as by all pairs, also for a sum of potentials with another cut-off."""
    one = gm.md.PairPotential(charges, cutoff=1.9, box=BOX, sites={"charge": CHARGE}, molecules=3)
    other = gm.md.PairPotential(lambda s: 1 / s**3, squared=True, cutoff=1.4, box=BOX, on=range(0, N, 3))
    both = one + other
    lists = both.neighbours(0.1).build(jnp.asarray(Q))
    evaluated = jax.jit(jax.value_and_grad(lambda q, made: both(q, made)))
    for x, y in zip(evaluated(jnp.asarray(Q), lists), evaluated(jnp.asarray(Q), None), strict=True):
        assert np.abs(x - y).max() <= 1e-13 * np.abs(y).max()


def test_overlapping_particles_are_named():
    q = np.array(Q)
    q[17] = q[30]
    for potential in (
        gm.md.PairPotential(lambda r: 1 / r),
        gm.md.PairPotential(lambda r: 0 * r) + gm.md.PairPotential(lambda r: 1 / r),
    ):
        with pytest.raises(gm.InputError, match=r"particles 17 and 30 are at the distance 0; move them apart"):
            gm.simulate(gm.System(potential), q, method=gm.Verlet(), dt=0.1, t_end=0.1)


def test_particles_that_are_too_close_are_named_where_a_run_fails():
    """The energy at the start is finite; it is nearly that of the close pairs alone."""
    lennard_jones = lambda s: 4 * (1 / s**6 - 1 / s**3)
    q = np.array(Q)
    q[17] = q[30] + np.array([0.001, 0, 0])
    pair = gm.md.PairPotential(lennard_jones, squared=True, cutoff=1.8, box=BOX)
    with pytest.raises(
        gm.RunStopped, match=r"Before it, particles 17 and 30 are at the distance 0.001; move them apart"
    ):
        gm.simulate(gm.System(pair, auxiliary=pair.neighbours(0.2)), q, method=gm.Verlet(), dt=0.01, t_end=0.1)
    q[17] = q[30] + np.array([0.05, 0, 0])
    with pytest.warns(gm.InstabilityWarning, match=r"At the start, particles 17 and 30 are at the distance 0.05"):
        gm.simulate(
            gm.System(gm.md.PairPotential(lennard_jones, squared=True)), q, method=gm.Verlet(), dt=0.01, t_end=0.1
        )
    for potential in (
        gm.md.PairPotential(lennard_jones, squared=True),
        gm.md.PairPotential(charges, sites={"charge": CHARGE}),
    ):
        assert potential.explain(Q) == ""
    bonded = gm.md.PairPotential(lennard_jones, squared=True, exclude=[(30, 17)])
    assert bonded.explain(q) == ""


def test_what_is_refused():
    phi, q = charges, jnp.asarray(Q)
    make = gm.md.PairPotential
    wrong = {
        "needs a cutoff of at most half": lambda: make(phi, box=BOX),
        "give cutoff too": lambda: make(phi, onset=1.0),
        "without a cut-off has no neighbour lists": lambda: make(phi).neighbours(0.1),
        "must be numbers by name": lambda: make(phi, sites=[1.0, 2.0]),
        r"must be one number for each particle, an array \(n,\), not \(2, 2\)": lambda: make(
            phi, sites={"e": np.eye(2)}
        ),
        r"has shape \(2,\), and q has 45": lambda: make(phi, sites={"e": [1.0, 2.0]})(q),
        "each once": lambda: make(phi, on=[1, 1]),
        r"on=...\) must be the numbers of particles, such as": lambda: make(phi, on=[0.5]),
        "pairs of different particles": lambda: make(phi, exclude=[(1, 1)]),
        r"exclude=...\) has particle 45, and q has 45": lambda: make(phi, exclude=[(1, 45)])(q),
        "not a multiple of that": lambda: make(phi, molecules=2)(q),
        "molecules must be a whole number": lambda: make(phi, molecules=0.5),
        r"function of \(r, a, b\): sites are given": lambda: make(lambda r: r, sites={"e": CHARGE})(q),
        r"function of \(r\): no sites are given": lambda: make(phi)(q),
        "asks for the parameter 'charge' of a particle; sites has 'e'": lambda: make(phi, sites={"e": CHARGE})(q),
        r"potential=lambda q: pair\(q\) \+ external\(q\)": lambda: make(phi) + jnp.sum,
    }
    for message, call in wrong.items():
        with pytest.raises(gm.InputError, match=message):
            call()


def test_gravity_of_many_bodies():
    """Against numpy, particle by particle."""
    model = gm.models.n_body(60, softening=0.2)
    q, m = np.asarray(model.q0), np.asarray(model.system.mass)
    force = gm.Mechanics(model.system, q.shape).force(jnp.asarray(q))
    for i in range(0, 60, 7):
        d = q - q[i]
        assert (
            np.abs(force[i] - np.sum(m[i] * m * d / (np.sum(d**2, axis=1) + 0.04)[:, None] ** 1.5, axis=0)).max()
            < 1e-12
        )
