"""The elastic energy and its derivatives, by machine code and by array operations; patch test, rigid motions, free
vibrations; held nodes, masses, and what a run says of inverted elements."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import fem
from geomint.fem import element_gpu, element_groups, element_sums, lines
from geomint.fem.element_terms import ElementTerm
from geomint.numerics.linalg.colouring import column_colours
from geomint.numerics.taylor import derivatives

RANDOM = np.random.default_rng(5)
SHEARED = np.array([[1.0, 0.2, 0], [0, 1.1, 0.1], [0, 0, 0.9]])
MESHES = {3: fem.ball(layers=2).mapped(lambda x: x @ SHEARED), 2: fem.ball(layers=3, dim=2)}
LAME, SHEAR = 1.3, 0.7


def dense_energy(material, mesh, x):
    """Σ V W(F) by matrices."""
    F = jnp.einsum("eai,eaj->eij", x[mesh.cells], mesh.shape_gradients)
    one, right = jnp.eye(mesh.dim), jnp.einsum("eki,ekj->eij", F, F)
    trace = lambda A: jnp.trace(A, axis1=1, axis2=2)
    if isinstance(material, fem.NeoHookean):
        J = jnp.linalg.det(F)
        W = material.lame / 2 * jnp.log(J) ** 2 - material.shear * jnp.log(J)
        W = W + material.shear / 2 * (trace(right) - mesh.dim)
    else:
        linear = isinstance(material, fem.LinearElastic)
        E = 0.5 * (F + jnp.swapaxes(F, 1, 2)) - one if linear else 0.5 * (right - one)
        W = material.lame / 2 * trace(E) ** 2 + material.shear * trace(E @ E)
    return jnp.sum(mesh.volumes * W)


@functools.cache
def cases():
    each = RANDOM.uniform(0.5, 1.5, len(MESHES[3].cells))
    return {
        "neo-Hookean": (fem.NeoHookean(LAME, SHEAR), 3),
        "neo-Hookean, a modulus for each element": (fem.NeoHookean(LAME, each), 3),
        "neo-Hookean in the plane": (fem.NeoHookean(LAME, SHEAR), 2),
        "St. Venant–Kirchhoff": (fem.StVenantKirchhoff(LAME, SHEAR), 3),
        "linear": (fem.LinearElastic(LAME, SHEAR), 2),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_derivatives_of_all_orders(name):
    """V, ∇V, V''u, V'''uw against automatic differentiation of the dense sum, by machine code and by arrays."""
    material, dim = cases()[name]
    mesh = MESHES[dim]
    potential = fem.solid(mesh, material).potential
    q = jnp.asarray(mesh.nodes + 0.03 * RANDOM.normal(size=mesh.nodes.shape))
    u, w = RANDOM.normal(size=(2, *q.shape))

    def along(V):
        gradient = jax.grad(V)
        second = lambda x: jax.jvp(gradient, (x,), (u,))[1]
        return (
            V(q),
            gradient(q),
            second(q),
            jax.jvp(second, (q,), (w,))[1],
            jax.grad(lambda x: jnp.vdot(second(x), w))(q),
        )

    expected = jax.jit(lambda: along(functools.partial(dense_energy, material, mesh)))()
    term, numbers = ElementTerm.of(material, dim)
    by_arrays = lambda x: element_sums.by_arrays(term, 0, x, *numbers, *potential.geometry)
    found = {V: jax.jit(lambda V=V: along(V))() for V in (potential, by_arrays)}
    for values in found.values():
        for x, y in zip(values, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12 * np.max(np.abs(y)))
    batched = jax.jit(jax.vmap(jax.grad(potential)))(jnp.stack([q, q + 0.01 * u]))
    np.testing.assert_array_equal(batched[0], found[potential][1])
    line = jax.jit(lambda: potential.on_line(jnp.asarray(q), jnp.asarray(w)).derivatives(jnp.asarray(0.01), 4))()
    exact = jax.jit(lambda: derivatives(lambda t: dense_energy(material, mesh, q + t * w), jnp.asarray(0.01), 4))()
    np.testing.assert_allclose(line, exact, rtol=1e-9)


def test_derivatives_by_moduli_and_in_an_ensemble():
    """Gradients by the numbers of the material, of the energy and of the forces; each member its own modulus."""
    mesh, q = MESHES[3], MESHES[3].nodes + 0.03 * RANDOM.normal(size=MESHES[3].nodes.shape)
    potential = fem.solid(mesh, fem.NeoHookean(LAME, SHEAR)).potential
    with_shear = lambda mu: fem.Elastic(mesh, None, fem.NeoHookean(LAME, mu), potential.geometry, None, None)
    u = RANDOM.normal(size=q.shape)
    own = lambda mu: (with_shear(mu)(q), jnp.vdot(jax.grad(with_shear(mu))(q), u))
    dense = lambda mu: functools.partial(dense_energy, fem.NeoHookean(LAME, mu), mesh)
    right = lambda mu: (dense(mu)(q), jnp.vdot(jax.grad(dense(mu))(q), u))
    for x, y in zip(jax.jit(jax.jacfwd(own))(SHEAR), jax.jit(jax.jacfwd(right))(SHEAR), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)
    moduli = jnp.array([0.5, 0.9])
    members = jax.jit(jax.vmap(lambda mu: jax.grad(with_shear(mu))(q)))(moduli)
    np.testing.assert_allclose(members[1], jax.grad(dense(0.9))(q), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("sizes", "bend", "orders"), [((), 0.0, (1, 2)), ((4,), 0.0, (2,)), ((4,), 0.05, (1,))])
def test_the_kernel_for_gpus(monkeypatch, sizes, bend, orders):
    """Interpreted, with members that have their own modulus, by patches, more than programs, and by groups
    of a few shapes or each of its own."""
    monkeypatch.setattr(element_gpu, "INTERPRET", True)
    monkeypatch.setattr(element_gpu, "PROGRAMS", 3)
    monkeypatch.setattr(element_groups, "SIZES", sizes)
    mesh = fem.box([1.0, 1.2, 0.9], [2, 2, 3]).mapped(lambda x: x @ SHEARED + bend * x**2) if sizes else MESHES[3]
    each = RANDOM.uniform(0.5, 1.5, len(mesh.cells))
    q = jnp.asarray(mesh.nodes + 0.03 * RANDOM.normal(size=(2, *mesh.nodes.shape)))
    u, potential = jnp.asarray(RANDOM.normal(size=q.shape)), fem.solid(mesh, fem.NeoHookean(LAME, each)).potential
    groups = potential.geometry.patches
    assert isinstance(groups, element_groups.Groups if sizes else element_gpu.Patches)
    term, (_, shear) = ElementTerm.of(potential.material, 3)
    if sizes:
        assert len(groups.pattern) == 4
        assert groups.nodes.shape == (6, 72)
        assert groups.shapes.shape[1] == (72 if bend else 6)
        term = dataclasses.replace(term, pattern=groups.pattern)
    numbers, arrays = [jnp.array([[LAME], [2.0]]), jnp.stack([shear, 2 * shear])], jax.tree.leaves(potential.geometry)
    for order in orders:
        vectors = [q, u][:order]
        by_arrays = jax.jit(functools.partial(element_sums.by_arrays, term, order))
        expected = by_arrays(*vectors, *numbers, *arrays)
        found = element_sums._by_kernel(term, order, *vectors, *numbers, *arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_lines_by_arrays(monkeypatch):
    """What serves other devices."""
    mesh = MESHES[3]
    potential, u = fem.solid(mesh, fem.NeoHookean(LAME, SHEAR)).potential, RANDOM.normal(size=mesh.nodes.shape)
    one = lambda: potential.on_line(jnp.asarray(mesh.nodes), jnp.asarray(u)).derivatives(jnp.asarray(0.01), 4)
    expected = jax.jit(one)()
    monkeypatch.setattr(lines, "_by_machine_code", lambda *arrays: False)
    np.testing.assert_allclose(jax.jit(lambda: one())(), expected, rtol=1e-10)


def test_rigid_motions_and_patch():
    """V is invariant under rotations and translations; a homogeneous deformation has no force on inner nodes, and
    its energy is V W(F)."""
    mesh = MESHES[3]
    rotation, _ = np.linalg.qr(RANDOM.normal(size=(3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    F = np.eye(3) + 0.2 * RANDOM.normal(size=(3, 3))
    inner = np.setdiff1d(np.arange(len(mesh.nodes)), mesh.boundary_nodes)
    assert len(inner)
    for material in (fem.NeoHookean(LAME, SHEAR), fem.StVenantKirchhoff(LAME, SHEAR)):
        V = fem.solid(mesh, material).potential
        x = mesh.nodes @ F.T
        np.testing.assert_allclose(V(x), V(x @ rotation.T + [1.0, 2.0, 3.0]), rtol=1e-12)
        np.testing.assert_allclose(V(x), mesh.volumes.sum() * material.energy(F.tolist()), rtol=1e-12)
        forces = np.asarray(jax.grad(V)(x))
        assert np.max(np.abs(forces)) > 1e-2
        np.testing.assert_allclose(forces[inner], 0, atol=1e-14)
        assert abs(float(V(mesh.nodes))) < 1e-15


def test_free_vibrations_are_those_of_scikit_fem():
    """The lowest frequencies of a cube with the consistent mass."""
    skfem = pytest.importorskip("skfem")
    from scipy.linalg import eigh
    from skfem.helpers import dot
    from skfem.models.elasticity import linear_elasticity

    mesh = fem.cube(2)
    system = fem.solid(mesh, fem.NeoHookean(0.01, 0.0066), 0.1, mass="consistent")
    q = jnp.asarray(mesh.nodes)
    hessian = jax.jit(jax.hessian(system.potential))(q).reshape(q.size, q.size)
    mass = np.kron(system.mass.to_scipy().toarray(), np.eye(3))
    found = eigh(hessian, mass, eigvals_only=True)
    basis = skfem.Basis(skfem.MeshTet(mesh.nodes.T, mesh.cells.T), skfem.ElementVector(skfem.ElementTetP1()))
    stiff = skfem.asm(linear_elasticity(0.01, 0.0066), basis).toarray()
    inertia = 0.1 * skfem.asm(skfem.BilinearForm(lambda u, v, w: dot(u, v)), basis).toarray()
    expected = eigh(stiff, inertia, eigvals_only=True)
    np.testing.assert_allclose(found[:6], 0, atol=1e-10)
    np.testing.assert_allclose(np.sqrt(found[6:36]), np.sqrt(expected[6:36]), rtol=1e-10)


def test_free_vibrations_of_a_larger_cube():
    """1,536 tetrahedra, by Lanczos: the Hessian is found by products with vectors, scikit-fem assembles its own."""
    skfem = pytest.importorskip("skfem")
    from scipy import sparse
    from scipy.sparse.linalg import eigsh
    from skfem.helpers import dot
    from skfem.models.elasticity import linear_elasticity

    mesh = fem.cube(4)
    n = mesh.nodes.size
    system = fem.solid(mesh, fem.NeoHookean(0.01, 0.0066), 0.1, mass="consistent")
    joined = sparse.kron(system.mass.to_scipy() != 0, np.ones((3, 3))).tocsr().astype(bool)
    colours = column_colours(joined)
    seeds = np.eye(colours.max() + 1)[:, colours].reshape(-1, *mesh.nodes.shape)
    gradient, at = jax.grad(system.potential), jnp.asarray(mesh.nodes)
    columns = jax.jit(lambda u: jax.lax.map(lambda u: jax.jvp(gradient, (at,), (u,))[1], u))(seeds)
    i, j = joined.nonzero()
    hessian = sparse.csc_matrix((np.asarray(columns).reshape(-1, n)[colours[j], i], (i, j)))
    mass = sparse.kron(system.mass.to_scipy(), np.eye(3), format="csc")
    basis = skfem.Basis(skfem.MeshTet(mesh.nodes.T, mesh.cells.T), skfem.ElementVector(skfem.ElementTetP1()))
    stiff = skfem.asm(linear_elasticity(0.01, 0.0066), basis)
    inertia = 0.1 * skfem.asm(skfem.BilinearForm(lambda u, v, w: dot(u, v)), basis)
    found, expected = (
        np.sort(eigsh(k, 26, m, sigma=-0.05, return_eigenvectors=False))
        for k, m in ((hessian, mass), (stiff.tocsc(), inertia.tocsc()))
    )
    np.testing.assert_allclose(found[:6], 0, atol=1e-10)
    assert found[6] > 0.1
    np.testing.assert_allclose(np.sqrt(found[6:]), np.sqrt(expected[6:]), rtol=1e-8)


def test_held_nodes_and_gravity():
    """A bar hung up at one end stretches by its weight: u(L) = ρ g L²/2E for ν = 0; its prescribed end drives it."""
    mesh = fem.box((0.3, 0.3, 3.0), (1, 1, 10))
    top = mesh.where(lambda x: x[:, 2] > 2.999)
    system = fem.solid(mesh, fem.LinearElastic(0.0, 0.5), 2.0, fixed=top, gravity=(0, 0, -1e-2))
    V, free = system.potential, np.setdiff1d(np.arange(len(mesh.nodes)), top)
    q = jnp.asarray(mesh.nodes[free])
    np.testing.assert_array_equal(V.positions(q), mesh.nodes)
    hessian = jax.jit(jax.hessian(V))(q).reshape(q.size, q.size)
    u = np.linalg.solve(hessian, -jax.grad(V)(q).ravel()).reshape(q.shape)
    at = np.argmin(np.linalg.norm(mesh.nodes[free] - [0.15, 0.15, 0.0], axis=1))
    np.testing.assert_allclose(u[at, 2], -2.0 * 1e-2 * 9 / 2, rtol=0.02)
    assert not np.any(system.symmetries)


def test_a_moved_end_and_the_consistent_mass():
    """In the frame of an end that moves as s(t), the body feels −ρ s̈: both statements have the same trajectory."""
    mesh = fem.box((1.0, 1.0), 2)
    side = mesh.where(lambda x: x[:, 0] < 0.001)
    path = lambda t: jnp.asarray(mesh.nodes[side]) + jnp.array([0.1, 0.05]) * jnp.sin(2 * t)
    settings = {"mass": "consistent"}
    moved = fem.solid(mesh, fem.NeoHookean(1.0, 1.0), 1.0, prescribed=(side, path), **settings)
    free = np.setdiff1d(np.arange(len(mesh.nodes)), side)
    weight = np.asarray((fem.consistent_mass(mesh) @ np.ones(len(mesh.nodes)))[free])[:, None]
    shift = lambda t: np.array([0.1, 0.05]) * np.sin(2 * t)
    held = fem.solid(
        mesh, fem.NeoHookean(1.0, 1.0), 1.0, fixed=side, **settings,
        force=lambda q, v, t: 4 * weight * jnp.array([0.1, 0.05]) * jnp.sin(2 * t),
    )  # fmt: skip
    q0 = mesh.nodes[free]
    v0 = np.broadcast_to([0.2, 0.1], q0.shape)
    run = gm.simulate(moved, q0, v0, method=gm.Verlet(), dt=0.005, t_end=1.0, save_every=200)
    other = gm.simulate(held, q0, 0 * v0, method=gm.Verlet(), dt=0.005, t_end=1.0, save_every=200)
    np.testing.assert_allclose(run.q[-1], other.q[-1] + shift(1.0), atol=2e-6)


@pytest.mark.parametrize("material", [fem.NeoHookean(LAME, SHEAR), fem.StVenantKirchhoff(LAME, SHEAR)])
def test_inverted_elements_are_named(material):
    mesh = fem.cube(1)
    v = np.zeros_like(mesh.nodes)
    centre = mesh.where(lambda x: np.all(x == 0.5, axis=1))
    v[centre] = [30.0, 1.0, 0.0]
    system = fem.solid(mesh, material, 1.0)
    with pytest.raises(gm.RunStopped, match=r"step 1, t = 0.05.* element \d+ at .* is inverted, with -") as stopped:
        gm.simulate(system, mesh.nodes, v, method=gm.Verlet(), dt=0.05, t_end=1.0)
    volumes = fem.mesh_checks.signed_volumes(mesh.nodes + 0.05 * v, mesh.cells) / mesh.volumes
    assert f"element {np.argmin(volumes)} at" in str(stopped.value)
    assert "beyond all bounds" not in str(stopped.value)
    with pytest.raises(gm.InputError, match="energy at q0 is nan: element"):
        gm.simulate(system, mesh.nodes + 0.05 * v, v, method=gm.Verlet(), dt=0.05, t_end=1.0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"material": 3.0}, "must be a material"),
        ({"material": fem.NeoHookean(np.ones(3), 1.0)}, "one for each of the 24 elements"),
        ({"density": -1.0}, "density"),
        ({"fixed": [99]}, "numbers of nodes, from 0 to 14"),
        ({"fixed": range(15)}, "nothing is left to move"),
        ({"fixed": [0], "prescribed": ([0], lambda t: np.zeros((1, 3)))}, "node 0 is both"),
        ({"prescribed": ([0, 1], lambda t: np.zeros((1, 3)))}, "positions of 2 nodes"),
        ({"stiff": range(24)}, "leave some to the slow part"),
        ({"gravity": (0, 1)}, "give 3 numbers"),
        ({"mass": "diagonal"}, "lumped"),
        ({"fixed": np.ones(15, bool)}, "np.flatnonzero"),
        ({"material": lambda F: F[0]}, r"one number for each element; for two elements it has the shape \(3,\)"),
        ({"material": lambda F: 1.0 if F[0][0] > 1 else 0.0}, "W\\(F\\) raised .*jnp.where in place of if"),
        ({"density": 2.0, "watch": fem.watch_bodies(fem.cube(1))}, "another mesh, density or fixed nodes"),
    ],
)
def test_wrong_statements_are_named(settings, named):
    arguments = {"mesh": fem.cube(1), "material": fem.NeoHookean(1.0, 1.0), "density": 1.0} | settings
    with pytest.raises(gm.InputError, match=named):
        fem.solid(**arguments)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: fem.lame_constants(1.0, 0.5), "incompressible"),
        (lambda: fem.lame_constants(-1.0, 0.3), "Young's modulus must be positive"),
        (lambda: fem.watch_bodies(fem.cube(1), fixed=[-1]), "numbers of nodes, from 0 to 14"),
        (lambda: fem.collision(gm.simulate(gm.models.kepler(), t_end=0.1)), "watch=gm.fem.watch_bodies"),
        (lambda: fem.cube(1).moved((1, 2)), "give 3 numbers"),
        (lambda: fem.Mesh.union(fem.cube(1)), "give meshes"),
    ],
)
def test_other_wrong_input(call, named):
    with pytest.raises(gm.InputError, match=named):
        call()
