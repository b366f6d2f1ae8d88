"""A good call of everything public, with all its arguments."""

from __future__ import annotations

import functools
import inspect
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import geomint as gm

# --- good arguments -------------------------------------------------------------------------------------------------
quartic = gm.System(lambda q: jnp.sum(q**4))


shared = gm.System(lambda q, k: k * jnp.sum(q**4), params=1.0)


stiff = gm.System(lambda q: jnp.sum(q**4), fast=lambda q: 50 * q[0] ** 2 + 0.5 * q[1] ** 2)


pendulum = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0)], 1.0))


rolling = gm.LagrangianSystem(lambda q, v: jnp.sum(v**2 * (2 + jnp.cos(q))))


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="geomint-malformed-"))


@functools.cache
def written() -> Path:
    path = folder() / "written.h5"
    gm.simulate(quartic, [1.0, 0.5], method=gm.Verlet(), dt=0.25, t_end=1.0, output=path)
    return path


@functools.cache
def springs() -> gm.Trajectory:
    return gm.simulate(gm.penalize(pendulum, 20.0), [[0.6, -0.8]], method=gm.Verlet(), dt=0.01, t_end=0.2)


_count = iter(range(10**9))


def fresh_copy() -> Path:
    return Path(shutil.copy(written(), folder() / f"copy{next(_count)}.h5"))


def new_file() -> Path:
    return folder() / f"new{next(_count)}.h5"


def run_of(**stated: Any) -> gm.Trajectory:
    """A short run of a system with the functions given: what they return is seen only here."""
    where = (
        {"q0": [[0.6, -0.8]], "method": gm.Rattle()}
        if "constraint" in stated
        else {"q0": [1.0, 0.5], "method": gm.Verlet()}
    )
    where["method"] = gm.RESPA() if "fast" in stated else where["method"]
    if "watch" in stated:
        stated["watch"] = {"watch": stated["watch"]}
    if "gradient" in stated:
        stated = {"potential": lambda q: jnp.sum(q**4), "overrides": {"gradient": stated["gradient"]}}
    return gm.simulate(gm.System(**stated), where["q0"], method=where["method"], dt=0.25, t_end=0.5, engine="xla")


def run_of_lagrangian(**stated: Any) -> gm.Trajectory:
    return gm.simulate(
        gm.LagrangianSystem(**stated), [0.3], [0.1], method=gm.Variational(), dt=0.25, t_end=0.5, engine="xla"
    )


def mean_of(of: Any) -> gm.Trajectory:
    return gm.ensemble(
        quartic, [[1.0, 0.5], [0.5, 1.0]], method=gm.Verlet(), dt=0.25, t_end=0.5, reduce={"of": gm.Mean(of)}
    )


def walls_of(inside: Any) -> None:
    """The first use of the walls, before anything is compiled: a whole run takes nine seconds."""
    gm.EnergyStepping(0.2, inside=inside).check_start(quartic, np.array([1.0, 0.5]), np.array([0.1, 0.2]))


class Call(NamedTuple):
    """A good call: what is called, and how its arguments are made (each time anew, since files are written once)."""

    name: str
    callee: Callable
    arguments: Callable[[], dict[str, Any]]
    open: tuple[str, ...]  # arguments that may be replaced


def call(name: str, callee: Callable, arguments: Callable[[], dict[str, Any]], also: str = "") -> Call:
    return Call(name, callee, arguments, (*arguments(), *also.split()))


def of_signature(name: str, callee: Callable, **needed: Any) -> Call:
    """All arguments of a constructor may be replaced; only those without a default are given otherwise."""
    hidden = {"plan", "quadratic", "small"}  # found before a run, not given by users
    names = [p for p in inspect.signature(callee).parameters if p not in hidden]
    return Call(name, callee, lambda: dict(needed), tuple(names))


@functools.cache
def runs() -> list[Call]:
    """Calls that make, continue or read a run."""
    step = {"dt": 0.25, "t_end": 1.0}
    two = [[1.0, 0.5], [0.5, 1.0]]
    return [
        call(
            "simulate",
            gm.simulate,
            lambda: {"system": quartic, "q0": [1.0, 0.5], "method": gm.Verlet(), **step},
            "v0 p0 t0 save_every output progress engine compensated seed gradient",
        ),
        call(
            "simulate",
            gm.simulate,
            lambda: {"system": quartic, "q0": [1.0, 0.5], "method": gm.Verlet(), **step, "output": new_file()},
            "save_every",
        ),
        call(
            "ensemble",
            gm.ensemble,
            lambda: {"system": quartic, "q0s": two, "method": gm.Verlet(), **step},
            "v0s p0s t0 save_every output progress engine compensated seed mesh reduce keep params",
        ),
        call(
            "ensemble",
            gm.ensemble,
            lambda: {"system": shared, "q0s": two, "params": np.array([1.0, 2.0]), "method": gm.Verlet(), **step},
            "keep reduce",
        ),
        call(
            "certify",
            gm.certify,
            lambda: {"system": quartic, "method": gm.Verlet(), "q0": [1.0, 0.5], "dt": 0.01, "steps": 100},
            "v0 p0",
        ),
        call(
            "resume",
            gm.resume,
            lambda: {"path": fresh_copy(), "system": quartic},
            "t_end progress method mesh reduce",
        ),
        call("load", gm.load, lambda: {"path": written()}, "system"),
        call("save", lambda path: springs().save(path), lambda: {"path": new_file()}),
        call("plot", lambda path: springs().plot(path), lambda: {"path": folder() / "run.png"}),
    ]


def tools() -> list[Call]:
    """Functions of systems, of runs and of names."""
    return [
        call("project", gm.project, lambda: {"system": pendulum, "q0": [[0.6, -0.9]]}, "v0"),
        call("penalize", gm.penalize, lambda: {"system": pendulum, "omega": 20.0}),
        call("recover_multipliers", gm.recover_multipliers, lambda: {"run": springs(), "window": 0.1}),
        call("stability_diagram", gm.stability_diagram, lambda: {"method": gm.Verlet()}, "largest points h omega"),
        call("stability_diagram", gm.stability_diagram, lambda: {"method": gm.RESPA()}, "largest points h omega"),
        call("split_quadratic", gm.split_quadratic, lambda: {"system": stiff, "q0": [0.1, 0.1]}, "ratio"),
        call("watch_oscillations", gm.watch_oscillations, lambda: {"system": stiff, "q0": [0.1, 0.1]}),
        call(
            "adaptive_splitting",
            gm.adaptive_splitting,
            lambda: {"system": quartic, "q0": [1.0, 0.5], "dt": 0.1},
            "stages",
        ),
        call("average", gm.average, lambda: {"x": [1.0, 2.0, 3.0]}),
        call("autocorrelation_time", gm.autocorrelation_time, lambda: {"x": [[1.0, 2.0, 3.0]]}),
        call(
            "degrees_of_freedom", gm.degrees_of_freedom, lambda: {"system": quartic, "q": [1.0, 0.5]}, "centre_of_mass"
        ),
        call("methods.named", gm.methods.named, lambda: {"text": "verlet"}),
        call("models.named", gm.models.named, lambda: {"text": "kepler"}),
    ]


def constructors() -> list[Call]:
    """Classes, and the functions a system is made of."""
    return [
        of_signature("System", gm.System, potential=lambda q: jnp.sum(q**4)),
        of_signature("LagrangianSystem", gm.LagrangianSystem, lagrangian=lambda q, v: jnp.sum(v**2)),
        of_signature("Translation", gm.Translation),
        of_signature("Rotation", gm.Rotation),
        of_signature("Generator", gm.Generator, matrix=np.eye(2)),
        of_signature("Distances", gm.Distances, pairs=[(0, 1)]),
        of_signature("OnSphere", gm.OnSphere),
        call("Constraint.__and__", lambda other: gm.OnSphere() & other, lambda: {"other": lambda q: q[:1]}),
        of_signature("Mean", gm.Mean, of="energy"),
        of_signature("Quantiles", gm.Quantiles, of="energy"),
        of_signature("Histogram", gm.Histogram, of="energy", bins=[0.0, 1.0]),
        call("Histogram", gm.Histogram, lambda: {"of": "energy", "bins": 4, "range": (0.0, 1.0)}),
        of_signature("RadialDistribution", gm.RadialDistribution, bins=[0.0, 1.0]),
        call(
            "RadialDistribution", gm.RadialDistribution, lambda: {"bins": [0.0, 1.0], "between": ([0], [1])}, "molecule"
        ),
        of_signature("md.Atoms", gm.md.Atoms, symbols="OHH"),
        call("run", run_of, lambda: {"potential": lambda q: jnp.sum(q**2)}),
        call("run", run_of, lambda: {"fast": lambda q: jnp.sum(q**2)}),
        call("run", run_of, lambda: {"constraint": lambda q: jnp.sum(q**2) - 1}),
        call("run", run_of, lambda: {"watch": lambda q, p: q}),
        call("run", run_of, lambda: {"gradient": lambda q: 4 * q**3}),
        call("run", run_of, lambda: {"mass": 2.0}),
        call("run", run_of_lagrangian, lambda: {"lagrangian": lambda q, v: jnp.sum(v**2)}, "force"),
        call("run", mean_of, lambda: {"of": lambda q, p: q}),
        call("run", walls_of, lambda: {"inside": lambda q: 10 - q}),
    ]


def calls() -> list[Call]:
    """All of them, and every method and model."""
    several = [*runs(), *tools(), *constructors()]
    needed = {"Composition": {"base": gm.Verlet()}, "EnergyStepping": {"height": 0.1}}
    needed["GeometricLangevin"] = {"base": gm.Verlet(), "friction": 1.0, "temperature": 1.0}
    several += [of_signature(name, method, **needed.get(name, {})) for name, method in gm.methods.classes().items()]
    small = {"lennard_jones_cluster": {"n": 3}, "morse_cluster": {"n": 3}}
    several += [of_signature(f"models.{name}", make, **small.get(name, {})) for name, make in gm.models.all().items()]
    return [c for c in several if c.open]
