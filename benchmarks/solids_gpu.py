"""Elastic cubes on the default device: the forces against numpy, a Verlet step of 1.5 million tetrahedra in double
precision, whether its bits repeat, and an ensemble of 1000 cubes. Under a minute on an H200.

Run with `python -m benchmarks.solids_gpu [cells]`, by default 40 small cubes along an edge (1,536,000 tetrahedra). The
bandwidth of an H200 allows 42 µs a step; the target is 85.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from benchmarks.timing import of_a_step
from geomint.fem import element_gpu, element_groups
from geomint.methods.base import State
from geomint.numerics.compilation import jit
from geomint.system.mechanics import Mechanics

LAME, SHEAR, DENSITY = 0.01, 0.0066, 0.1


def by_numpy(mesh: gm.fem.Mesh, x: np.ndarray) -> np.ndarray:
    """The gradient of the neo-Hookean energy, by matrices."""
    F = np.einsum("eai,eaj->eij", x[mesh.cells], mesh.shape_gradients)
    log, inverse = np.log(np.linalg.det(F)), np.swapaxes(np.linalg.inv(F), 1, 2)
    P = (LAME * log - SHEAR)[:, None, None] * inverse + SHEAR * F
    forces = np.einsum("e,eij,eaj->eai", mesh.volumes, P, mesh.shape_gradients)
    out = np.zeros_like(x)
    np.add.at(out, mesh.cells, forces)
    return out


def body(cells: int) -> tuple[Any, np.ndarray, np.ndarray]:
    mesh = gm.fem.cube(cells)
    system = gm.fem.solid(mesh, gm.fem.NeoHookean(LAME, SHEAR), DENSITY)
    return system, np.array(mesh.nodes), np.cross([0.0, 0.0, 1.0], mesh.nodes - 0.5)


def check() -> None:
    system, q, v = body(4)
    rng, mesh = np.random.default_rng(0), system.potential.mesh
    q = q + 0.005 * rng.normal(size=q.shape)
    gradient = jax.jit(lambda s, x: jax.grad(s.potential)(x))
    expected = by_numpy(mesh, q)
    found = np.asarray(gradient(system, jnp.asarray(q)))
    print(f"forces apart from numpy by {np.abs(found - expected).max() / np.abs(expected).max():.2g} of the largest")
    u, h = rng.normal(size=q.shape), 1e-5
    product = jax.jit(lambda s, x: jax.jvp(jax.grad(s.potential), (x,), (jnp.asarray(u),))[1])(system, jnp.asarray(q))
    finite = (by_numpy(mesh, q + h * u) - by_numpy(mesh, q - h * u)) / (2 * h)
    print(f"Hessian products apart from differences by {np.abs(product - finite).max() / np.abs(finite).max():.2g}")
    line = system.potential.on_line(jnp.asarray(q), jnp.asarray(v)).derivatives(jnp.asarray(0.01), 2)
    print(f"energy along a line apart from the energy by {abs(line[0] / system.potential(q + 0.01 * v) - 1):.2g}")


def loop(known: bool = True) -> Any:
    """n Verlet steps; a new function, so that it is compiled again. known: n is known to the compiler."""

    def steps(system: Any, q: Any, p: Any, h: Any, n: Any) -> Any:
        mech, method = Mechanics(system, q.shape), gm.Verlet()
        carry = method.init(mech, State(q, p), h)
        carry = jax.lax.fori_loop(0, n, lambda _, c: method.step(mech, c, h), carry)
        return method.output(mech, carry)

    return jit(steps, static_argnums=(4,) if known else ())


def forces_loop() -> Any:
    """n evaluations of the forces, and little else."""
    step = lambda system, q: q - 1e-9 * jax.grad(system.potential)(q)
    return jit(lambda s, q, p, h, n: jax.lax.fori_loop(0, n, lambda _, x: step(s, x), q), static_argnums=4)


def timed(steps: Any, arguments: Any, n: int) -> tuple[float, Any, bool]:
    """Microseconds of a step, the best of four, the last state, and whether its bits are the same each time."""
    first, best, same = jax.block_until_ready(steps(*arguments, n)), np.inf, True
    for _ in range(4 if jax.default_backend() == "gpu" else 1):
        began = time.perf_counter()
        out = jax.block_until_ready(steps(*arguments, n))
        best = min(best, (time.perf_counter() - began) / n)
        leaves = zip(jax.tree.leaves(first), jax.tree.leaves(out), strict=True)
        same = same and all(bool(jnp.all(x == y)) for x, y in leaves)
    return 1e6 * best, first, same


class Variant(NamedTuple):
    """A kernel and its constants."""

    name: str
    groups: int  # elements of a group; 0: patches
    constants: dict[str, Any]


VARIANTS = (
    Variant("groups of 4, two warps", 4, {"LANES": 64, "WARPS": 2}),
    Variant("groups of 4, one warp", 4, {"LANES": 32, "WARPS": 1}),
    Variant("groups of 4, eight warps", 4, {"LANES": 256, "WARPS": 8}),
    Variant("groups of 4, each with its own shape", 4, {"EQUAL": -1.0}),
    Variant("patches, 528 programs, 8 entries at once", 0, {"PROGRAMS": 528, "AHEAD": 8}),
    Variant("groups of 24, one warp", 24, {"LANES": 32, "WARPS": 1}),
)
BUDGET = 75.0  # seconds of the whole script, after which no further variant is begun
BEGAN = time.perf_counter()


def large(cells: int) -> tuple[Any, Any]:
    began = time.perf_counter()
    system, q, v = body(cells)
    tets = len(system.potential.mesh.cells)
    print(f"{tets} tetrahedra, {len(q)} nodes, meshed in {time.perf_counter() - began:.1f} s", flush=True)
    p = jnp.asarray(system.mass) * v
    arguments = system, jnp.asarray(q), p, jnp.asarray(0.1 / cells)
    n, h = 500 if jax.default_backend() == "gpu" else 3, 0.1 / cells
    settings: dict[str, Any] = {"method": gm.Verlet(), "dt": h, "progress": False}
    taken = of_a_step(lambda k: gm.simulate(system, q, v, t_end=h * k, save_every=k, **settings), n)
    print(
        f"a Verlet step of gm.simulate takes {taken:.1f} µs (target 85): in that time 4.8 TB/s are "
        f"{taken * 1e-6 / tets * 4.8e12:.0f} bytes for each tetrahedron"
    )
    taken, last, same = timed(loop(), arguments, n)
    print(f"  in a loop of its own: {taken:.1f} µs with the number of steps known to the compiler; bits repeat: {same}")
    print(f"  not known to it: {timed(loop(False), arguments, n)[0]:.1f} µs")
    print(f"  the forces alone: {timed(forces_loop(), arguments, n)[0]:.1f} µs", flush=True)
    return arguments, last


def variants(arguments: Any, last: Any) -> None:
    """The same steps by other kernels, and other constants of them; those that take long to compile last."""
    n = 500 if jax.default_backend() == "gpu" else 3
    made: dict[Any, Any] = {}
    for name, size, constants in VARIANTS:
        if time.perf_counter() - BEGAN > BUDGET:
            print(f"  {name}: left out for time")
            continue
        module = element_groups if size else element_gpu
        before = {key: getattr(module, key) for key in constants}
        began = time.perf_counter()
        try:
            for key, x in constants.items():
                setattr(module, key, x)
            key = size, constants.get("EQUAL") if size else None
            made[key] = made.get(key) or with_tables(arguments[0], size)
            jax.clear_caches()
            taken, found, same = timed(loop(), (made[key], *arguments[1:]), n)
            apart = float(jnp.max(jnp.abs(found.q - last.q)))
            took = time.perf_counter() - began
            print(f"  {name}: {taken:.1f} µs; bits repeat: {same}; apart by {apart:.1g}; {took:.1f} s", flush=True)
        except Exception as error:
            print(f"  {name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
        for key, x in before.items():
            setattr(module, key, x)
    jax.clear_caches()


def with_tables(system: Any, size: int) -> Any:
    """The system for groups of that size, or for patches."""
    mesh, potential, n = system.potential.mesh, system.potential, len(system.potential.mesh.nodes)
    before, element_groups.SIZES = element_groups.SIZES, (size,)
    if size:
        tables = element_groups.Groups.of(n, mesh.cells, mesh.shape_gradients, mesh.volumes)
    else:
        tables = element_gpu.Patches.of(n, mesh.cells)
    element_groups.SIZES = before
    geometry = potential.geometry._replace(patches=tables)
    return gm.System(gm.fem.Elastic(mesh, None, potential.material, geometry, None, None), mass=system.mass)


def ensemble(members: int = 1000, cells: int = 4, steps: int = 400) -> None:
    system, q, v = body(cells)
    spins = np.linspace(0.5, 1.5, members)
    starts = np.broadcast_to(q, (members, *q.shape)), spins[:, None, None] * v
    settings: dict[str, Any] = {"method": gm.Verlet(), "dt": 0.02, "save_every": steps}
    go = lambda count: gm.ensemble(system, *starts, t_end=0.02 * count, **settings)
    each = 1e-6 * of_a_step(go, steps)
    began = time.perf_counter()
    run = go(steps)
    taken = time.perf_counter() - began
    alone = gm.simulate(system, q, starts[1][7], method=gm.Verlet(), dt=0.02, t_end=0.02 * steps, save_every=steps)
    apart = np.abs(np.asarray(run[7].q[-1]) - np.asarray(alone.q[-1])).max()
    tets = members * len(system.potential.mesh.cells)
    print(
        f"{members} cubes of {len(system.potential.mesh.cells)} tetrahedra: {1e6 * each:.0f} µs a step of all "
        f"({tets} tetrahedra), and {1e3 * (taken - steps * each):.0f} ms for start and end; "
        f"member 7 apart from a run of its own by {apart:.2g}",
        flush=True,
    )


if __name__ == "__main__":
    print(jax.devices()[0], flush=True)
    check()
    found = large(int(sys.argv[1]) if sys.argv[1:] else 40)
    ensemble(*(() if jax.default_backend() == "gpu" else (20, 2, 20)))
    variants(*found)
