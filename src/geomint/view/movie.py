"""An animation as a film, drawn by matplotlib: run.movie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from ..errors import InputError
from ..plots.figures import new_figure
from ..system.checks import as_path, positive, whole
from .of_run import scene_of
from .scene import Scene

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f", "#b3334c", "#6a51a3")
LIGHT = np.array([0.3, -0.5, 0.81])  # where it comes from


def film(run: Any, path: str | Path, seconds: float, fps: int, **settings: Any) -> Path:
    """The animation of a run as a GIF, or by ffmpeg as MP4, WebM or MOV."""
    path = _checked(path)
    seconds, rate = float(positive(seconds, "seconds", "movie")), whole(fps, "fps", "movie", least=1, most=120)
    scene = scene_of(run, **settings)
    count = max(2, round(seconds * rate))
    frames = np.unique(np.linspace(0, len(scene.positions) - 1, count).round().astype(int))
    writer = (PillowWriter if path.suffix.lower() == ".gif" else FFMpegWriter)(fps=max(1, round(len(frames) / seconds)))
    drawing = _Drawing(scene)
    with writer.saving(drawing.figure, str(path), dpi=100):
        for frame in frames:
            drawing.show(int(frame))
            writer.grab_frame()
    return path


def _checked(path: str | Path) -> Path:
    path = as_path(path, "path")
    if path.suffix.lower() not in (".gif", ".mp4", ".webm", ".mov"):
        raise InputError(f"a film's name ends in .gif, .mp4, .webm or .mov, not {path.name!r}.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist.")
    if path.suffix.lower() != ".gif" and not FFMpegWriter.isAvailable():
        raise InputError(f"{path.name}: this machine has no ffmpeg, which writes {path.suffix}; take a .gif.")
    return path


class _Drawing:
    """A figure of a scene, drawn again for each frame: the motion, and the first quantity over time below it."""

    def __init__(self, scene: Scene):
        self.scene, self.spatial = scene, scene.positions.shape[2] == 3
        self.figure = new_figure(6.4, 6.4 if scene.series else 5.2)
        grid = self.figure.add_gridspec(2 if scene.series else 1, 1, height_ratios=[4, 1][: 2 if scene.series else 1])
        more = {"projection": "3d"} if self.spatial else {}
        self.axes: Any = self.figure.add_subplot(grid[0], **more)
        low, high = scene.limits
        limits = list(zip(low, high, strict=True))
        self.axes.set(**{f"{name}lim": limits[k] for k, name in enumerate("xyz"[: len(limits)])})
        span = high - low
        if self.spatial:
            self.axes.set_box_aspect(span)
            self.axes.set_axis_off()
        elif 1 / 8 < span[0] / span[1] < 8:
            self.axes.set_aspect("equal")
        self.axes.set_title(scene.title, fontsize=10)
        fixed = np.reshape(np.asarray(scene.fixed, float), (-1, len(low)))
        colors = [COLORS[c % len(COLORS)] for c in (scene.colors or [0] * scene.positions.shape[1])]
        self.lines = [self.axes.plot([], [], color="#5b6775", lw=1.6)[0] for _ in scene.bonds]
        trailed = range(scene.positions.shape[1]) if scene.trail else ()
        self.trails = [self.axes.plot([], [], color=colors[k], lw=0.8, alpha=0.6)[0] for k in trailed]
        self.faces = _Faces(self.axes, scene, colors) if len(scene.triangles) else None
        size = 8 + 900 * float(np.mean(scene.radius)) / float(np.max(span))
        look = {"depthshade": True} if self.spatial else {"zorder": 3}
        self.dots = self.axes.scatter(*scene.positions[0].T, s=size, c=colors, **look) if scene.dots else None
        if len(fixed):
            self.axes.plot(*fixed.T, "s", color="#16202b", ms=4)
        self.fixed = fixed
        self._plot_series(grid)

    def _plot_series(self, grid: Any) -> None:
        self.mark: Any = None
        for name, (t, y) in list(self.scene.series.items())[:1]:
            axes = self.figure.add_subplot(grid[1])
            axes.plot(t, y, lw=0.9)
            axes.set(xlim=(self.scene.times[0], self.scene.times[-1]), xlabel="time")
            axes.set_title(name, fontsize=9)
            axes.grid(alpha=0.25)
            self.mark = axes.axvline(self.scene.times[0], color="#16202b", lw=1)

    def show(self, frame: int) -> None:
        """Draw this frame."""
        x = self.scene.positions[frame]
        joined = np.concatenate([x, self.fixed]) if len(self.fixed) else x
        for line, (i, j) in zip(self.lines, self.scene.bonds, strict=True):
            self._set(line, joined[[i, j]])
        for k, line in enumerate(self.trails):
            self._set(line, self.scene.positions[max(0, frame - self.scene.trail) : frame + 1, k])
        if self.faces is not None:
            self.faces.show(joined)
        if self.dots is not None and self.spatial:
            self.dots._offsets3d = tuple(x.T)
        elif self.dots is not None:
            self.dots.set_offsets(x)
        if self.mark is not None:
            self.mark.set_xdata([self.scene.times[frame]] * 2)

    def _set(self, line: Any, points: np.ndarray) -> None:
        line.set_data(points[:, 0], points[:, 1])
        if self.spatial:
            line.set_3d_properties(points[:, 2])


class _Faces:
    """Triangles, each in the colour of its first point, as bright as the light makes them."""

    def __init__(self, axes: Any, scene: Scene, colors: list[str]):
        self.triangles = np.asarray(scene.triangles, int).reshape(-1, 3)
        self.base = np.array([to_rgb([*colors, COLORS[0]][min(k, len(colors))]) for k in self.triangles[:, 0]])
        corners = list(np.zeros((len(self.triangles), 3, scene.positions.shape[2])))
        if scene.positions.shape[2] == 3:
            self.shown: Any = Poly3DCollection(corners, facecolors=self.base)
            axes.add_collection3d(self.shown)
        else:
            self.shown = PolyCollection(corners, facecolors=self.base, alpha=0.7)
            axes.add_collection(self.shown)

    def show(self, x: np.ndarray) -> None:
        corners = x[self.triangles]
        self.shown.set_verts(corners)
        if x.shape[1] == 3:
            normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            length = np.linalg.norm(normal, axis=1)
            light = 0.35 + 0.65 * np.abs(normal @ LIGHT) / np.where(length > 0, length, 1.0)
            self.shown.set_facecolor(self.base * light[:, None])
