"""An animation as a film, drawn by matplotlib: run.movie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter

from ..errors import InputError
from ..plots.figures import new_figure
from ..system.checks import as_path, positive, whole
from .of_run import scene_of
from .scene import Scene

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f", "#b3334c", "#6a51a3")


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
        size = 8 + 900 * float(np.mean(scene.radius)) / float(np.max(span))
        self.dots = (
            self.axes.scatter(*scene.positions[0].T, s=size, c=colors, depthshade=True)
            if self.spatial
            else (self.axes.scatter(*scene.positions[0].T, s=size, c=colors, zorder=3))
        )
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
        if self.spatial:
            self.dots._offsets3d = tuple(x.T)
        else:
            self.dots.set_offsets(x)
        if self.mark is not None:
            self.mark.set_xdata([self.scene.times[frame]] * 2)

    def _set(self, line: Any, points: np.ndarray) -> None:
        line.set_data(points[:, 0], points[:, 1])
        if self.spatial:
            line.set_3d_properties(points[:, 2])
