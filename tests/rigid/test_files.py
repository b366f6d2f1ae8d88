"""Files of MuJoCo and ROS: the accelerations of MuJoCo itself, and what is refused."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import geomint as gm

HERE = Path(__file__).parent
# States and accelerations that MuJoCo 4.0 computed: written by `python tests/rigid/test_files.py`.
STORED = HERE / "mujoco_states.json"
FILES = ("arm.xml", "arm.urdf")
BODY = '<body name="b" {}><joint name="j" {}/><geom size="0.1"/>{}</body>'


@functools.cache
def opened(name):
    return (
        gm.rigid.from_mjcf(HERE / name) if name.endswith("xml") else gm.rigid.from_urdf(HERE / name, ignore=["limit"])
    )


@functools.cache
def evaluated(name):
    """Acceleration, energy and constraint of (q, v), compiled once for a file."""
    mech = gm.Mechanics(opened(name).system, opened(name).q0.shape)
    return jax.jit(lambda q, v: (mech.acceleration(q, v), mech.energy(q, mech.momentum(v)), mech.constraint(q)))


def compared(name, states):
    """Accelerations to 1e-10, the energy up to a constant, and the constraint."""
    offsets, largest = [], 0.0
    for state in states:
        q, v, expected = (np.array(state[key]) for key in ("q", "v", "acceleration"))
        a, energy, g = evaluated(name)(q, v)
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e-10)
        assert np.max(np.abs(g)) < 1e-13
        offsets.append(float(energy) - state["energy"])
        largest = max(largest, np.max(np.abs(expected)))
    assert np.ptp(offsets) < 1e-11
    assert largest > 1


@pytest.mark.parametrize("name", FILES)
def test_accelerations_are_those_of_mujoco(name):
    compared(name, json.loads(STORED.read_text())[name])


@pytest.mark.parametrize("name", FILES)
def test_accelerations_are_those_of_mujoco_now(name):
    """At other states, with the MuJoCo that is installed; and its masses."""
    mujoco = pytest.importorskip("mujoco")
    from helpers.mujoco_states import state

    model = opened(name)
    compared(name, [state(HERE / name, model.system, seed)._asdict() for seed in (5, 6)])
    theirs = mujoco.MjModel.from_xml_path(str(HERE / name))
    fixed = sum(theirs.body_mass[1 + np.flatnonzero(theirs.body_weldid[1:] == 0)])
    mine = np.asarray(model.system.mass).ravel()[model.system.layout.directors.starts[:-1]]
    assert mine.sum() == pytest.approx(theirs.body_mass.sum() - fixed, rel=1e-13)


def test_a_model_of_a_file():
    """Its names, its joints and the start, which is the reference pose."""
    model = opened("arm.xml")
    assembly = model.system
    assert (model.name, model.dt) == ("arm", 0.005)
    assert assembly.names == ("upper", "lower", "hand", "cart", "weight", "stone", "gimbal")
    assert np.max(np.abs(assembly.angles(model.q0))) < 1e-15
    assert np.max(np.abs(assembly.displacements(model.q0))) < 1e-15
    np.testing.assert_allclose(assembly.positions(model.q0)[assembly.number("stone")], [0, 3, 1], atol=1e-15)


def mjcf(tmp_path, inside, more=""):
    path = tmp_path / "file.xml"
    path.write_text(f"<mujoco><worldbody>{inside}</worldbody>{more}</mujoco>")
    return path


def body(attributes="", joint="", inside=""):
    return BODY.format(attributes, joint, inside)


HAND = "<body name='c' pos='1 0 0'><joint/><geom size='.1'/></body>"
FAR = "<body name='d' pos='3 0 0'><joint/><geom size='.1' contype='0' conaffinity='0'/></body>"
ACTUATOR = "<actuator><motor name='m' joint='j'/></actuator>"


@pytest.mark.parametrize(
    ("inside", "more", "message"),
    [
        (body(joint='damping="0.1"'), "", r"change the motion: damping \(<joint name='j'>\).*ignore=\('damping',\)"),
        (body(joint='stiffness="1" armature="2"'), "", r"stiffness .*armature"),
        (body(joint='range="-10 10"'), "", r"range \(<joint name='j'>\)"),
        (body(), ACTUATOR, r"actuator \(<motor name='m'>\)"),
        (body(), "<equality><joint joint1='j'/></equality>", r"equality \(<joint>\)"),
        (body(), "<option viscosity='1'/>", "viscosity"),
        (body() + HAND, "", r"contact \(geoms that may touch each other\)"),
        (body('gravcomp="1"'), "", "gravcomp"),
        (body(inside="<flexcomp/>"), "", r"flexcomp \(<flexcomp> in <body name='b'>\)"),
        (body(joint='dampign="1"'), "", r"attribute dampign of <joint name='j'> Did you mean damping"),
        (body(inside="<joint type='slide'/>"), "", "the sequence hinge, slide"),
        (body(inside="<joint pos='0 0 1'/>"), "", "the sequence hinge, hinge"),
        (body(joint='type="screw"'), "", "there is no type 'screw'"),
        (body('quat="0 0 0 0"'), "", "quat='0 0 0 0' is no orientation"),
        (body('pos="1 2"'), "", "pos='1 2' must be 3 numbers"),
        ("<body name='b'><joint/></body>", "", "body 'b' can move, but has no mass"),
        (
            "<body><joint/><inertial mass='1' diaginertia='1 1 3'/></body>",
            "",
            "no body has the principal moments 1, 1, 3",
        ),
        ("<geom size='1'/>", "", "no body of it can move"),
        (body(joint='class="fast"'), "", "there is no class 'fast'"),
        (body() + body(), "", "two bodies are called 'b'"),
        (body(), "<equality><connect body1='x' anchor='0 0 0'/></equality>", "there is no body 'x'"),
        (body(inside="<geom size='1' group='x'/>"), "", "group='x' must be a number"),
        (body(inside="<geom size='1' contype='1.5'/>"), "", "contype='1.5' must be a whole number"),
        (body(inside="<geom size='1' desnity='5'/>"), "", "attribute desnity of <geom> Did you mean density"),
        (body(inside="<geom type='box' size='1' fromto='0 0 1 0 0 1'/>"), "", "the two ends of fromto='0 0 1 0 0 1'"),
        (body(), "<compiler inertiagrouprange='a b'/>", "inertiagrouprange='a b' must be 2 numbers"),
        (body(), "<option timestep='0'/>", "timestep=0 must be positive"),
    ],
)
def test_what_is_refused(tmp_path, inside, more, message):
    with pytest.raises(gm.InputError, match=message):
        gm.rigid.from_mjcf(mjcf(tmp_path, inside, more))


def test_what_may_be_left_out_and_what_moves_nothing(tmp_path):
    """Named features are ignored; geoms of a body and the one above it do not touch, nor do those without contacts."""
    path = mjcf(tmp_path, body(joint='damping="1" range="0 1"'), ACTUATOR)
    assert gm.rigid.from_mjcf(path, ignore=("damping", "range", "actuator")).system.n == 1
    path = mjcf(tmp_path, body(inside=HAND) + FAR, "<sensor/><asset/><visual/>")
    assert gm.rigid.from_mjcf(path).system.n == 3
    loop = "<equality><connect body1='c' anchor='0.5 0 0'/><weld body1='d' active='false'/></equality>"
    linkage = gm.rigid.from_mjcf(mjcf(tmp_path, body(inside=HAND) + FAR, loop)).system
    assert linkage.joints[-1] == "Ball(the world, 1)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco>", "is not XML"),
        ("<robot/>", "the root element is <robot>, not <mujoco>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><mujoco>&b;</mujoco>', "has a document type"),
        ("<mujoco>" + "<a>" * 600, "has more than 500 levels"),
        ("<mujoco><worldbody>" + "<body>" * 497 + "</body>" * 497 + "</worldbody></mujoco>", "nested too deeply"),
        (" " * (32 * 2**20 + 1), "has more than 32 MiB"),
    ],
)
def test_hostile_xml(tmp_path, text, message):
    path = tmp_path / "file.xml"
    path.write_text(text)
    with pytest.raises(gm.InputError, match=message):
        gm.rigid.from_mjcf(path)
    with pytest.raises(gm.InputError, match="can't be read"):
        gm.rigid.from_urdf(tmp_path / "none.urdf")
    with pytest.raises(gm.InputError, match="path must be the name of a file"):
        gm.rigid.from_urdf(None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", r"limit \(<joint name='rail'>, <joint name='axle'>\)"),
        ('damping="0.0"', 'damping="1.0"', r"dynamics \(damping of <joint name='axle'>\)"),
        ('<parent link="tip"/>', '<parent link="tap"/>', "its parent 'tap' is no link"),
        ('<child link="wheel"/>', '<child link="slide"/>', "link 'slide' is the child of two joints"),
        ('type="continuous"', 'type="screw"', "there is no type 'screw'"),
        ('<mass value="0.7"/>', '<mass value="0"/>', "body 'slide' can move, but has no mass"),
        ('ixx="0.05"', 'ixx="5"', "no body has the principal moments"),
        ("</robot>", "<gazebo/></robot>", "gazebo"),
        ("</robot>", '<link name="tip"/></robot>', "two links are called 'tip'"),
    ],
)
def test_what_is_refused_in_urdf(tmp_path, old, new, message):
    path = tmp_path / "arm.urdf"
    path.write_text((HERE / "arm.urdf").read_text().replace(old, new))
    with pytest.raises(gm.InputError, match=message):
        gm.rigid.from_urdf(path, ignore=["limit"] if old else ())


def test_a_free_base(tmp_path):
    """The root link moves too, and needs a mass."""
    with pytest.raises(gm.InputError, match="body 'base' can move, but has no mass"):
        gm.rigid.from_urdf(HERE / "arm.urdf", base="free", ignore=["limit"])
    with pytest.raises(gm.InputError, match="base must be"):
        gm.rigid.from_urdf(HERE / "arm.urdf", base="floating")


if __name__ == "__main__":
    from helpers.mujoco_states import state

    found = {}
    for name in FILES:
        system = opened(name).system
        states = [state(HERE / name, system, seed) for seed in (0, 1)]
        found[name] = [{key: np.asarray(x).tolist() for key, x in each._asdict().items()} for each in states]
    STORED.write_text(json.dumps(found))
