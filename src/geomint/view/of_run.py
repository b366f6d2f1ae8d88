"""The scene of a run: which points its coordinates are, what joins them, and which part of the run is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..fem.elastic import elastic_body
from ..numerics.keywords import checked_keywords
from ..plots.figures import envelope
from ..plots.motion import is_space, q_shape
from ..system.calls import FAILURES
from ..system.checks import choice, function, whole
from ..system.checks import shown as named
from ..system.constraints import Distances, RigidMolecules
from .bodies import boxes_of_assembly, boxes_of_poses, faces_of_body
from .pictures import HANGING, PICTURES
from .scene import Page, Scene

FRAMES = 600  # of an animation
NUMBERS = 3_000_000  # positions × frames: a file of 8 MB
SMOOTH = 0.15  # of the extent that a point may move from frame to frame; a longer stride shows another motion
TRAIL, TRAILED = 60, 60  # frames of the past that are drawn as paths, and up to how many points
SERIES = 4  # quantities over time
MEMBERS = 2000  # of an ensemble that are shown
# Colours of viewer.js, and radii in ångströms (about a third of van der Waals radii), by element.
ELEMENTS = {
    "H": (7, 0.35),
    "O": (1, 0.5),
    "C": (6, 0.5),
    "N": (0, 0.5),
    "Na": (9, 0.6),
    "Cl": (2, 0.7),
    "Ar": (5, 0.65),
}


class Points(NamedTuple):
    """The coordinates of a run as points."""

    of: Callable[[np.ndarray], np.ndarray]  # q (frames, …) → (frames, points, 2 or 3)
    bonds: Sequence[tuple[int, int]] = ()
    fixed: Sequence[Sequence[float]] = ()
    colors: Sequence[int] | None = None
    radii: Any = None
    names: Mapping[str, int] = {}
    triangles: Any = ()
    box: Any = None
    dots: bool = True
    paths: bool = True
    note: str = ""
    completed: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None  # (points, t): with nodes that are held

    def at(self, run: Any, frames: np.ndarray) -> np.ndarray:
        """(frames, points, 2 or 3), of a single run."""
        x = self.of(np.asarray(run.q[frames]))
        return x if self.completed is None else self.completed(x, np.asarray(run.t[frames]))


@checked_keywords(callee="view")
def scene_of(
    run: Any,
    *,
    positions: Callable[..., Any] | None = None,
    bonds: Sequence[tuple[int, int]] | None = None,
    labels: Sequence[str] | None = None,
    frames: int | None = None,
    up: str | None = None,
) -> Scene:
    """The scene of a run.

    positions: q of one saved point -> points (n, 2) or (n, 3), or one point; by default what the system says:
               particles, or for known models their parts
    bonds:     pairs of points that a line joins; by default those of gm.Distances and gm.RigidMolecules
    labels:    names of the points
    frames:    at most so many; by default 600
    up:        the axis that points upwards in space, "z" or "y"; by default "z", and "y" for models that hang along it
    """
    if not len(run.t) or "q" not in run.columns:
        raise InputError("there is nothing to show: the run has no saved positions.")
    most = FRAMES if frames is None else whole(frames, "frames", "view", least=2, most=100_000)
    points = _points(run) if positions is None else _by_function(positions)
    if bonds is not None:
        points = points._replace(bonds=_pairs(bonds))
    if run.members:  # of which only points are shown, in the colour of their member
        points = points._replace(
            bonds=(), fixed=(), colors=None, radii=None, names={}, triangles=(), dots=True, completed=None
        )
    chosen = _frames(run, points, most)
    x = _placed(run, points, chosen)
    origin = getattr(run.system, "origin", None) or "a system"
    above = choice(up or HANGING.get(origin.partition("(")[0], "z"), "up", "view", ("y", "z"))
    x, fixed = (_upright(y, above) for y in (x, np.reshape(np.asarray(points.fixed, float), (-1, x.shape[-1]))))
    points = _labelled(points, labels, x.shape[1])
    trail = TRAIL if points.paths and x.shape[1] <= TRAILED else 0
    t = np.asarray(run.t)
    part = f", shown up to t = {t[chosen[-1]]:g} of {t[-1]:g}" if len(t) - 1 - chosen[-1] >= chosen[1] else ""
    known = x.shape[1]
    colors = points.colors if points.colors is not None else (range(known) if known <= TRAILED else [0] * known)
    return Scene(
        t[chosen],
        x,
        bonds=points.bonds,
        triangles=points.triangles,
        fixed=fixed,
        colors=tuple(colors),
        radii=points.radii,
        names=points.names,
        series=_series(run),
        box=points.box,
        trail=trail,
        dots=points.dots,
        title=f"{origin}",
        subtitle=f"{run.method.name}, dt = {run.grid.dt:g}, {len(t)} saved points{part}{points.note}",
    )


# --- which points -----------------------------------------------------------------------------------------------------
def _by_function(positions: Callable[..., Any]) -> Points:
    function(positions, "positions", "view")

    def of(q: np.ndarray) -> np.ndarray:
        x = np.stack([_points_at(positions, each) for each in q])
        return x[:, None] if x.ndim == 2 else x

    return Points(of)


def _points_at(positions: Callable[..., Any], q: np.ndarray) -> np.ndarray:
    try:
        x = np.asarray(positions(q), float)
    except FAILURES as error:
        told = f"{type(error).__name__} for q of shape {q.shape}: {error}"
        raise InputError(f"view(positions=...): the function raised {told}") from error
    if x.ndim not in (1, 2) or x.shape[-1] not in (2, 3):
        raise InputError(
            f"view(positions=...): the function must return points (n, 2) or (n, 3), or one point, not an array of "
            f"shape {x.shape}."
        )
    return x


def _pairs(bonds: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs: Any = np.asarray(bonds)
    except ValueError:  # of different lengths
        pairs = np.asarray(None)
    if pairs.size == 0:
        return ()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError(f"view(bonds=...): bonds must be pairs of numbers of points, [(0, 1), …], not {named(bonds)}.")
    return tuple((int(i), int(j)) for i, j in pairs)


def _points(run: Any) -> Points:
    """What the system says about its coordinates."""
    system, shape = run.system, q_shape(run)
    name = (getattr(system, "origin", None) or "").partition("(")[0]
    if name in PICTURES and not _is_plane(run):
        return Points(**PICTURES[name])
    boxes = boxes_of_assembly(system) or boxes_of_poses(run, shape)
    if boxes is not None:
        return Points(**boxes, dots=False, paths=False)
    if _are_rotations(run, shape):
        return _axes_of_bodies(shape)
    if is_space(run):
        return _particles(system, shape)
    n = math.prod(shape)
    if _is_plane(run):
        return Points(lambda q: q.reshape(len(q), 1, 1), paths=False, note="; q to the right, p upwards")
    note = "; points side by side, their coordinates as heights"
    along = np.arange(n) - (n - 1) / 2
    of = lambda q: np.stack([np.broadcast_to(along, (len(q), n)), q.reshape(len(q), n)], axis=-1)
    return Points(of, bonds=tuple((k, k + 1) for k in range(n - 1)), paths=False, note=note)


def _are_rotations(run: Any, shape: tuple[int, ...]) -> bool:
    """Whether q is a rotation matrix, or one for each body: as the first saved point shows."""
    if shape[-2:] != (3, 3) or run.members:
        return False
    first = np.asarray(run.q[0], float)
    return bool(np.max(np.abs(np.swapaxes(first, -1, -2) @ first - np.eye(3))) < 1e-6)


def _particles(system: Any, shape: tuple[int, ...]) -> Points:
    n, d = math.prod(shape[:-1]), shape[-1]
    found = Points(lambda q: q.reshape(len(q), n, d))
    constraint = getattr(system, "constraint", None)
    if isinstance(constraint, Distances):
        count = n
        place = lambda k: k if k >= 0 else count - 1 - k  # −1, −2, … are fixed points
        pairs = zip(constraint.first, constraint.second, strict=True)
        fixed = tuple((0.0,) * d if point is None else tuple(point) for point in constraint.fixed)
        found = found._replace(bonds=tuple((place(i), place(j)) for i, j in pairs), fixed=fixed)
    elif isinstance(constraint, RigidMolecules) and len(shape) == 3:
        starts = range(0, n, shape[1])
        found = found._replace(bonds=tuple((a + i, a + j) for a in starts for i, j in constraint.pairs), paths=False)
    atoms = getattr(system, "atoms", None)
    if atoms is not None:
        found = _as_atoms(found, atoms, n)
    elastic = elastic_body(system)
    return found if elastic is None else found._replace(**faces_of_body(elastic), dots=False, paths=False)


def _as_atoms(found: Points, atoms: Any, n: int) -> Points:
    """Colours and radii by element, and the box."""
    symbols = [atoms.symbols[k % len(atoms.symbols)] for k in range(n)]
    kinds = sorted(set(symbols))
    unknown = {s: k for k, s in enumerate(s for s in kinds if s not in ELEMENTS)}
    colors = [ELEMENTS[s][0] if s in ELEMENTS else 2 + unknown[s] for s in symbols]
    length = getattr(atoms.scales, "length", 1.0)
    radii = [ELEMENTS.get(s, (0, 0.5))[1] / length for s in symbols]
    reduced = atoms.units is None or atoms.units.name == "reduced"
    box = None
    if atoms.box is not None:
        lengths = np.asarray(atoms.box.lengths, float)
        box = (0 * lengths, lengths)
    names = {} if kinds == ["X"] else {s: colors[symbols.index(s)] for s in kinds}
    bonds = tuple((i, j) for i, j in found.bonds if not symbols[i] == symbols[j] == "H")  # held, but not bound
    return found._replace(
        bonds=bonds, colors=colors, radii=None if reduced else radii, names=names, box=box, paths=box is None
    )


def _axes_of_bodies(shape: tuple[int, ...]) -> Points:
    """Rotation matrices: the three axes of each body from a hinge, side by side."""
    bodies = math.prod(shape[:-2])
    centres = np.stack([3.0 * np.arange(bodies), np.zeros(bodies), np.zeros(bodies)], axis=1)

    def of(q: np.ndarray) -> np.ndarray:
        matrices = q.reshape(len(q), bodies, 3, 3)
        return (np.swapaxes(matrices, -1, -2) + centres[:, None]).reshape(len(q), 3 * bodies, 3)

    bonds = tuple((3 * b + k, 3 * bodies + b) for b in range(bodies) for k in range(3))
    names = {f"axis {k + 1} of the body": k for k in range(3)}
    return Points(of, bonds, centres.tolist(), colors=[0, 1, 2] * bodies, names=names)


def _placed(run: Any, points: Points, chosen: np.ndarray) -> np.ndarray:
    """The points in the chosen frames, (frames, points, 2 or 3); those of an ensemble's members one after another."""
    if not run.members:
        x = points.at(run, chosen)
        return x if points.box is None else _wrapped(x, points.box[1], q_shape(run))
    members = np.unique(np.linspace(0, len(run.q) - 1, min(len(run.q), MEMBERS)).astype(int))
    if _is_plane(run):
        q, p = (np.asarray(x)[members][:, chosen].reshape(len(members), -1).T for x in (run.q, run.p))
        return np.stack([q, p], axis=-1)
    return np.concatenate([points.of(np.asarray(run.q[m][chosen])) for m in members], axis=1)


def _upright(x: np.ndarray, up: str) -> np.ndarray:
    """Positions in space with the axis `up` as the third one."""
    return np.stack([x[..., 0], -x[..., 2], x[..., 1]], axis=-1) if x.shape[-1] == 3 and up == "y" else x


def _is_plane(run: Any) -> bool:
    """Whether an ensemble is shown in the plane of q and p: where each member has one coordinate."""
    return run.members and math.prod(q_shape(run)) == 1


def _wrapped(x: np.ndarray, lengths: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Particles in their box; molecules (n, atoms, d) as a whole, by their first atom."""
    atoms = shape[1] if len(shape) == 3 else 1
    grouped = x.reshape(len(x), -1, atoms, x.shape[-1])
    return (grouped - np.floor(grouped[:, :, :1] / lengths) * lengths).reshape(x.shape)


def _labelled(points: Points, labels: Sequence[str] | None, count: int) -> Points:
    if labels is None:
        return points
    if isinstance(labels, str) or len(labels) != count:
        raise InputError(f"labels must be {count} names, those of the points.")
    colors = list(range(count)) if points.colors is None else list(points.colors)
    return points._replace(names={str(name): colors[k] for k, name in enumerate(labels)}, colors=colors)


# --- which frames -----------------------------------------------------------------------------------------------------
def _frames(run: Any, points: Points, most: int) -> np.ndarray:
    """The saved points that are shown: all, or with a stride at which the motion can still be followed; then only the
    first part of a long run."""
    saved = len(run.t)
    per_frame = max(1, math.prod(run.q.shape) // saved)
    count = max(2, min(most, saved, NUMBERS // per_frame))
    stride = max(1, -(-saved // count))
    while stride > 1 and _jump(run, points, stride) > SMOOTH:
        stride = max(1, stride // 2)
    return np.arange(0, saved, stride)[:count]


def _jump(run: Any, points: Points, stride: int) -> float:
    """How far points typically move in a stride, relative to the extent of the motion."""
    starts = np.unique(np.linspace(0, len(run.t) - 1 - stride, 24).astype(int))
    at = (lambda k: points.of(np.asarray(run.q[0][k]))) if run.members else (lambda k: points.at(run, k))
    a, b = at(starts), at(starts + stride)
    extent = max(1e-300, float(np.max(np.ptp(np.concatenate([a, b]).reshape(-1, a.shape[-1]), axis=0))))
    return float(np.quantile(np.linalg.norm(b - a, axis=-1), 0.9)) / extent


# --- quantities over time ---------------------------------------------------------------------------------------------
def _series(run: Any) -> dict[str, tuple[Any, Any]]:
    """The energy error, watched quantities and the constraint residual; of an ensemble those of its first member."""
    pick = (lambda x: np.asarray(x)[0]) if run.members else np.asarray
    t, found = np.asarray(run.t), {}
    if "energy" in run.columns:
        exchanged = [name for name in ("work", "heat") if name in run.columns]
        title = "energy error" if not exchanged else "error of energy − " + " − ".join(exchanged)
        found[title] = pick(run.balance_error)
        found["kinetic energy"] = pick(run.kinetic) if run.system is not None else None
    for name, values in run.watched.items():
        if pick(values).ndim == 1:
            found[name] = pick(values)
    if run.constraint_residual.shape[-1]:
        found["max |g(q)|"] = np.max(np.abs(pick(run.constraint_residual)), axis=-1)
    kept = [(name, y) for name, y in found.items() if y is not None][:SERIES]
    return {name: envelope(t, y, 1200) for name, y in kept}


def shown(run: Any, path: Any, **settings: Any) -> Page:
    """run.view: the page, written where a path is given, and opened at Python's prompt."""
    page = scene_of(run, **settings).page()
    return page.at_the_prompt() if path is None else page.write(path)
