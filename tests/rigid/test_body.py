"""Rigid bodies: what they state in each representation, and input that no body has."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Turn

import geomint as gm
from geomint.rigid import Bodies, RigidBody, body, rotation
from geomint.system.lagrangian import derive

MOMENTS, OMEGA, TURN = np.array([0.6, 0.8, 1.0]), np.array([3.0, 0.5, -0.9]), rotation((1, 2, 3), 0.7)
TILT = Turn.from_rotvec([0.4, -0.8, 0.3]).as_matrix()
SYMMETRIES = (gm.rigid.SpatialRotation(), gm.rigid.BodyRotation((0, 0, 1)))


def numbers(system, q, p):
    mech = derive(system, q.shape)
    return mech.energy(q, p), mech.momentum_maps(q, p), mech.watched(q, p, 0.0)


@pytest.mark.parametrize("mass", [None, 1.7])
@pytest.mark.parametrize("tensor", [False, True])
def test_both_representations_state_the_same_body(mass, tensor):
    inertia = TILT @ np.diag(MOMENTS) @ TILT.T if tensor else MOMENTS
    height = lambda q: q[-1, 2] + (q[0, 1] if mass else 0.0)
    stated = RigidBody(inertia, mass, height, SYMMETRIES + ((gm.rigid.SpatialTranslation(),) if mass else ()))
    place = ((0.2, -0.4, 0.1), (1.0, 0.3, -0.2)) if mass else (None, None)
    found = []
    for representation in ("group", "matrix"):
        system = stated.system(representation)
        q, v = stated.state(TURN, OMEGA, *place, representation)
        found.append(numbers(system, q, np.asarray(derive(system, q.shape).momentum(v))))
    (energy, maps, watched), (energy_, maps_, watched_) = found
    momentum = inertia @ OMEGA if tensor else inertia * OMEGA
    x, v = (np.array(p) if mass else np.zeros(3) for p in place)
    by_hand = 0.5 * OMEGA @ momentum + 0.5 * (mass or 0.0) * v @ v + TURN[2, 2] + (x[1] if mass else 0.0)
    assert energy == pytest.approx(by_hand, rel=1e-14)
    assert energy_ == pytest.approx(by_hand, rel=1e-14)
    spatial = TURN @ momentum + (mass or 0.0) * np.cross(x, v)
    for m, w in ((maps, watched), (maps_, watched_)):
        np.testing.assert_allclose(m["spatial rotation"], spatial, atol=1e-14)
        np.testing.assert_allclose(w["angular_momentum"], spatial, atol=1e-14)
        np.testing.assert_allclose(m["body rotation[0.0, 0.0, 1.0]"], momentum[2:], atol=1e-14)
        np.testing.assert_allclose(w["casimir"], momentum @ momentum, rtol=1e-14)
        assert w["orthogonality"] < 1e-15
        if mass:
            np.testing.assert_allclose(m["spatial translation"], mass * v, rtol=1e-14)


def test_several_bodies():
    pair = Bodies([RigidBody(MOMENTS), RigidBody(np.diag(MOMENTS))], lambda R: R[0, 2, 2] * R[1, 2, 2], SYMMETRIES[:1])
    q, v = np.stack([TURN, TILT]), np.stack([OMEGA, -OMEGA])
    system, matrix = pair.system(), pair.system("matrix")
    p = np.asarray(derive(system, q.shape).momentum(v))
    by_matrix = np.asarray(derive(matrix, q.shape).momentum(np.asarray(q @ np.asarray(gm.rigid.hat(v)))))
    first, second = numbers(system, q, p), numbers(matrix, q, by_matrix)
    assert first[0] == pytest.approx(OMEGA @ (MOMENTS * OMEGA) + TURN[2, 2] * TILT[2, 2], rel=1e-14)
    assert second[0] == pytest.approx(float(first[0]), rel=1e-14)
    total = TURN @ (MOMENTS * OMEGA) - TILT @ (MOMENTS * OMEGA)
    for found in (first, second):
        np.testing.assert_allclose(found[2]["angular_momentum"], total, atol=1e-14)
        np.testing.assert_allclose(found[2]["casimir"], np.sum((MOMENTS * OMEGA) ** 2), rtol=1e-14)


WRONG = {
    "at most the sum of the other two": lambda: RigidBody((1, 1, 3)),
    "must be positive": lambda: RigidBody((1, 1, -1)),
    "must be symmetric": lambda: RigidBody([[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]),
    "three principal moments": lambda: RigidBody((1, 1)),
    "mass must be positive": lambda: RigidBody((1, 1, 1), mass=0),
    "lies in a plane": lambda: RigidBody((1, 1, 2)).system("matrix"),
    "representation": lambda: RigidBody(1.0).system("quaternion"),
    "rotation is not a rotation": lambda: RigidBody(1.0).state(rotation=2 * np.eye(3)),
    "turns about a fixed point": lambda: RigidBody(1.0).state(position=(0, 0, 1)),
    "a quaternion": lambda: RigidBody(1.0).state(rotation=np.eye(2)),
    "three numbers": lambda: RigidBody(1.0).state(angular_velocity=(1, 2)),
    "all with a mass or all without": lambda: Bodies([RigidBody(1.0), RigidBody(1.0, mass=1.0)]),
    "bodies must be a list of": lambda: Bodies(np.eye(3)),
    "axis must not be zero": lambda: gm.rigid.SpatialRotation((0, 0, 0)),
    "needs bodies with a position": lambda: gm.rigid.SpatialTranslation().generators(np.eye(3)),
    "no rotation is near": lambda: gm.rigid.nearest_rotation(-np.eye(3)),
    "length 0": lambda: gm.rigid.from_quaternion(np.zeros(4)),
    r"RigidPoses holds bodies": lambda: gm.rigid.RigidPoses().residual(np.eye(3)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_named(message):
    with pytest.raises(gm.InputError, match=message):
        WRONG[message]()


def test_rotations_at_the_interface():
    near = TURN + 1e-3 * np.arange(9).reshape(3, 3)
    tiny, huge = (gm.rigid.rotation(size * np.array([1, 2, 3.0]), 0.7) for size in (1e-200, 1e200))
    np.testing.assert_allclose((tiny, huge), 2 * [gm.rigid.rotation((1, 2, 3), 0.7)], atol=1e-15)
    np.testing.assert_allclose(gm.rigid.nearest_rotation(near), Turn.from_matrix(near).as_matrix(), atol=1e-5)
    np.testing.assert_allclose(TURN, Turn.from_rotvec(0.7 * np.array([1, 2, 3]) / np.sqrt(14)).as_matrix(), atol=1e-15)
    e = gm.rigid.to_quaternion(TURN)
    q, _ = RigidBody(1.0).state(rotation=e)
    np.testing.assert_allclose(q, TURN, atol=1e-15)
    assert body.second_moment(MOMENTS).tolist() == pytest.approx([0.6, 0.4, 0.2])
