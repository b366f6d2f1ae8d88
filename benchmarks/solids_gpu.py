"""Elastic cubes on the default device: the forces against numpy, a Verlet step of 1.5 million tetrahedra in double
precision, whether its bits repeat, and an ensemble of 1000 cubes. Under a minute on an H200.

Run with `python -m benchmarks.solids_gpu [cells]`, by default 40 small cubes along an edge (1,536,000 tetrahedra). The
bandwidth of an H200 allows 42 µs a step; the target is 85.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.fem import element_gpu, element_sums
from geomint.methods.base import State
from geomint.system.mechanics import Mechanics

LAME, SHEAR, DENSITY = 0.01, 0.0066, 0.1
VARIANTS = ((128, 132 * 4, 4), (128, 132 * 2, 4), (128, 132 * 8, 4), (128, 132 * 4, 2), (256, 132 * 2, 8))


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


def loop() -> Any:
    """n Verlet steps; a new function, so that it is compiled again."""

    def steps(system: Any, q: Any, p: Any, h: Any, n: Any) -> Any:
        mech, method = Mechanics(system, q.shape), gm.Verlet()
        carry = method.init(mech, State(q, p), h)
        carry = jax.lax.fori_loop(0, n, lambda _, c: method.step(mech, c, h), carry)
        return method.output(mech, carry)

    return jax.jit(steps)


def timed(steps: Any, arguments: Any, n: int) -> tuple[float, Any]:
    """Microseconds of a step, the best of three, and the last state."""
    out = jax.block_until_ready(steps(*arguments, 2))
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        out = jax.block_until_ready(steps(*arguments, n))
        best = min(best, (time.perf_counter() - began) / n)
    return 1e6 * best, out


def large(cells: int) -> None:
    began = time.perf_counter()
    system, q, v = body(cells)
    tets = len(system.potential.mesh.cells)
    print(f"{tets} tetrahedra, {len(q)} nodes, meshed in {time.perf_counter() - began:.1f} s", flush=True)
    p = jnp.asarray(system.mass) * v
    arguments = system, jnp.asarray(q), p, jnp.asarray(0.1 / cells)
    fast = jax.default_backend() == "gpu"
    n = 500 if fast else 3
    taken, first = timed(loop(), arguments, n)
    print(
        f"a Verlet step takes {taken:.1f} µs (target 85): in that time 4.8 TB/s are "
        f"{taken * 1e-6 / tets * 4.8e12:.0f} bytes for each tetrahedron"
    )
    _, again = timed(loop(), arguments, n)
    same = all(bool(jnp.all(x == y)) for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True))
    print(f"bits repeat over {n} steps: {same}", flush=True)
    if not fast:
        return
    variants(arguments)
    kernel, element_sums.element_gpu.forces = element_gpu.forces, by_arrays  # pyright: ignore[reportAttributeAccessIssue]
    jax.clear_caches()
    print(f"by array operations: {timed(loop(), arguments, 20)[0]:.1f} µs", flush=True)
    element_gpu.forces = kernel  # pyright: ignore[reportAttributeAccessIssue]
    jax.clear_caches()


def by_arrays(term: Any, order: int, vectors: Any, numbers: Any, geometry: Any, patches: Any) -> Any:
    return element_sums.by_arrays(term, order, *vectors, *numbers, *geometry[: element_sums.ARRAYS])


def variants(arguments: Any) -> None:
    """Other numbers of elements in a patch, of programs and of warps."""
    system, *others = arguments
    mesh = system.potential.mesh
    before = element_gpu.PATCH, element_gpu.PROGRAMS, element_gpu.WARPS
    for patch, programs, warps in VARIANTS[1:]:
        if patch != element_gpu.PATCH:
            element_gpu.PATCH = patch
            tables = element_gpu.Patches.of(len(mesh.nodes), mesh.cells)
            potential = system.potential
            geometry = potential.geometry._replace(patches=tables)
            made = gm.fem.Elastic(mesh, None, potential.material, geometry, None, None)
            system = gm.System(made, mass=system.mass)
        element_gpu.PROGRAMS, element_gpu.WARPS = programs, warps
        jax.clear_caches()
        try:
            taken = f"{timed(loop(), (system, *others), 200)[0]:.1f} µs"
        except Exception as error:
            taken = f"{type(error).__name__}: {str(error)[:100]}"
        print(f"  patches of {patch}, {programs} programs of {warps} warps: {taken}", flush=True)
    element_gpu.PATCH, element_gpu.PROGRAMS, element_gpu.WARPS = before
    jax.clear_caches()


def ensemble(members: int = 1000, cells: int = 4, steps: int = 200) -> None:
    system, q, v = body(cells)
    spins = np.linspace(0.5, 1.5, members)
    starts = np.broadcast_to(q, (members, *q.shape)), spins[:, None, None] * v
    go = lambda: gm.ensemble(system, *starts, method=gm.Verlet(), dt=0.02, t_end=0.02 * steps, save_every=steps)
    go()
    began = time.perf_counter()
    run = go()
    taken = time.perf_counter() - began
    alone = gm.simulate(system, q, starts[1][7], method=gm.Verlet(), dt=0.02, t_end=0.02 * steps, save_every=steps)
    apart = np.abs(np.asarray(run[7].q[-1]) - np.asarray(alone.q[-1])).max()
    tets = members * len(system.potential.mesh.cells)
    print(
        f"{members} cubes of {len(system.potential.mesh.cells)} tetrahedra: {1e6 * taken / steps:.0f} µs a step of all "
        f"({tets} tetrahedra), start and saves included; member 7 apart from a run of its own by {apart:.2g}",
        flush=True,
    )


if __name__ == "__main__":
    print(jax.devices()[0], flush=True)
    check()
    large(int(sys.argv[1]) if sys.argv[1:] else 40)
    ensemble(*(() if jax.default_backend() == "gpu" else (20, 2, 20)))
