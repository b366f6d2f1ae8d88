"""Figures of runs: `figures.overview` is what `run.plot()` draws. No display is needed."""
