"""The devices of mesh=: those of this process that share the members of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..errors import InputError


def devices_of(mesh: Any) -> Sequence[Any]:
    """The devices of a mesh, or of "all"; (None,) is JAX's default device."""
    if mesh is None:
        return (None,)
    if isinstance(mesh, str) and mesh == "all":
        return jax.local_devices()
    if not isinstance(mesh, jax.sharding.Mesh):
        given = repr(mesh) if isinstance(mesh, str) else type(mesh).__name__
        raise InputError(f'mesh must be a jax.sharding.Mesh, "all" or None, not {given}.')
    devices = list(mesh.devices.flat)
    if any(d.process_index != jax.process_index() for d in devices):
        raise InputError(
            "mesh has devices of several processes, and a mesh is for the devices of one. To share an ensemble among "
            "processes or machines, use gm.ensemble(..., executor=...), with a Dask client for example."
        )
    return devices
