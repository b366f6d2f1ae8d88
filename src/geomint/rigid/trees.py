"""A tree of bodies and joints read from a file, as an assembly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..methods.model import Model
from .assembly import Assembly
from .inertia import MassProperties
from .joints import Connection
from .xml_files import File


class Frame(NamedTuple):
    """A frame in another one: x → rotation x + position."""

    rotation: np.ndarray = np.eye(3)
    position: np.ndarray = np.zeros(3)

    def __matmul__(self, inner: Frame) -> Frame:
        return Frame(self.rotation @ inner.rotation, self.rotation @ inner.position + self.position)

    def point(self, x: np.ndarray) -> np.ndarray:
        return self.rotation @ x + self.position

    def inverse(self) -> Frame:
        return Frame(self.rotation.T, -self.rotation.T @ self.position)


class Link(NamedTuple):
    """A body of the file: fixed to the body `owner` (None: the world), or that body itself."""

    frame: Frame  # in space, in the reference pose
    owner: int | None


class Tree:
    """Bodies are added from the root outwards. Bodies without joints become parts of their parents."""

    def __init__(self, file: File):
        self.file = file
        self.links: dict[str, Link] = {}
        self.frames: list[Frame] = []
        self.names: list[str] = []
        self.masses: list[MassProperties | None] = []
        self.joints: list[Connection] = []

    def add(self, name: str, frame: Frame, parent: Link | None, fixed: bool, mass: MassProperties | None) -> Link:
        """A body with a frame in space. fixed: it has no joint, and is a part of its parent."""
        if name in self.links:
            raise self.file.error(f"two bodies are called {name!r}.")
        owner = None if parent is None else parent.owner
        if not fixed:
            owner = len(self.frames)
            self.frames.append(frame)
            self.names.append(name)
            self.masses.append(None)
        if owner is not None and mass is not None:
            inside = self.frames[owner].inverse() @ frame
            placed, so_far = mass.at(inside.position, inside.rotation), self.masses[owner]
            self.masses[owner] = placed if so_far is None else so_far + placed
        self.links[name] = Link(frame, owner)
        return self.links[name]

    def model(self, gravity: np.ndarray, name: str, kind: str, dt: float) -> Model:
        """The assembly with its reference pose as the start."""
        self.file.finish()
        if not self.frames:
            raise self.file.error("no body of it can move.")
        for body, mass in zip(self.names, self.masses, strict=True):
            if mass is None:
                raise self.file.error(f"body {body!r} can move, but has no mass.")
        positions, rotations = [x.position for x in self.frames], [x.rotation for x in self.frames]
        settings: Any = {"positions": np.array(positions), "rotations": np.array(rotations)}
        settings["gravity"] = gravity if np.any(gravity) else None
        assembly = Assembly([x for x in self.masses if x is not None], self.joints, names=self.names, **settings)
        q0 = assembly.q()
        description = f"{len(self.frames)} rigid bodies and {len(self.joints)} joints of a file of {kind}"
        return Model(assembly, q0, np.zeros_like(q0), name, description, dt=dt, t_end=10.0)
