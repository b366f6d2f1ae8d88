"""A run as an xarray.Dataset: every saved quantity, with names for its axes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GeomintError

if TYPE_CHECKING:
    from ..run.trajectory import Trajectory


def to_xarray(run: Trajectory) -> Any:
    """q, p, v (where the system is known), energy, energy_error, one variable for each momentum map, and all else that
    the method saved, over `time`, for an ensemble over `member` and `time`. Of a reduced ensemble, the results over
    `time`.

    The axes of q are `axis_0`, `axis_1`, …; a map with several components has an axis of its own. The attribute
    `long_name` of a momentum map or watched quantity is the name it has in `run.momentum_maps` or `run.watched`.
    """
    try:
        import xarray
    except ImportError:
        raise GeomintError("to_xarray needs the package xarray: pip install geomint[analysis]") from None
    from importlib.metadata import version

    leading = ("member", "time") if run.members else ("time",)
    variables: dict[str, Any] = (
        {name: (dims, x) for name, dims, x in _stated(run, leading)} if "q" in run.columns else {}
    )
    for name, values in (*run.momentum_maps.items(), *run.watched.items()):
        x = np.asarray(values)
        x = x[..., 0] if x.shape[len(leading) :] == (1,) else x
        key = _free_name(identifier(name), variables)
        variables[key] = ((*leading, *_own_axes(key, x, leading)), x, {"long_name": name})
    coordinates: dict[str, Any] = {"time": np.asarray(run.t)}
    if run.members:
        coordinates["member"] = run.kept
    if run.summary is not None:
        for name, dims, x in _of_reductions(run):
            (coordinates if dims == (name,) else variables)[name] = (dims, x)
    about = {
        "method": run.method.name, "dt": run.dt, "t0": run.grid.t0, "save_every": run.grid.save_every, "seed": run.seed,
        "compensated": int(run.compensated), "engine": run.engine, "geomint_version": version("geomint"),
    }  # fmt: skip
    if origin := getattr(run.system, "origin", None):
        about["model"] = origin
    return xarray.Dataset(variables, coordinates, about)


def _of_reductions(run: Trajectory) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Name, dimensions and values of the results of reductions: energy_mean, radius_quantiles over radius_level,
    angle_counts over angle_bin."""
    yield "members_left", ("time",), np.asarray(run.members_left)
    for name, held in run.reduced.items():
        key = identifier(name)
        if "levels" in held.settings:
            yield f"{key}_level", (f"{key}_level",), held.levels
        if "edges" in held.settings:
            yield f"{key}_bin", (f"{key}_bin",), (held.edges[1:] + held.edges[:-1]) / 2
        own = {"quantiles": (f"{key}_level",), "counts": (f"{key}_bin",), "distribution": (f"{key}_bin",)}
        for result, x in held.results.items():
            dims = ("time", *own.get(result, ()))
            yield f"{key}_{result}", (*dims, *_own_axes(key, np.asarray(x), dims)), np.asarray(x)


def identifier(name: str) -> str:
    """The name of a momentum map as an identifier: "rotation[0, 1]" becomes rotation_0_1, and "translation[-1.0, 0.5]"
    becomes translation_minus1_0p5."""
    name = re.sub(
        r"-?\d+\.?\d*(e[+-]?\d+)?", lambda m: f"{float(m[0]):g}".replace("-", "minus").replace(".", "p"), name
    )
    return re.sub(r"\W+", "_", name).strip("_")


def _stated(run: Trajectory, leading: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Name, dimensions and values of everything but the momentum maps."""
    lead = len(leading)
    q_shape = run.q.shape[lead:]
    axes = tuple(f"axis_{k}" for k in range(len(q_shape)))
    yield "q", (*leading, *axes), np.asarray(run.q)
    p = np.asarray(run.p)
    of_p = axes if p.shape[lead:] == q_shape else _own_axes("p", p, leading)
    yield "p", (*leading, *of_p), p
    if run.system is not None:
        yield "v", (*leading, *of_p), np.asarray(run.v)
    yield "energy", leading, np.asarray(run.energy)
    yield "energy_error", leading, np.asarray(run.energy_error)
    for name, x in run.columns.items():
        # Quantities that are not saved point by point, such as a list of events, do not have these axes.
        if (
            name in ("q", "p", "energy", "momentum_maps")
            or isinstance(x, dict)
            or np.shape(x)[:lead] != run.energy.shape
        ):
            continue
        x = np.asarray(x)
        yield name, (*leading, *(axes if q_shape and x.shape[lead:] == q_shape else _own_axes(name, x, leading))), x


def _own_axes(name: str, x: np.ndarray, leading: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}_axis_{k}" for k in range(x.ndim - len(leading)))


def _free_name(name: str, taken: dict[str, Any]) -> str:
    k, free = 2, name
    while free in taken:
        free, k = f"{name}_{k}", k + 1
    return free
