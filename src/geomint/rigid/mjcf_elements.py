"""Elements of MJCF: defaults, orientations, and the inertias of geoms."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from . import inertia
from .inertia import MassProperties, rotation_matrices
from .trees import Frame
from .xml_files import File, described

ORIENTATIONS = ("quat", "axisangle", "xyaxes", "zaxis", "euler")
COMPILER_HARMLESS = {
    *("autolimits", "angle", "eulerseq", "inertiafromgeom", "inertiagrouprange", "coordinate", "strippath", "meshdir"),
    *("assetdir", "texturedir", "discardvisual", "usethread", "fusestatic", "alignfree", "saveinertial", "fitaabb"),
}
OPTION_HARMLESS = {
    *("timestep", "gravity", "integrator", "cone", "jacobian", "solver", "iterations", "tolerance", "ls_iterations"),
    *("ls_tolerance", "noslip_iterations", "noslip_tolerance", "ccd_iterations", "ccd_tolerance", "sdf_iterations"),
    *("sdf_initpoints", "impratio", "o_margin", "o_solref", "o_solimp", "o_friction", "actuatorgroupdisable"),
    *("magnetic", "apirate", "wind", "density", "viscosity", "sleep_tolerance"),
}
FLAGS_HARMLESS = {
    *(
        "contact",
        "gravity",
        "limit",
        "frictionloss",
        "damper",
        "spring",
        "passive",
        "actuation",
        "clampctrl",
        "warmstart",
    ),
    *("filterparent", "refsafe", "sensor", "midphase", "eulerdamp", "autoreset", "nativeccd", "energy", "fwdinv"),
    *("invdiscrete", "multiccd", "island", "override", "sleep"),
}


GEOM = {
    *("name", "class", "type", "contype", "conaffinity", "condim", "group", "priority", "size", "material", "rgba"),
    *("friction", "mass", "density", "shellinertia", "solmix", "solref", "solimp", "margin", "gap", "fromto", "pos"),
    *("hfield", "mesh", "fitscale", "fluidshape", "fluidcoef", "user", *ORIENTATIONS),
}


class Elements:
    """What the elements of a file have in common: the settings of the compiler, and the defaults."""

    def __init__(self, file: File, root: Element):
        self.file, self.root = file, root
        self.settings: dict[str, str] = {}
        for compiler in root.findall("compiler"):
            file.check_attributes(compiler, COMPILER_HARMLESS, {"boundmass", "boundinertia", "settotalmass"})
            self.settings |= compiler.attrib
            for name in ("boundmass", "boundinertia"):
                if file.number(compiler, name, 0.0) > 0:
                    file.refuse(name, described(compiler))
            if file.number(compiler, "settotalmass", -1.0) > 0:
                file.refuse("settotalmass", described(compiler))
        if self.settings.get("coordinate", "local") != "local":
            raise file.error("coordinate='global' is not covered; MuJoCo itself has removed it.")
        self.degrees = self.settings.get("angle", "degree") != "radian"
        self.auto_limits = self.settings.get("autolimits", "true") == "true"
        from_geoms = self.settings.get("inertiafromgeom", "auto")
        self.always_from_geoms, self.never_from_geoms = from_geoms == "true", from_geoms == "false"
        groups = file.numbers(Element("compiler", self.settings), "inertiagrouprange", (0, 5), 2)
        self.groups = range(int(groups[0]), int(groups[1]) + 1)
        self.classes: dict[str, dict[str, dict[str, str]]] = {"main": {}}
        for default in root.findall("default"):
            self._read_defaults(default, default.get("class", "main"), {})

    def _read_defaults(self, element: Element, name: str, above: dict[str, dict[str, str]]) -> None:
        own = copy.deepcopy(above)
        for child in element:
            if child.tag != "default":
                own.setdefault(child.tag, {}).update(child.attrib)
        self.classes[name] = own
        if element is not None and above == {} and name != "main":
            self.classes["main"] = own  # the root may carry a name of its own
        for child in element:
            if child.tag == "default":
                if child.get("class") is None:
                    raise self.file.error("a default inside another one needs a class.")
                self._read_defaults(child, child.get("class", ""), own)

    def filled(self, element: Element, style: str) -> Element:
        """An element with the attributes of its class."""
        name = element.get("class", style)
        if name not in self.classes:
            raise self.file.error(f"{described(element)}: there is no class {name!r}.")
        full = copy.copy(element)
        own = dict(element.attrib)
        defaults = self.classes[name].get(element.tag, {})
        if any(x in own for x in ORIENTATIONS):
            defaults = {key: x for key, x in defaults.items() if key not in ORIENTATIONS}
        full.attrib = {**defaults, **own}
        return full

    # --- options ----------------------------------------------------------------------------------------------------
    @property
    def contacts(self) -> bool:
        """Whether contacts are simulated."""
        return self._flag("contact") and self._flag("constraint")

    def _flag(self, name: str) -> bool:
        return all(flag.get(name, "enable") != "disable" for flag in self.root.findall("option/flag"))

    def gravity(self) -> np.ndarray:
        g = np.array([0.0, 0.0, -9.81])
        for option in self.root.findall("option"):
            g = self.file.numbers(option, "gravity", g, 3)
            self.file.check_attributes(option, OPTION_HARMLESS)
            self.file.check_children(option, {"flag"})
            for name in ("density", "viscosity"):
                if self.file.number(option, name, 0.0):
                    self.file.refuse(name, described(option))
        for flag in self.root.findall("option/flag"):
            for name in ("equality", "constraint"):
                if flag.get(name) == "disable":
                    self.file.refuse("flag", f"{name}='disable'")
            self.file.check_attributes(flag, FLAGS_HARMLESS, {"equality", "constraint"})
        return g if self._flag("gravity") else np.zeros(3)

    def timestep(self) -> float:
        steps = [self.file.number(option, "timestep", 0.002) for option in self.root.findall("option")]
        if steps and not steps[-1] > 0:
            raise self.file.error(f"<option>: timestep={steps[-1]:g} must be positive.")
        return steps[-1] if steps else 0.002

    # --- orientations -----------------------------------------------------------------------------------------------
    def frame(self, element: Element) -> Frame:
        """The frame of a body, a geom, an inertial element or a frame."""
        return Frame(self.orientation(element), self.file.numbers(element, "pos", (0, 0, 0), 3))

    def orientation(self, element: Element) -> np.ndarray:
        given = [name for name in ORIENTATIONS if name in element.attrib]
        if not given:
            return np.eye(3)
        if len(given) > 1:
            raise self.file.error(f"{described(element)} has several orientations: {', '.join(given)}.")
        kind = given[0]
        x = self.file.numbers(element, kind, size={"quat": 4, "axisangle": 4, "xyaxes": 6}.get(kind, 3))
        try:
            return getattr(self, f"_{kind}")(x)
        except (ValueError, ZeroDivisionError):
            raise self.file.error(f"{described(element)}: {kind}={element.get(kind)!r} is no orientation.") from None

    def _angle(self, x: Any) -> Any:
        return np.deg2rad(x) if self.degrees else x

    def _quat(self, x: np.ndarray) -> np.ndarray:
        return rotation_matrices(_unit(x), "quat", "from_mjcf")

    def _axisangle(self, x: np.ndarray) -> np.ndarray:
        return rotations().from_rotvec(_unit(x[:3]) * self._angle(x[3])).as_matrix()

    def _euler(self, x: np.ndarray) -> np.ndarray:
        # Lower case: about axes that turn with the body, as scipy's upper case; and the other way round.
        return rotations().from_euler(self.settings.get("eulerseq", "xyz").swapcase(), self._angle(x)).as_matrix()

    def _xyaxes(self, x: np.ndarray) -> np.ndarray:
        first = _unit(x[:3])
        second = _unit(x[3:] - (x[3:] @ first) * first)
        return np.stack([first, second, np.cross(first, second)], axis=1)

    def _zaxis(self, x: np.ndarray) -> np.ndarray:
        return turning_z_to(x)

    # --- geoms ------------------------------------------------------------------------------------------------------
    def collides(self, geom: Element, style: str) -> bool:
        full = self.filled(geom, style)
        return any(full.get(name, "1").strip() != "0" for name in ("contype", "conaffinity"))


def _unit(x: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(x))
    if length == 0:
        raise ValueError
    return x / length


def rotations() -> Any:
    """The rotations of scipy, imported when a file is read: it takes a tenth of a second."""
    from scipy.spatial.transform import Rotation

    return Rotation


def turning_z_to(direction: np.ndarray) -> np.ndarray:
    """The smallest rotation that turns the z axis to a direction."""
    z = _unit(direction)
    across = np.cross([0.0, 0.0, 1.0], z)
    sine = np.linalg.norm(across)
    if sine < 1e-14:
        return np.diag([1.0, np.sign(z[2]), np.sign(z[2])])
    return rotations().from_rotvec(across / sine * np.arctan2(sine, z[2])).as_matrix()


def colliding(file: File, geoms: Sequence[tuple[Element, int | None, int | None]]) -> bool:
    """Whether two of the geoms (element, body, the body above it) may touch: not in one body, nor in a body and the one
    above it, unless that is the world."""
    groups: dict[tuple[int | None, int | None, int, int], None] = {}
    for geom, body, above in geoms:
        groups[body, above, file.whole(geom, "contype", 1), file.whole(geom, "conaffinity", 1)] = None
    listed = list(groups)
    for k, (body, above, kind, affinity) in enumerate(listed):
        for other, other_above, other_kind, other_affinity in listed[:k]:
            parent_and_child = (body == other_above and body is not None) or (other == above and other is not None)
            if body != other and not parent_and_child and (kind & other_affinity or other_kind & affinity):
                return True
    return False


def inertial_mass(elements: Elements, element: Element) -> MassProperties | None:
    """Of an inertial element."""
    file = elements.file
    file.check_attributes(element, {"pos", "mass", "diaginertia", "fullinertia", *ORIENTATIONS})
    mass = file.number(element, "mass")
    if mass is None:
        raise file.error(f"{described(element)} needs a mass.")
    diagonal, full = file.numbers(element, "diaginertia", size=3), file.numbers(element, "fullinertia", size=6)
    if (diagonal is None) == (full is None):
        raise file.error(f"{described(element)} needs diaginertia or fullinertia, one of them.")
    matrix = np.diag(diagonal) if full is None else full[[[0, 3, 4], [3, 1, 5], [4, 5, 2]]]
    if mass == 0 and not np.any(matrix):
        return None
    frame = elements.frame(element)
    return checked(file, element, lambda: MassProperties(mass, np.zeros(3), matrix).at(frame.position, frame.rotation))


def checked(file: File, element: Element, make: Any) -> Any:
    """What a function of inertia.py makes; its error names the element."""
    try:
        return make()
    except ValueError as error:
        raise file.error(f"{described(element)}: {error}") from None


def geom_mass(elements: Elements, geom: Element) -> MassProperties | None:
    """Of a geom, in the frame of its body; None for one without mass."""
    file, kind = elements.file, geom.get("type", "sphere")
    file.check_attributes(geom, GEOM)
    given = file.number(geom, "mass")
    density = file.number(geom, "density", 1000.0)
    if file.whole(geom, "group", 0) not in elements.groups or given == 0 or (given is None and density == 0):
        return None
    if kind == "plane":
        return None
    if kind not in SOLIDS or geom.get("mesh") is not None:
        file.refuse("geom", f"the inertia of {described(geom)} of type {kind}: give the body an inertial element")
        return None
    if geom.get("shellinertia") == "true":
        file.refuse("shellinertia", described(geom))
    size, frame = file.numbers(geom, "size"), elements.frame(geom)
    ends = file.numbers(geom, "fromto", size=6)
    if ends is not None:
        along = ends[3:] - ends[:3]
        if not np.any(along):
            raise file.error(f"{described(geom)}: the two ends of fromto={geom.get('fromto')!r} coincide.")
        frame = Frame(turning_z_to(along), 0.5 * (ends[:3] + ends[3:]))
        half = 0.5 * np.linalg.norm(along)
        if kind == "sphere" or size is None:
            raise file.error(f"{described(geom)}: fromto needs a type other than sphere, and a size.")
        size = np.array([size[0], half] if kind in ("capsule", "cylinder") else [size[0], size[0], half])
    needed, make = SOLIDS[kind]
    if size is None or len(size) < needed:
        raise file.error(f"{described(geom)}: a {kind} needs {needed} numbers as its size.")
    amount = {"density": density} if given is None else {"mass": given}
    return checked(file, geom, lambda: make(size, amount).at(frame.position, frame.rotation))


SOLIDS: dict[str, tuple[int, Any]] = {
    "sphere": (1, lambda size, amount: inertia.sphere(size[0], **amount)),
    "capsule": (2, lambda size, amount: inertia.capsule(size[0], 2 * size[1], **amount)),
    "cylinder": (2, lambda size, amount: inertia.cylinder(size[0], 2 * size[1], **amount)),
    "ellipsoid": (3, lambda size, amount: inertia.ellipsoid(size[:3], **amount)),
    "box": (3, lambda size, amount: inertia.box(2 * size[:3], **amount)),
}
