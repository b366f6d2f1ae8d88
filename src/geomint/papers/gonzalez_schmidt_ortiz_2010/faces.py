"""When bodies intersect (section 5.2, figure 9): the three kinds of pairs of faces, and the penalty (71), (72).

A pair of faces that intersect has a common segment. Each of its ends lies on an edge of one of the two faces: both on
edges of the first, both on edges of the second, or one on an edge of each. V = 1/(2ε) Σ |A − B|² over all pairs is
compared with the same sum in rational arithmetic, written independently of the library.
"""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ...fem import Mesh, PenaltyContact
from ...fem.contact import intersections
from ...numerics.compilation import jit
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON = 0.125
# Of segments with none, one and two ends on edges of the first body.
KINDS = (
    ("C3", "both ends on edges of the gray face"),
    ("C1", "one on an edge of each"),
    ("C2", "both on the blue face"),
)
ONE = np.array([[-1, -1, 0], [2, -1, 0], [-1, 2, 0], [0, 0, -2]])
# The second body in its three positions: coordinates are binary fractions, so that floating-point numbers hold them.
BODIES = {
    "a vertex in a face": np.array([[1, 2, -6], [-8, -4, 20], [9, 3, 18], [1, 15, 19]]) / 16,
    "an edge across an edge": np.array([[7, 7, 10], [7, 8, -11], [24, 14, 2], [14, 26, -2]]) / 16,
    "an edge through two faces": np.array([[-20, 4, -7], [34, 5, -9], [1, -9, 30], [3, 11, 31]]) / 16,
}


class Common(NamedTuple):
    """The common segment of two faces."""

    ends: list[list[Fraction]]
    first: int  # of the ends lie on edges of the first face


def dot(x: Any, y: Any) -> Any:
    return sum(a * b for a, b in zip(x, y, strict=True))


def minus(x: Any, y: Any) -> list[Any]:
    return [a - b for a, b in zip(x, y, strict=True)]


def cross(x: Any, y: Any) -> list[Any]:
    return [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]


def pierced(face: Any, other: Any) -> list[list[Fraction]]:
    """The points in which edges of a face pierce the other one."""
    a, b, c = other
    normal, found = cross(minus(b, a), minus(c, a)), []
    for p, q in itertools.pairwise([*face, face[0]]):
        above, below = dot(normal, minus(p, a)), dot(normal, minus(q, a))
        if above * below < 0:
            x = [s + (t - s) * above / (above - below) for s, t in zip(p, q, strict=True)]
            sides = [dot(cross(minus(v, u), minus(x, u)), normal) for u, v in ((a, b), (b, c), (c, a))]
            found += [x] if min(sides) > 0 else []
    return found


def common_segments(mesh: Mesh) -> list[Common]:
    """The common segments of all pairs of boundary faces without a common node, in rational arithmetic."""
    nodes = [[Fraction(float(x)) for x in node] for node in mesh.nodes]
    faces = [[nodes[k] for k in face] for face in mesh.boundary_faces]
    found = []
    for (f, one), (g, other) in itertools.combinations(zip(mesh.boundary_faces, faces, strict=True), 2):
        if not set(f) & set(g):
            first, second = pierced(one, other), pierced(other, one)
            if len(first) + len(second) == 2:
                found.append(Common([*first, *second], len(first)))
    return found


def two_bodies(second: np.ndarray) -> Mesh:
    meshes = [Mesh(np.array(x, float), np.arange(4)[None], orient=True) for x in (ONE, second)]
    return Mesh.union(meshes)


@functools.cache
def values() -> Any:
    return jit(jax.value_and_grad(lambda contact, x: contact(x), argnums=1), static_argnums=0)


@experiment(
    PAPER,
    "intersecting-faces",
    "Bodies that intersect: the penalty is the sum over the common segments of all pairs of faces, in every position",
    "Figure 9, (71) and (72)",
)
def intersecting_faces(quick: bool) -> Outcome:
    """Two tetrahedra in three positions."""
    checks, found = [], {}
    for name, second in BODIES.items():
        mesh = two_bodies(second)
        found[name] = common_segments(mesh)
        checks += position_checks(name, mesh, found[name])
    kinds = [sum(x.first == first for segments in found.values() for x in segments) for first in range(3)]
    checks.append(
        Check(
            "kinds of pairs: on edges of one face, of each, or of the other, that occur",
            sum(count > 0 for count in kinds),
            (3, 3),
            paper="three types of intersections",
            where="Fig. 9",
            note=f"{kinds[0]}, {kinds[1]} and {kinds[2]} pairs; the text does not say which types are meant",
        )
    )
    return Outcome(checks, draw(found), parameters={"ε": EPSILON})


def position_checks(name: str, mesh: Mesh, segments: list[Common]) -> list[Check]:
    contact = PenaltyContact(mesh, EPSILON)
    energy, force = values()(contact, mesh.nodes)
    exact = sum((dot(d, d) for d in (minus(*x.ends) for x in segments)), Fraction(0)) / Fraction(2 * EPSILON)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    moved, _ = values()(contact, mesh.nodes @ turn.T * np.sign(np.linalg.det(turn)) + [0.3, -0.2, 0.7])
    torque = np.sum(np.cross(mesh.nodes, force), axis=0)
    largest = np.abs(force).max()
    apart, _ = values()(contact, mesh.nodes + 9.0 * mesh.bodies[:, None])
    sums: dict[str, Any] = {"paper": "A and B the ends of the intersection", "where": "(72)"}
    invariant: dict[str, Any] = {
        "paper": "invariant under translations and rotations",
        "where": "section 5.2, below (72)",
    }
    return [
        Check(
            f"{name}: intersecting pairs of faces, less those in rational arithmetic",
            intersections(contact, mesh.nodes) - len(segments),
            (0, 0),
            paper="in C if no pair of element faces intersect",
            where="section 5.2",
            note=f"{len(segments)} pairs",
        ),
        Check(
            f"{name}: V, relative difference to rational arithmetic",
            abs(energy / float(exact) - 1),
            (None, 1e-14),
            **sums,
        ),
        Check(
            f"{name}: relative change of V by a rotation and a translation",
            abs(moved / energy - 1),
            (None, 1e-13),
            **invariant,
        ),
        Check(
            f"{name}: sum of all forces and torques, over the largest force",
            max(np.abs(np.sum(force, axis=0)).max(), np.abs(torque).max()) / largest,
            (None, 1e-13),
            paper="retains its energy and momentum preserving properties",
            where="section 5.2, below (72)",
        ),
        Check(f"{name}: V of the bodies moved apart", float(apart), (0, 0), paper="0 over C", where="section 5.2"),
    ]


def draw(found: dict[str, list[Common]]) -> Figure:
    """The faces that intersect, and their common segments."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    from ...plots.figures import new_figure

    figure = new_figure(12.0, 4.4)
    for k, (name, segments) in enumerate(found.items()):
        axes = figure.add_subplot(1, 3, 1 + k, projection="3d")
        for mesh, color in ((ONE, "C0"), (BODIES[name], "C7")):
            faces = [[mesh[i] for i in face] for face in itertools.combinations(range(4), 3)]
            axes.add_collection3d(Poly3DCollection(faces, facecolors=color, edgecolors=color, alpha=0.12, lw=0.8))
        for x in segments:
            ends = np.array([[float(c) for c in end] for end in x.ends])
            axes.plot(*ends.T, "o-", color=KINDS[x.first][0], ms=3, lw=2)
        points = np.concatenate([ONE, BODIES[name]])
        for axis, low, high in zip("xyz", points.min(0), points.max(0), strict=True):
            getattr(axes, f"set_{axis}lim")(low, high)
        axes.set_aspect("equal")
        axes.view_init(elev=18, azim=-50)
        axes.set_axis_off()
        axes.set_title(f"{name}: {len(segments)} pairs")
    lines = [figure.axes[0].plot([], [], [], "o-", color=color, ms=3, lw=2)[0] for color, _ in KINDS]
    figure.legend(lines, [label for _, label in KINDS], loc="lower center", ncols=3, frameon=False)
    return figure
