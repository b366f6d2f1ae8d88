"""Mass, centre of mass and inertia of points, solids and meshes.

    gm.rigid.inertia.box((1, 2, 3), density=2.0) + gm.rigid.inertia.sphere(0.5, mass=1.0).at((0, 0, 2))

All are computed by the second moments S = ∫ρ x xᵀ about the centre of mass, of which the inertia is I = tr(S) − S.
They are positive semidefinite where the principal moments of I satisfy the triangle inequalities.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..errors import InputError
from ..system.checks import as_array, positive, shown, vector
from ..system.checks import number as checked_number
from ..system.spaces import SO3
from .orientation import from_quaternion

TRIANGLE = 1e-9  # of the trace: how far the triangle inequalities may be missed by the rounding of printed numbers
UNIT = 1e-6  # how far the squared length of a quaternion may be from 1


@dataclasses.dataclass(frozen=True, eq=False)
class MassProperties:
    """A rigid body's mass, its centre of mass in the frame of the body, and its inertia about the centre of mass, with
    the axes of that frame. `a + b` is the body of both.

    mass:     a positive number.
    centre:   the centre of mass, in the frame of the body.
    inertia:  (3, 3), about the centre of mass.
    """

    mass: float
    centre: np.ndarray
    inertia: np.ndarray

    def __post_init__(self) -> None:
        mass = positive(self.mass, "mass", "MassProperties")
        centre = np.array(vector(self.centre, "centre", "MassProperties", size=3))
        inertia = checked_inertia(self.inertia, "MassProperties")
        for name, x in (("mass", float(mass)), ("centre", centre), ("inertia", inertia)):
            object.__setattr__(self, name, x)

    @property
    def second_moments(self) -> np.ndarray:
        """∫ρ x xᵀ about the centre of mass: ½ tr(I) − I."""
        return 0.5 * np.trace(self.inertia) * np.eye(3) - self.inertia

    def about(self, point: Any) -> np.ndarray:
        """The inertia about another point of the body."""
        off = np.array(vector(point, "point", "MassProperties.about", size=3)) - self.centre
        return self.inertia + self.mass * (off @ off * np.eye(3) - np.outer(off, off))

    def at(self, position: Any = (0.0, 0.0, 0.0), rotation: Any = None) -> MassProperties:
        """The body moved in its frame: x → rotation x + position. rotation is a matrix or a unit quaternion
        (w, x, y, z)."""
        turned = np.eye(3) if rotation is None else rotation_matrices(rotation, "rotation", "at")
        shift = np.array(vector(position, "position", "MassProperties.at", size=3))
        return MassProperties(self.mass, turned @ self.centre + shift, turned @ self.inertia @ turned.T)

    def __add__(self, other: MassProperties) -> MassProperties:
        if not isinstance(other, MassProperties):
            return NotImplemented
        mass = self.mass + other.mass
        centre = (self.mass * self.centre + other.mass * other.centre) / mass
        return MassProperties(mass, centre, self.about(centre) + other.about(centre))


def checked_inertia(inertia: Any, callee: str, name: str = "inertia") -> np.ndarray:
    """An inertia as a symmetric matrix: three principal moments, or a matrix that fits a body."""
    given = np.asarray(as_array(inertia, name, callee), float)
    if given.shape not in ((3,), (3, 3)):
        raise InputError(
            f"{callee}({name}=...): {name} must be three principal moments or a 3×3 matrix, not an array "
            f"of shape {given.shape}."
        )
    matrix = np.diag(given) if given.ndim == 1 else given
    if not np.all(np.isfinite(matrix)):
        raise InputError(f"{callee}({name}={shown(given.tolist())}): {name} must be finite.")
    if np.max(np.abs(matrix - matrix.T)) > 1e-12 * np.max(np.abs(matrix)):
        raise InputError(
            f"{callee}({name}=...): {name} must be symmetric; it differs from its transpose by "
            f"{np.max(np.abs(matrix - matrix.T)):.2g}."
        )
    matrix = 0.5 * (matrix + matrix.T)
    moments = np.linalg.eigvalsh(matrix)
    if moments[0] < -TRIANGLE * abs(moments[2]) or moments[0] + moments[1] < moments[2] * (1 - TRIANGLE):
        raise InputError(
            f"{callee}({name}=...): no body has the principal moments {_listed(moments)}: each must be at "
            "most the sum of the other two, and none negative."
        )
    return matrix


def _listed(moments: np.ndarray) -> str:
    return ", ".join(f"{x:.6g}" for x in moments)


def rotation_matrices(rotation: Any, name: str, callee: str) -> np.ndarray:
    """Rotations as matrices (…, 3, 3), from matrices or from unit quaternions (…, 4) = (w, x, y, z)."""
    given = np.asarray(as_array(rotation, name, callee), float)
    if given.shape[-2:] == (3, 3):
        SO3().check(given, f"{callee}({name}=...): {name}")
        return given
    if given.shape[-1:] != (4,):
        raise InputError(
            f"{callee}({name}=...): {name} must be matrices (…, 3, 3) or unit quaternions (…, 4) = (w, x, y, z), not "
            f"an array of shape {given.shape}."
        )
    off = float(np.max(np.abs(np.sum(given**2, axis=-1) - 1), initial=0.0))
    if off > UNIT:
        raise InputError(f"{callee}({name}=...): quaternions must have length 1; |e|² differs from 1 by {off:.2g}.")
    return from_quaternion(given)


# --- points and meshes ------------------------------------------------------------------------------------------------
def _of_moments(mass: float, first: np.ndarray, second: np.ndarray) -> MassProperties:
    """From ∫ρ, ∫ρ x and ∫ρ x xᵀ about the origin of the frame."""
    centre = first / mass
    about_centre = second - mass * np.outer(centre, centre)
    return MassProperties(mass, centre, np.trace(about_centre) * np.eye(3) - about_centre)


def points(positions: Any, masses: Any = 1.0) -> MassProperties:
    """Of point masses.

    positions:  (n, 3).
    masses:     one number for all, or one for each.
    """
    x = np.asarray(as_array(positions, "positions", "points"), float)
    if x.ndim != 2 or x.shape[1] != 3 or not len(x):
        raise InputError(f"points(positions=...): positions must have the shape (n, 3), not {x.shape}.")
    m = np.asarray(as_array(masses, "masses", "points"), float)
    if m.shape not in ((), (len(x),)) or not np.all(m > 0):
        raise InputError(f"points(masses=...): masses must be positive, one number or one for each of {len(x)} points.")
    m = np.broadcast_to(m, len(x))
    return _of_moments(float(np.sum(m)), m @ x, (x.T * m) @ x)


def tetrahedra(vertices: Any, cells: Any, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """Of a solid of tetrahedra.

    vertices:  (n, 3).
    cells:     (m, 4), the numbers of the vertices of each tetrahedron, in any order.
    mass:      of all of it; or
    density:   per volume.
    """
    corners = _corners(vertices, cells, 4, "tetrahedra")
    volumes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / 6
    return _of_tetrahedra(corners, volumes, mass, density, "tetrahedra")


def mesh(vertices: Any, triangles: Any, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """Of the solid inside a closed triangle mesh, whose triangles are all ordered alike, seen from outside.

    vertices:   (n, 3).
    triangles:  (m, 3), the numbers of the vertices of each.
    mass:       of all of it; or
    density:    per volume.
    """
    surface, listed = _corners(vertices, triangles, 3, "mesh"), np.asarray(triangles)
    edges = np.concatenate([listed[:, [0, 1]], listed[:, [1, 2]], listed[:, [2, 0]]])
    directed, reverse = (sorted(map(tuple, pairs)) for pairs in (edges.tolist(), edges[:, ::-1].tolist()))
    if directed != reverse:
        raise InputError(
            "mesh(triangles=...): the triangles do not close a surface, or are not all ordered alike: each "
            "edge must belong to two triangles, and run in opposite directions in them."
        )
    middle = np.mean(surface, axis=(0, 1))  # of a mesh far from the origin no digits are lost
    corners = np.concatenate([np.broadcast_to(middle, (len(surface), 1, 3)), surface], axis=1)
    volumes = np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6
    return _of_tetrahedra(corners, volumes * np.sign(np.sum(volumes)), mass, density, "mesh")


def _corners(vertices: Any, cells: Any, size: int, callee: str) -> np.ndarray:
    x = np.asarray(as_array(vertices, "vertices", callee), float)
    listed = np.asarray(cells)
    if x.ndim != 2 or x.shape[1] != 3 or listed.ndim != 2 or listed.shape[1] != size or not len(listed):
        raise InputError(
            f"{callee}: vertices must have the shape (n, 3) and cells (m, {size}), not {x.shape} and {listed.shape}."
        )
    if listed.dtype.kind not in "iu" or listed.min() < 0 or listed.max() >= len(x):
        raise InputError(f"{callee}: the numbers of vertices are whole numbers from 0 to {len(x) - 1}.")
    return x[listed]


def _of_tetrahedra(
    corners: np.ndarray, volumes: np.ndarray, mass: float | None, density: float | None, callee: str
) -> MassProperties:
    """∫x xᵀ over a tetrahedron is V/20 (Σ vᵢvᵢᵀ + (Σvᵢ)(Σvᵢ)ᵀ)."""
    volume = float(np.sum(volumes))
    total = _mass(mass, density, volume, callee)
    rho, origin = total / volume, corners[0, 0]
    off = corners - origin
    sums = np.sum(off, axis=1)
    first = volumes @ sums / 4
    second = np.einsum("t,tki,tkj->ij", volumes, off, off) + np.einsum("t,ti,tj->ij", volumes, sums, sums)
    found = _of_moments(total, rho * first, rho * second / 20)
    return MassProperties(found.mass, found.centre + origin, found.inertia)


# --- solids, about their centres --------------------------------------------------------------------------------------
def _mass(mass: float | None, density: float | None, volume: float, callee: str) -> float:
    if (mass is None) == (density is None):
        raise InputError(f"{callee}: give mass or density, one of them.")
    if mass is not None:
        return positive(mass, "mass", callee)
    if not volume > 0:
        raise InputError(f"{callee}(density=...): its volume is {volume:g}; give mass.")
    return positive(density, "density", callee) * volume


def _solid(mass: float, squares: Any) -> MassProperties:
    """From the mean squares of the coordinates about the centre."""
    second = mass * np.asarray(squares, float)
    return MassProperties(mass, np.zeros(3), np.diag(np.sum(second) - second))


def box(sizes: Any, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """A box about the origin.

    sizes:    its three whole lengths along the axes.
    mass:     of all of it; or
    density:  per volume.
    """
    lengths = np.array(_lengths(sizes, "sizes", "box"))
    return _solid(_mass(mass, density, float(np.prod(lengths)), "box"), lengths**2 / 12)


def ellipsoid(semi_axes: Any, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """An ellipsoid about the origin.

    semi_axes:  its three semi-axes.
    mass:       of all of it; or
    density:    per volume.
    """
    a = np.array(_lengths(semi_axes, "semi_axes", "ellipsoid"))
    return _solid(_mass(mass, density, 4 / 3 * np.pi * float(np.prod(a)), "ellipsoid"), a**2 / 5)


def sphere(radius: float, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """A full sphere about the origin.

    radius:   of the sphere.
    mass:     of all of it; or
    density:  per volume.
    """
    r = positive(radius, "radius", "sphere")
    return _solid(_mass(mass, density, 4 / 3 * np.pi * r**3, "sphere"), [r**2 / 5] * 3)


def cylinder(
    radius: float, length: float, *, mass: float | None = None, density: float | None = None
) -> MassProperties:
    """A cylinder about the origin, along z. Of length 0 it is a disc.

    radius:   of the cylinder.
    length:   the whole length along z.
    mass:     of all of it; or
    density:  per volume.
    """
    r, l = positive(radius, "radius", "cylinder"), checked_number(length, "length", "cylinder", least=0.0)
    return _solid(_mass(mass, density, np.pi * r**2 * l, "cylinder"), [r**2 / 4, r**2 / 4, l**2 / 12])


def capsule(radius: float, length: float, *, mass: float | None = None, density: float | None = None) -> MassProperties:
    """A cylinder about the origin, along z, with a half sphere at each end.

    radius:   of the cylinder and of the half spheres.
    length:   of the cylinder alone.
    mass:     of all of it; or
    density:  per volume.
    """
    r, l = positive(radius, "radius", "capsule"), checked_number(length, "length", "capsule", least=0.0)
    middle, ends = np.pi * r**2 * l, 4 / 3 * np.pi * r**3
    across = (middle * r**2 / 4 + ends * r**2 / 5) / (middle + ends)
    # A half sphere on its face: mean height 3r/8, mean square of the height r²/5.
    along = (middle * l**2 / 12 + ends * (r**2 / 5 + 3 * r * l / 8 + l**2 / 4)) / (middle + ends)
    return _solid(_mass(mass, density, middle + ends, "capsule"), [across, across, along])


def rod(length: float, *, mass: float) -> MassProperties:
    """A thin rod about the origin, along z. Its turning about its own axis has no meaning.

    length:  of the rod.
    mass:    of the rod.
    """
    return _solid(positive(mass, "mass", "rod"), [0.0, 0.0, positive(length, "length", "rod") ** 2 / 12])


def _lengths(x: Any, name: str, callee: str) -> tuple[float, ...]:
    found = vector(x, name, callee, size=3)
    if not all(length > 0 for length in found):
        raise InputError(f"{callee}({name}={shown(x)}): {name} must be positive.")
    return found
