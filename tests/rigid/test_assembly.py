"""Bodies with joints: degrees of freedom, accelerations and momenta that a hand computes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import geomint as gm
from geomint.manifold import find_solver
from geomint.manifold.gram import gram_solve, product_with

rigid, inertia = gm.rigid, gm.rigid.inertia
RANDOM = np.random.default_rng(8)
BOX = inertia.box((1.0, 0.6, 0.3), mass=2.0)
TILTED = BOX.at((0.1, 0.2, -0.3), rigid.rotation((1, 2, 3), 0.8))
POINT, AXIS, OTHER = (0.3, -0.2, 0.5), (1.0, 2.0, -1.0), (0.0, 1.0, 1.0)
JOINTS = {  # with their degrees of freedom
    rigid.Ball(0, 1, POINT): 3,
    rigid.Hinge(2, 3, POINT, AXIS): 1,
    rigid.Slider(4, 5, AXIS, POINT): 1,
    rigid.Universal(6, 7, (AXIS, OTHER), POINT): 2,
    rigid.Cylindrical(8, 9, AXIS, POINT): 2,
    rigid.Weld(10, 11, POINT): 0,
    rigid.Distance(12, 13): 5,
    rigid.Joint(14, 15, POINT, slides=[AXIS, OTHER], turns=[np.cross(AXIS, OTHER)]): 3,
    rigid.Joint(16, 17, slides=np.eye(3)): 3,
    rigid.Hinge(18, 19, POINT, AXIS, angle=lambda t: 0.3 * t): 0,
}


def poses(n):
    turns = np.array([rigid.rotation(axis, 1.0) for axis in RANDOM.normal(size=(n, 3))])
    return {"positions": RANDOM.normal(size=(n, 3)), "rotations": turns}


@pytest.fixture(scope="module")
def pairs():
    """Each joint between two bodies of its own, with the Jacobian of the constraint at the reference pose."""
    assembly = rigid.Assembly([BOX, TILTED] * len(JOINTS), list(JOINTS), **poses(2 * len(JOINTS)))
    mech = gm.Mechanics(assembly, assembly.q().shape)
    return assembly, np.asarray(jax.jit(lambda q: mech.constraint_jacobian(q))(assembly.q()))


def test_degrees_of_freedom(pairs):
    """Two bodies have 24 coordinates; the rank of their equations leaves six of the pair and those of the joint."""
    assembly, jacobian = pairs
    for k, freedom in enumerate(JOINTS.values()):
        columns = jacobian[:, 24 * k : 24 * (k + 1)]
        rows = columns[np.any(columns != 0, axis=1)]
        assert np.linalg.matrix_rank(rows, tol=1e-9) == len(rows) == 24 - 6 - freedom, assembly.joints[k]
        assert set(assembly.rows[k]) <= set(np.flatnonzero(np.any(columns != 0, axis=1)))


def test_motions_that_joints_allow(pairs):
    """Turning about the axis of a hinge and sliding along that of a slider violate no equation; turning about another
    axis does."""
    assembly, jacobian = pairs
    q, axis = assembly.q(), np.array(AXIS) / np.linalg.norm(AXIS)
    positions, rotations = assembly.positions(q), assembly.rotations(q)

    def rate(body, direction, about):
        velocities, omegas = np.zeros((2, assembly.n, 3))
        velocities[body] = direction + np.cross(about, positions[body] - POINT)
        omegas[body] = rotations[body].T @ about
        return np.abs(jacobian @ assembly.v(q, velocities, omegas).ravel()).max()

    zero = np.zeros(3)
    assert rate(3, zero, axis) < 1e-14 < 0.1 < rate(3, zero, np.array(OTHER))
    assert rate(5, axis, zero) < 1e-14 < 0.1 < rate(5, zero, axis)
    assert rate(9, axis, axis) < 1e-14 < 0.1 < rate(11, axis, axis)
    assert rate(7, zero, np.array(OTHER)) < 1e-14 < 0.1 < rate(7, zero, np.cross(axis, OTHER))


def test_poses_and_velocities_are_returned_as_given(pairs):
    assembly, _ = pairs
    pose = poses(assembly.n)
    free = rigid.Assembly([TILTED] * assembly.n)
    q = free.q(pose["positions"], rigid.to_quaternion(pose["rotations"]))
    omega = RANDOM.normal(size=(assembly.n, 3))
    v = free.v(q, 2 * omega, omega)
    along = np.stack([q, q])
    np.testing.assert_allclose(free.positions(along)[1], pose["positions"], atol=1e-14)
    np.testing.assert_allclose(free.rotations(along)[1], pose["rotations"], atol=1e-14)
    np.testing.assert_allclose(free.angular_velocities(along, np.stack([v, v]))[1], omega, atol=1e-13)


def test_energy_and_momenta_are_those_of_the_bodies():
    """½ m|ẋ|² + ½ Ω·IΩ, Σ m ẋ and Σ x × m ẋ + R IΩ about the centres of mass."""
    pose, omega, velocity = poses(2), RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(2, 3))
    pair = rigid.Assembly([TILTED, rigid.RigidBody((1, 2, 2.5), mass=3.0)], **pose)
    q = pair.q()
    v = pair.v(q, velocity, omega)
    mech = gm.Mechanics(pair, q.shape)
    masses, tensors = np.array([2.0, 3.0]), np.array([TILTED.inertia, np.diag([1, 2, 2.5])])
    arms = np.array([pose["rotations"][0] @ TILTED.centre, np.zeros(3)])
    rates = velocity + np.cross(np.einsum("nij,nj->ni", pose["rotations"], omega), arms)
    spin = np.einsum("nij,njk,nk->ni", pose["rotations"], tensors, omega)
    centres = pose["positions"] + arms
    kinetic = 0.5 * masses @ np.sum(rates**2, axis=1) + 0.5 * np.einsum("ni,nij,nj", omega, tensors, omega)
    p = mech.momentum(v)
    maps = mech.momentum_maps(q, p)
    assert float(mech.kinetic(p)) == pytest.approx(kinetic, rel=1e-13)
    np.testing.assert_allclose(maps["translation"], masses @ rates, rtol=1e-12)
    np.testing.assert_allclose(maps["rotation"], np.sum(masses[:, None] * np.cross(centres, rates) + spin, axis=0))


def test_rods_plates_and_points_are_pendula():
    """Let go horizontally, a rod about its end and a plate about its edge begin with 3g/2L, a weight on a thread with
    g/L."""
    rod, plate = inertia.rod(2.0, mass=3.0), rigid.MassProperties(1.5, (0, 0, 0), (0.5, 0.32, 0.82))
    weight = inertia.points([(0, 0, 0)], 0.7)
    upright = rigid.rotation((0, 1, 0), np.pi / 2)  # turns z to x
    positions, turns = [(1.0, 0, 0), (1.0, 5, 0), (2.0, 9, 0)], [upright, np.eye(3), np.eye(3)]
    width = np.sqrt(12 * 0.32 / 1.5)  # of the plate along x, whose second moment is I_y
    joints = [rigid.Ball(None, 0, (0, 0, 0)), rigid.Hinge(None, 1, (1 - width / 2, 0, 0), (0, 1, 0))]
    joints.append(rigid.Distance(None, 2, points=((0, 9, 0), (0, 0, 0))))
    pendula = rigid.Assembly([rod, plate, weight], joints, gravity=(0, 0, -9.81), positions=positions, rotations=turns)
    assert pendula.layout.directors.counts == (1, 2, 0)
    q = pendula.q()
    mech = gm.Mechanics(pendula, q.shape)
    a = np.asarray(jax.jit(lambda q: mech.acceleration(q, 0 * q))(q))
    assert a[0, 2] == pytest.approx(-1.5 * 9.81 / 2, rel=1e-12)
    assert a[2, 2] == pytest.approx(-0.75 * 9.81, rel=1e-12)
    assert a[5, 2] == pytest.approx(-9.81, rel=1e-12)
    np.testing.assert_allclose(pendula.rotations(q), turns, atol=1e-14)
    np.testing.assert_allclose(pendula.positions(q), positions, atol=1e-14)


def test_a_chain_costs_in_proportion_to_its_length():
    """G M⁻¹Gᵀ is found to be a band of blocks of 9, assembled from the same number of products for any length; and the
    elimination along the band solves with it."""
    plans = []
    for n in (8, 16):
        chain = gm.models.rigid_chain(n=n).system
        plans.append(find_solver("auto", 1.0, [(chain, chain.q())]).plan)
        assert plans[-1].kind == "banded"
        assert plans[-1].order.shape[1] == 9
        assert plans[-1].colours.max() < 17
    mech, q = gm.Mechanics(chain, chain.q().shape), jax.numpy.asarray(chain.q())
    right = jax.numpy.asarray(RANDOM.normal(size=144))
    x, dense = jax.jit(lambda r: (gram_solve(plans[1], mech, q, r), jax.vmap(product_with(mech, q))(np.eye(144))))(
        right
    )
    np.testing.assert_allclose(x, np.linalg.solve(np.asarray(dense), right), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rigid.Assembly([]), "bodies must be a list of rigid bodies"),
        (lambda: rigid.Assembly([3]), "body 0 must be a gm.rigid.RigidBody or mass properties"),
        (lambda: rigid.Assembly([rigid.RigidBody((1, 1, 1))]), r"body 0 has no mass: give RigidBody\(mass=\.\.\.\)"),
        (lambda: rigid.Assembly([BOX], [4]), "joint 0 must be a joint"),
        (lambda: rigid.Assembly([BOX], [rigid.Ball(0, 1)]), r"joint 0, Ball\(0, 1\): there are 1 bodies"),
        (lambda: rigid.Assembly([BOX], positions=np.zeros((2, 3))), r"of 1 bodies, positions have the shape \(1, 3\)"),
        (lambda: rigid.Assembly([BOX], rotations=[2 * np.eye(3)]), "is not a rotation"),
        (lambda: rigid.Assembly([BOX, BOX]).q(rotations=[[1, 0, 0, 0], [1, 1, 0, 0]]), "must have length 1"),
        (lambda: rigid.Assembly([BOX], names=["a", "b"]), "names must be 1 different texts"),
        (lambda: rigid.Assembly([BOX], names=["arm"]).number("amr"), "Did you mean arm"),
        (lambda: rigid.Assembly([BOX]).positions(np.zeros((3, 3))), r"q has the shape \(…, 4, 3\) here"),
        (lambda: rigid.Ball(0, 0), "two different bodies"),
        (lambda: rigid.Ball(0, None), "the world can only be the first"),
        (lambda: rigid.Hinge(0, 1), "give axis or axes"),
        (lambda: rigid.Hinge(0, 1, axis=(0, 0, 0)), "an axis must not be zero"),
        (lambda: rigid.Ball(0, 1, POINT, points=(POINT, POINT)), "give point or points, not both"),
        (lambda: rigid.Joint(0, 1, slides=[AXIS, AXIS]), "must be independent"),
        (lambda: rigid.Universal(0, 1, [AXIS]), "axes must be two directions"),
        (lambda: rigid.Assembly([BOX, BOX], [rigid.Distance(0, 1)]), "its ends coincide in the reference pose"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(gm.InputError, match=message):
        call()


def test_a_potential_of_the_user_is_part_of_a_compiled_program():
    """The assembly is an argument of jax.jit, with a potential of its own, of a body or by gravity; all three agree.
    Joints may come from a generator, axes have any length."""
    pull, slides = 2.0 * 9.81, [(1e-200, 0, 0), (0, 1e200, 0)]
    solid, heavy = (rigid.RigidBody((1, 1, 1), 2.0, potential=v) for v in (None, lambda q: pull * q[0, 2]))
    joints = lambda: (rigid.Joint(None, 0, slides=each, turns=np.eye(3)) for each in (slides,))
    energy = jax.jit(lambda system, q: system.call(system.potential, q))
    for assembly in (
        rigid.Assembly([solid], joints(), gravity=(0, 0, -9.81)),
        rigid.Assembly([solid], joints(), potential=lambda x, r: pull * x[0, 2]),
        rigid.Assembly([heavy], joints()),
    ):
        q = assembly.q() + np.array([[3.0, -1.0, 0.5], *np.zeros((3, 3))])
        assert energy(assembly, q) == pytest.approx(0.5 * pull, rel=1e-15)
        residual = np.asarray(assembly.call(assembly.constraint, q))
        np.testing.assert_allclose(np.abs(residual).max(), 0.5, atol=1e-15)  # held in the third direction alone


def test_joints_that_do_not_fit():
    """In the reference pose, and in another one."""
    apart = rigid.Ball(0, 1, points=((0.5, 0, 0), (-0.5, 0, 0)))
    with pytest.raises(
        gm.InputError, match=r"the reference pose do not fit joint 0, Ball\(0, 1\): its residual is 0.1"
    ):
        rigid.Assembly([BOX, BOX], [apart], positions=[(0, 0, 0), (1.1, 0, 0)])
    pair = rigid.Assembly([BOX, BOX], [apart], positions=[(0, 0, 0), (1.0, 0, 0)])
    with pytest.raises(gm.InputError, match=r"these positions and rotations do not fit joint 0"):
        pair.q(positions=[(0, 0, 0), (1.0, 0.2, 0)])
    rod = inertia.rod(1.0, mass=1.0)
    with pytest.raises(gm.InputError, match=r"Hinge\(the world, 0\) needs the orientation of body 0, a thin rod"):
        rigid.Assembly([rod], [rigid.Hinge(None, 0, (0, 0, 0), (1, 0, 0))])
    with pytest.raises(gm.InputError, match="hold it by balls and distances at points of its axis"):
        rigid.Assembly([rod], [rigid.Ball(None, 0, (0.1, 0, 0))])
