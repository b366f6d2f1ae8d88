"""States and accelerations of MuJoCo, in the coordinates of an assembly."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np


class State(NamedTuple):
    q: np.ndarray
    v: np.ndarray
    acceleration: np.ndarray
    energy: float
    angles: np.ndarray  # qpos of the hinges


def state(path, assembly, seed: int, at_rest: bool = False) -> State:
    """A random state of MuJoCo's, and its exact accelerations (contacts and limits off)."""
    model = mujoco.MjModel.from_xml_path(str(path))
    data, random = mujoco.MjData(model), np.random.default_rng(seed)
    if not at_rest:
        mujoco.mj_integratePos(model, data.qpos, random.normal(size=model.nv), 1.0)
        data.qvel[:] = random.normal(size=model.nv)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    mujoco.mj_forward(model, data)
    numbers = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name) for name in assembly.names]
    rotations = data.xmat[numbers].reshape(-1, 3, 3)
    q = assembly.q(data.xpos[numbers], rotations)
    moving = [_moving(model, data, i) for i in numbers]
    velocity, omega, rate, turn = (np.array(x) for x in zip(*moving, strict=True))
    v = assembly.v(q, velocity, np.einsum("nsb,ns->nb", rotations, omega))
    frames = np.asarray(assembly.layout.complete(q))
    arms = np.concatenate([(frames[:, 0] - data.xpos[numbers])[:, None], frames[:, 1:]], axis=1)
    along = np.cross(turn[:, None], arms) + np.cross(omega[:, None], np.cross(omega[:, None], arms))
    along[:, 0] += rate
    hinges = model.jnt_qposadr[model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE]
    return State(q, v, along.reshape(-1, 3), float(np.sum(data.energy)), data.qpos[hinges])


def _moving(model, data, body):
    """Velocity and angular velocity of a body's frame in space, and their rates."""
    jacobians = np.zeros((4, 3, model.nv))
    point = data.xpos[body]
    mujoco.mj_jac(model, data, jacobians[0], jacobians[1], point, body)
    mujoco.mj_jacDot(model, data, jacobians[2], jacobians[3], point, body)
    along, turning, along_rate, turning_rate = jacobians
    accelerate = lambda j, rate: j @ data.qacc + rate @ data.qvel
    return along @ data.qvel, turning @ data.qvel, accelerate(along, along_rate), accelerate(turning, turning_rate)
