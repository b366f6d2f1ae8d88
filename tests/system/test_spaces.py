"""Configuration spaces: each operation against the others that it must agree with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.rigid import SE3, SO3, Flat, MatrixGroup, Poses, Product, rotation

TURN = rotation((1, 2, 3), 0.9)
HATS = np.asarray(gm.rigid.hat(np.eye(3)))
SCALING = np.array([[[0.0, 1], [0, 0]], [[1.0, 0], [0, 0]]])  # x ↦ ax + b, a group that is no rotation
SPACES = {
    "flat": (Flat(), TURN),
    "SO3": (SO3(), np.stack([TURN, TURN.T])),
    "poses": (Poses(), np.vstack([[0.3, -0.2, 0.5], TURN])),
    "product": (Product([(SO3(), (3, 3)), (Flat(), (2,))]), np.append(TURN.ravel(), [0.4, 0.7])),
    "SE3": (SE3(), np.block([[TURN, np.array([[0.3], [-0.2], [0.5]])], [np.zeros((1, 3)), np.ones((1, 1))]])),
    "affine maps": (MatrixGroup(SCALING), np.array([[2.0, 0.7], [0, 1]])),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_space_agrees_with_itself(name):
    space, q = SPACES[name][0], jnp.asarray(SPACES[name][1])
    rng, shape = np.random.default_rng(1), space.velocity_shape(q.shape)
    space.check(np.asarray(q), "q0")

    def defects(q, v, w, mu):
        there, covector = space.retract(q, w), jnp.cos(q)  # of some function of the entries
        rate = lambda f: jax.jvp(f, (0.0,), (1.0,))[1]
        p = space.cotangent(w, mu)
        # ⟨μ, dexp_w⁻¹(η)⟩ of the η that moves exp(w) like w + εv moves it: (d/dε exp(w + εv)) = η̂ exp(w).
        moved = rate(lambda s: space.difference(space.retract(q, w + s * v), there))  # trivialised from the left
        return {
            "difference": space.difference(there, q) - w,
            "velocity": rate(lambda s: space.retract(q, s * v)) - space.lift(q, v),
            "tangent": space.tangent(there, space.lift(there, v)) - v,
            "pull": jnp.sum(space.pull(q, covector) * v) - jnp.sum(covector * space.lift(q, v)),
            "derivative of the map": jnp.sum(space.cotangent(-w, mu) * moved) - jnp.sum(mu * v),
            "transport": space.transport(w, mu, p) - (space.cotangent(-w, mu) - p),
            # Ad*_exp(sv) p = p + s ad*_v p + …
            "coadjoint": rate(lambda s: space.transport(s * v, mu, space.cotangent(s * v, mu)))
            - space.coadjoint(v, mu),
            "residual": space.residual(there),
            "polish": space.polish(q),
        }

    arguments = (0.4 * rng.normal(size=(3, *shape))).astype(float)
    for what, defect in jax.jit(defects)(q, *arguments).items():
        assert np.max(np.abs(defect), initial=0.0) < 2e-14, what


def test_the_group_of_rotations_as_matrix_group():
    """By the basis of its algebra, in series, everything is as in closed form."""
    general, closed, rng = MatrixGroup(HATS), SO3(), np.random.default_rng(2)
    w, mu = 0.6 * rng.normal(size=(2, 3))
    np.testing.assert_allclose(general.structure, -np.cross(np.eye(3)[:, None], np.eye(3)[None]).T, atol=1e-15)
    for map in ("cayley", "exponential"):
        np.testing.assert_allclose(general.increment(TURN, w, map), closed.increment(TURN, w, map), atol=1e-15)
        np.testing.assert_allclose(general.cotangent(w, mu, map), closed.cotangent(w, mu, map), atol=1e-15)
    assert general.is_quadratic
    assert SE3().is_quadratic
    assert not MatrixGroup(np.diag([1.0, 2.0, -0.5])[None]).is_quadratic


def test_wrong_input_is_named():
    raises = lambda match: pytest.raises(gm.InputError, match=match)
    system = gm.rigid.RigidBody((1, 2, 2.5), potential=lambda R: R[2, 2]).system()
    run = lambda q0, v0=None, system=system, method=None, **more: gm.simulate(
        system, q0, v0, method=method or gm.LieVerlet(), dt=0.1, t_end=1.0, **more
    )
    with raises("q0 is not a rotation.*nearest_rotation"):
        run(TURN + 1e-3)
    with raises("reflection"):
        run(np.diag([1.0, 1.0, -1.0]))
    with raises(r"v0 has shape \(3, 3\).*must have shape \(3,\)"):
        run(TURN, TURN)
    with raises("rotations need q0 of shape"):
        run(np.eye(4))
    with raises(r"Verlet\(\) moves arrays by q \+ dq.*LieVerlet"):
        run(TURN, method=gm.Verlet())
    with raises("integrates systems on Lie groups"):
        gm.simulate(gm.models.kepler(), method=gm.LieVerlet())
    with raises(r"space=SO3\(\).*damping"):
        gm.System(space=SO3(), damping=0.1)
    with raises("a potential of t"):
        gm.System(lambda q, t: q[0, 0] * t, space=SO3())
    with raises("configuration space"):
        gm.System(space="SO3")
    with raises("MoserVeselov.*principal moments"):
        gm.simulate(gm.models.satellite(), method=gm.MoserVeselov())
    with raises(r"q0s\[1\] is not a rotation"):
        gm.ensemble(system, np.stack([TURN, 2 * TURN]), method=gm.LieVerlet(), dt=0.1, t_end=1.0)
    with raises("linearly dependent"):
        MatrixGroup(np.stack([HATS[0], HATS[0]]))
    with raises("commutator of matrices 0 and 1"):
        MatrixGroup(HATS[:2])
    with raises("last row of a rigid motion"):
        SE3().check(np.ones((4, 4)), "q0")
    with raises("not in the group"):
        MatrixGroup(HATS).check(2 * TURN, "q0")
