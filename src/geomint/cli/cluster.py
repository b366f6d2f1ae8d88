"""The executor of the command line: --workers starts a local cluster of Dask, --scheduler joins one that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError

CONNECT_SECONDS = "20 s"
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of an ensemble: run its shards in so many processes on this machine (pip install geomint[cluster]).",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Of an ensemble: run its shards on the Dask cluster with this address, as tcp://host:8786."),
]


@contextlib.contextmanager
def executor_of(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A Dask client; None where neither is given."""
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and scheduler is not None:
        raise InputError("give --workers or --scheduler, not both: a scheduler has its own workers.")
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        raise InputError("--workers and --scheduler need Dask: pip install geomint[cluster]") from None
    from ..numerics.cores import available_cores

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise InputError(f"--scheduler {scheduler}: no scheduler of Dask answers there ({error}).") from None
        with client:
            yield client
        return
    threads = max(1, available_cores() // (workers or 1))
    no_dashboard: Any = None  # it would need a port and further packages; --scheduler has that of its cluster
    cluster = LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=no_dashboard)
    with cluster, Client(cluster) as client:
        yield client


def is_in_shards(file: Path) -> bool:
    from ..io.index import read_index

    return read_index(file) is not None
