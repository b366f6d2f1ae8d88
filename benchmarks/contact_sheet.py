"""Pictures of all models, run by their defaults, on one sheet, with the time that each took.

python -m benchmarks.contact_sheet [SHEET.png] [MODEL ...]
"""

from __future__ import annotations

import sys
import time
from io import BytesIO

import matplotlib.image
import numpy as np

import geomint as gm
from geomint.plots.figures import new_figure, save_figure

COLUMNS = 4


def picture(run: gm.Trajectory) -> np.ndarray:
    """The picture of a run, as pixels."""
    file = BytesIO()
    run.plot().savefig(file, format="png", dpi=75)
    file.seek(0)
    return matplotlib.image.imread(file)


def contact_sheet(path: str, names: list[str]) -> None:
    rows = -(-len(names) // COLUMNS)
    figure = new_figure(5.5 * COLUMNS, 3.1 * rows)
    for k, name in enumerate(names):
        began, model = time.perf_counter(), gm.models.named(name)
        run = gm.simulate(model)
        seconds = time.perf_counter() - began
        print(f"{name}: {run!r}, {seconds:.1f} s", flush=True)
        axes = figure.add_subplot(rows, COLUMNS, k + 1)
        axes.imshow(picture(run))
        axes.set_title(f"{name} ({seconds:.1f} s)", fontsize=9)
        axes.axis("off")
    print(save_figure(figure, path))


if __name__ == "__main__":
    contact_sheet(sys.argv[1] if len(sys.argv) > 1 else "models.png", sys.argv[2:] or list(gm.models.all()))
