"""Runs: gm.simulate, gm.ensemble, gm.sweep, gm.load, gm.resume, and the Trajectory that they return.

Start reading with simulate.py, then drive.py and loop.py, the host loop. In the order of a run:

inputs, prepare       the initial state, checked; what a method finds out about the system before the run
simulate, ensemble    one trajectory, or many of them in one program
gradients             runs inside jax.grad, jax.jit and jax.vmap; linear_maps: a linear map with its transpose
reductions, radial    Mean, Quantiles, Histogram, RadialDistribution: the statistics over members that the user asks for
tile_reduction        the compiled program that reduces the rows of one tile of members
reducing_engine       the engine that runs that program during a run; summary: the results, run.reduced
drive, loop           chunks of steps, checkpoints, Ctrl-C; failures: the errors that end a run early
energy_scale          whether the energy error is too large; instability: the warning, with a step that works
trajectory, events    what a run returns; described: its repr
until, between        where simulate(until=...) ends; run(t), the state between saved points
load, save, resume    archives as runs and runs as archives; restore: setting an archived run up again
devices               the devices that share an ensemble
executors, workers    tasks on an executor, and what a task does first in a worker
sharded, shards       ensemble(executor=...): the client's part, and the task; sharded_run: the result
sweep, sweep_table    gm.sweep, and its table
archived              the Trajectory of an archive

It may import errors, numerics, system, manifold, methods, engines, md, io and models, but neither analysis, papers nor
cli. plots and view are imported by the methods of a Trajectory that need it, when they are called.
"""

from .ensemble import ensemble
from .load import load
from .radial import RadialDistribution
from .reductions import Histogram, Mean, Quantiles
from .resume import resume
from .simulate import simulate
from .sweep import sweep
from .trajectory import Trajectory

__all__ = [
    "Histogram",
    "Mean",
    "Quantiles",
    "RadialDistribution",
    "Trajectory",
    "ensemble",
    "load",
    "resume",
    "simulate",
    "sweep",
]
