"""Mechanisms from MJCF files, the XML of MuJoCo (https://mujoco.readthedocs.io/en/stable/XMLreference.html).

Covered are trees of bodies with inertias (inertial elements, or geoms with masses or densities), hinge, slide, ball and
free joints, several of them in one body, frames, defaults and classes, gravity, and the equalities connect and weld.
What moves nothing (sites, cameras, lights, sensors, materials, …) is passed over. All else is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from ..methods.model import Model
from .inertia import MassProperties
from .joints import Ball, Joint, Weld
from .mjcf_elements import Elements, colliding, geom_mass, inertial_mass
from .trees import Frame, Link, Tree
from .xml_files import File, described

HARMLESS = {
    *("asset", "size", "visual", "statistic", "sensor", "custom", "keyframe", "default", "compiler", "option"),
}
IN_BODY = {"body", "geom", "joint", "freejoint", "inertial", "frame"}
PASSED_OVER = {"site", "camera", "light"}
JOINT_HARMLESS = {
    *("name", "class", "type", "group", "pos", "axis", "ref", "user", "margin", "limited", "range", "solreflimit"),
    *(
        "solimplimit",
        "solreffriction",
        "solimpfriction",
        "springref",
        "actuatorfrclimited",
        "actuatorfrcrange",
        "align",
    ),
}
JOINT_FORCES = ("damping", "stiffness", "armature", "frictionloss", "springdamper", "actuatorgravcomp")


def from_mjcf(path: Any, *, ignore: Any = ()) -> Model:
    """A mechanism from an MJCF file, the XML of MuJoCo, at rest in its reference pose.

    path:    the file.
    ignore:  names of what is not covered and may be left out all the same, such as ("contact", "range", "damping").

        model = gm.rigid.from_mjcf("arm.xml", ignore=("range",))
        run = gm.simulate(model, t_end=5.0)
        run.system.positions(run.q)

    Covered are trees of bodies with inertias (inertial elements, or geoms with masses or densities), hinge, slide, ball
    and free joints, several of them in one body, frames, defaults and classes, gravity, and the equalities connect and
    weld. Joints are held exactly, also where MuJoCo's equalities are soft.
    """
    file = File(path, "from_mjcf", ignore)
    try:
        return _Reader(file, file.root("mujoco")).model()
    except RecursionError:
        raise file.error(
            "its bodies are nested too deeply for the stack of Python; see sys.setrecursionlimit."
        ) from None


class _Reader:
    def __init__(self, file: File, root: Element):
        self.file, self.root, self.tree = file, root, Tree(file)
        self.elements = Elements(file, root)
        self.unnamed = 0
        self.colliders: list[tuple[Element, int | None, int | None]] = []

    def model(self) -> Model:
        for child in self.root:
            if child.tag == "actuator" or child.tag == "tendon":
                for each in child:
                    self.file.refuse(child.tag, described(each))
            elif child.tag not in HARMLESS | {"worldbody", "equality", "contact"}:
                self.file.refuse(child.tag, described(child))
        gravity, step = self.elements.gravity(), self.elements.timestep()
        world = Link(Frame(), None)
        self.tree.links["world"] = world
        for worldbody in self.root.findall("worldbody"):
            self.children(worldbody, world, None, Frame(), "main")
        for equality in self.root.findall("equality"):
            for each in equality:
                self.equality(each)
        if (self.elements.contacts and colliding(self.file, self.colliders)) or self.root.find(
            "contact/pair"
        ) is not None:
            self.file.refuse("contact", "geoms that may touch each other")
        name = self.root.get("model") or Path(self.file.path).stem
        return self.tree.model(gravity, name, "MuJoCo", step)

    def children(self, element: Element, link: Link, above: int | None, offset: Frame, style: str) -> None:
        """The bodies inside a body; `offset` is that of frame elements between."""
        self.file.check_children(element, IN_BODY, PASSED_OVER)
        for child in element:
            if child.tag == "frame":
                inner = offset @ self.elements.frame(child)
                self.children(child, link, above, inner, child.get("childclass", style))
            elif child.tag == "body":
                self.body(child, link, offset, style)
            elif child.tag == "geom" and self.elements.collides(child, style):
                self.colliders.append((self.elements.filled(child, style), link.owner, above))

    def body(self, element: Element, parent: Link, offset: Frame, style: str) -> None:
        style = element.get("childclass", style)
        known = {"name", "childclass", "pos", "quat", "axisangle", "xyaxes", "zaxis", "euler"}
        self.file.check_attributes(element, known, {"user", "sleep", "gravcomp", "mocap"})
        if self.file.number(element, "gravcomp", 0.0):
            self.file.refuse("gravcomp", described(element))
        if element.get("mocap") == "true":
            self.file.refuse("mocap", described(element))
        self.unnamed += 1
        name = element.get("name") or f"body {self.unnamed}"
        frame = parent.frame @ offset @ self.elements.frame(element)
        joints = [self.elements.filled(x, style) for x in element if x.tag in ("joint", "freejoint")]
        link = self.tree.add(name, frame, parent, not joints, self.mass(element, style))
        if joints:
            self.join(element, joints, parent, link)
        self.children(element, link, parent.owner, Frame(), style)

    def mass(self, element: Element, style: str) -> MassProperties | None:
        """By the inertial element, or by the geoms."""
        inertial = element.find("inertial")
        if inertial is not None and not self.elements.always_from_geoms:
            return inertial_mass(self.elements, inertial)
        if inertial is None and self.elements.never_from_geoms:
            return None
        total: MassProperties | None = None
        for offset, each, its_style in self.geoms(element, Frame(), style):
            found = geom_mass(self.elements, self.elements.filled(each, its_style))
            if found is not None:
                found = found.at(offset.position, offset.rotation)
                total = found if total is None else total + found
        return total

    def geoms(self, element: Element, offset: Frame, style: str) -> list[tuple[Frame, Element, str]]:
        """The geoms of a body, those in frame elements too."""
        found = []
        for child in element:
            if child.tag == "geom":
                found.append((offset, child, style))
            elif child.tag == "frame":
                inner = offset @ self.elements.frame(child)
                found += self.geoms(child, inner, child.get("childclass", style))
        return found

    def join(self, element: Element, joints: list[Element], parent: Link, link: Link) -> None:
        """The joint of a body with one or several of MuJoCo's joints: first slides, then rotations about one point."""
        kinds = [self.kind(joint) for joint in joints]
        if "free" in kinds:
            if len(kinds) > 1 or parent.owner is not None:
                raise self.file.error(f"{described(element)}: a free joint must be alone, in a body of the world.")
            return
        slides = [joint for joint, kind in zip(joints, kinds, strict=True) if kind == "slide"]
        turns = [joint for joint, kind in zip(joints, kinds, strict=True) if kind != "slide"]
        points = [self.file.numbers(joint, "pos", (0, 0, 0), 3) for joint in turns]
        one_point = all(np.allclose(point, points[0], atol=1e-12) for point in points)
        in_order = kinds == ["slide"] * len(slides) + kinds[len(slides) :]
        ball = "ball" in kinds
        if not in_order or not one_point or (ball and len(turns) > 1) or len(turns) > 3 or len(slides) > 3:
            sequence = ", ".join(kinds)
            self.file.refuse(
                "joint",
                f"the sequence {sequence} in {described(element)}: covered are slides followed by "
                "a ball or by hinges about one point",
            )
            return
        axes = lambda listed: [link.frame.rotation @ self.axis(joint) for joint in listed]
        around = np.eye(3) if ball else axes(turns)
        point = link.frame.point(points[0] if points else np.zeros(3))
        assert link.owner is not None
        try:
            self.tree.joints.append(Joint(parent.owner, link.owner, point, slides=axes(slides), turns=around))
        except ValueError as error:
            raise self.file.error(f"{described(element)}: {error}") from None

    def kind(self, joint: Element) -> str:
        kind = "free" if joint.tag == "freejoint" else joint.get("type", "hinge")
        if kind not in ("free", "ball", "slide", "hinge"):
            raise self.file.error(f"{described(joint)}: there is no type {kind!r} of joints.")
        self.file.check_attributes(joint, JOINT_HARMLESS, JOINT_FORCES)
        for name in JOINT_FORCES:
            if name != "actuatorgravcomp" and joint.get(name) and np.any(self.file.numbers(joint, name)):
                self.file.refuse(name, described(joint))
        limited = joint.get("limited", "auto")
        by_range = limited == "auto" and self.elements.auto_limits and joint.get("range") is not None
        if kind != "free" and (limited == "true" or by_range):
            self.file.refuse("range", described(joint))
        return kind

    def axis(self, joint: Element) -> np.ndarray:
        return self.file.numbers(joint, "axis", (0, 0, 1), 3)

    def equality(self, element: Element) -> None:
        element = self.elements.filled(element, "main")
        if element.get("active") == "false":
            return
        known = {"name", "class", "active", "body1", "body2", "anchor", "solref", "solimp", "torquescale"}
        if element.tag not in ("connect", "weld") or element.get("body1") is None:
            self.file.refuse("equality", described(element))
            return
        self.file.check_attributes(element, known)
        links = [self.tree.links.get(element.get(name, "world")) for name in ("body1", "body2")]
        if None in links:
            raise self.file.error(
                f"{described(element)}: there is no body {element.get('body1')!r} or {element.get('body2')!r}."
            )
        one, two = links
        assert one is not None
        assert two is not None
        if one.owner == two.owner:
            return
        anchor = self.file.numbers(element, "anchor", (0, 0, 0), 3)
        inside = one if element.tag == "connect" else two  # where the anchor is stated
        point, make = inside.frame.point(anchor), Ball if element.tag == "connect" else Weld
        first, second = (one.owner, two.owner) if two.owner is not None else (two.owner, one.owner)
        self.tree.joints.append(make(first, second, point))
