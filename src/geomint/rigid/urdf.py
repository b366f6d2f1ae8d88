"""Mechanisms from URDF files, the robot descriptions of ROS (https://wiki.ros.org/urdf/XML).

Covered are links with inertias, and fixed, revolute, continuous, prismatic, planar and floating joints. Visual and
collision elements are passed over: geomint simulates no contacts of bodies of a file. All else is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from ..methods.model import Model
from ..system.checks import choice, positive, vector
from .inertia import MassProperties
from .joints import Joint
from .mjcf_elements import checked, rotations
from .trees import Frame, Link, Tree
from .xml_files import File, described

BASES = ("fixed", "free")
KINDS = ("fixed", "revolute", "continuous", "prismatic", "planar", "floating")
FIXED = Link(Frame(), None)


def from_urdf(
    path: Any, *, gravity: Any = (0.0, 0.0, -9.81), base: str = "fixed", dt: float = 0.002, ignore: Any = ()
) -> Model:
    """A mechanism from a URDF file, at rest with all joints at 0.

    path:     the file.
    gravity:  its acceleration, which the file doesn't state.
    base:     "fixed", the root link is a part of the world, or "free".
    dt:       the step of the model.
    ignore:   names of what is not covered and may be left out all the same, such as ("limit", "dynamics").

    Covered are links with inertias, and fixed, revolute, continuous, prismatic, planar and floating joints. Visual and
    collision elements are passed over.
    """
    choice(base, "base", "from_urdf", BASES)
    file = File(path, "from_urdf", ignore)
    g = np.array(vector(gravity, "gravity", "from_urdf", size=3))
    reader = _Reader(file, file.root("robot"))
    return reader.model(g, base == "free", positive(dt, "dt", "from_urdf"))


class _Reader:
    def __init__(self, file: File, root: Element):
        self.file, self.root, self.tree = file, root, Tree(file)
        self.links: dict[str, Element] = {}
        for link in root.findall("link"):
            if self.named(link) in self.links:
                raise file.error(f"two links are called {link.get('name')!r}.")
            self.links[self.named(link)] = link
        self.joints = root.findall("joint")

    def named(self, element: Element) -> str:
        name = element.get("name")
        if not name:
            raise self.file.error(f"{described(element)} needs a name.")
        return name

    def model(self, gravity: np.ndarray, free: bool, dt: float) -> Model:
        self.file.check_children(self.root, {"link", "joint"}, {"material", "transmission"})
        below: dict[str, list[Element]] = {name: [] for name in self.links}
        children: set[str] = set()
        for joint in self.joints:
            parent, child = (self.end(joint, tag) for tag in ("parent", "child"))
            if child in children:
                raise self.file.error(f"link {child!r} is the child of two joints.")
            children.add(child)
            below[parent].append(joint)
        roots = [name for name in self.links if name not in children]
        if len(roots) != 1:
            found = f"the links without parents are {', '.join(roots)}" if roots else "no link is without a parent"
            raise self.file.error(f"a robot is one tree of links; here {found}.")
        root = self.tree.add(roots[0], Frame(), None, not free, self.mass(self.links[roots[0]]))
        stack = [(roots[0], root)]
        while stack:
            name, link = stack.pop()
            stack += [self.join(joint, link) for joint in below[name]]
        if len(self.tree.links) < len(self.links):
            lost = [name for name in self.links if name not in self.tree.links]
            raise self.file.error(f"links {', '.join(lost[:4])} form a loop and are joined to nothing.")
        return self.tree.model(gravity, self.root.get("name") or Path(self.file.path).stem, "URDF", dt)

    def end(self, joint: Element, tag: str) -> str:
        found = joint.find(tag)
        name = None if found is None else found.get("link")
        if name is None or name not in self.links:
            raise self.file.error(f"{described(joint)}: its {tag} {name!r} is no link of the file.")
        return name

    def frame(self, element: Element) -> Frame:
        """The origin of a joint or an inertial element."""
        origin = element.find("origin")
        if origin is None:
            return Frame()
        angles = self.file.numbers(origin, "rpy", (0, 0, 0), 3)
        return Frame(rotations().from_euler("xyz", angles).as_matrix(), self.file.numbers(origin, "xyz", (0, 0, 0), 3))

    def mass(self, link: Element) -> MassProperties | None:
        self.file.check_children(link, {"inertial"}, {"visual", "collision"})
        inertial = link.find("inertial")
        if inertial is None:
            return None
        mass, inertia = inertial.find("mass"), inertial.find("inertia")
        value = None if mass is None else self.file.number(mass, "value")
        if value is None or inertia is None:
            raise self.file.error(f"{described(link)}: its inertial element needs a mass and an inertia.")
        xx, yy, zz, xy, xz, yz = (self.file.number(inertia, f"i{x}", 0.0) for x in ("xx", "yy", "zz", "xy", "xz", "yz"))
        if value == 0:
            return None
        matrix, frame = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), self.frame(inertial)
        make = lambda: MassProperties(value, np.zeros(3), matrix).at(frame.position, frame.rotation)
        return checked(self.file, link, make)

    def join(self, joint: Element, parent: Link) -> tuple[str, Link]:
        """Add the child of a joint."""
        kind, name = joint.get("type", ""), self.end(joint, "child")
        if kind not in KINDS:
            raise self.file.error(
                f"{described(joint)}: there is no type {kind!r} of joints; known: {', '.join(KINDS)}."
            )
        self.check(joint, kind)
        frame = parent.frame @ self.frame(joint)
        child = self.tree.add(name, frame, parent, kind == "fixed", self.mass(self.links[name]))
        if kind in ("fixed", "floating"):
            return name, child
        element = joint.find("axis")
        given = np.array([1.0, 0.0, 0.0]) if element is None else self.file.numbers(element, "xyz", (1, 0, 0), 3)
        axis = frame.rotation @ given
        slides: Any = [axis] if kind == "prismatic" else []
        if kind == "planar":  # in the plane perpendicular to the axis, and about it
            slides = list(np.linalg.svd(axis[None])[2][1:])
        turns = [] if kind == "prismatic" else [axis]
        make = lambda: Joint(parent.owner, child.owner, frame.position, slides=slides, turns=turns)
        self.tree.joints.append(checked(self.file, joint, make))
        return name, child

    def check(self, joint: Element, kind: str) -> None:
        """Refuse what moves a joint besides gravity and inertia."""
        known = {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "safety_controller"}
        self.file.check_children(joint, known, {"calibration"})
        for tag in ("mimic", "safety_controller"):
            if joint.find(tag) is not None:
                self.file.refuse(tag, described(joint))
        dynamics = joint.find("dynamics")
        for name in ("damping", "friction"):
            if dynamics is not None and self.file.number(dynamics, name, 0.0):
                self.file.refuse("dynamics", f"{name} of {described(joint)}")
        limit = joint.find("limit")
        if limit is not None and kind in ("revolute", "prismatic"):
            self.file.refuse("limit", described(joint))
