"""Compiled programs on disk: a second process finds them, and nothing that is wrong with a file or a folder matters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geomint.engines.scalar.program_key import Unhashable, jaxpr_digest
from geomint.numerics import disk_cache

# Prints the bits of a run, whether the loop was translated, and how many programs XLA found and did not find on disk:
# all of them once they are there, since the tests let JAX keep the smallest too.
SCRIPT = """
import geomint as gm
from geomint.engines.llvm import engine
compiled, translated = [], []
compile_loop = engine._compile
engine._compile = lambda *a: translated.append(1) or compile_loop(*a)
import jax
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
m = gm.models.pendulum()
native = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.01, t_end=0.5, engine="native")
xla = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.01, t_end=0.5, engine="xla")
assert native.engine == "native" and xla.engine == "xla"
hits, misses = (sum(word in event for event in compiled) for word in ("cache_hits", "cache_misses"))
print(native.q.tobytes().hex()[-400:], xla.q.tobytes().hex()[-400:], len(translated), hits, misses)
"""


def run(cache: str | Path) -> tuple[list[str], int, int, int]:
    """The bits of both engines, and the three numbers that the script prints."""
    environment = {**os.environ, "GEOMINT_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "cpu_aot_loader" not in done.stderr
    *bits, translated, hits, misses = done.stdout.split()
    return bits, int(translated), int(hits), int(misses)


def test_second_process(tmp_path):
    bits, translated, _, misses = run(tmp_path)
    assert translated == 1
    assert misses > 0
    (file,) = (tmp_path / "code").iterdir()
    assert list(tmp_path.glob("xla-*/*-cache"))
    good = file.read_bytes()
    again, translated, hits, misses = run(tmp_path)
    assert again == bits
    assert translated == 0
    assert hits > 0
    assert misses == 0
    # A damaged file is not used, and written again.
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    again, translated, *_ = run(tmp_path)
    assert again == bits
    assert translated == 1
    assert file.read_bytes() == good


def test_off(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _, translated, hits, _ = run("off")
    assert translated == 1
    assert hits == 0
    assert not list(tmp_path.rglob("*"))


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("no folder")
    _, translated, hits, _ = run(tmp_path / "file" / "cache")
    assert translated == 1
    assert hits == 0


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMINT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_files(cache):
    assert disk_cache.read("name") is None
    disk_cache.write("name", b"content")
    assert disk_cache.read("name") == b"content"
    file = cache / "code" / "name"
    for damaged in (b"", b"foreign", disk_cache.HEADER, file.read_bytes()[:-1], file.read_bytes() + b"x"):
        file.write_bytes(damaged)
        assert disk_cache.read("name") is None
    disk_cache.write("name", b"other")
    assert disk_cache.read("name") == b"other"
    assert [x.name for x in (cache / "code").iterdir()] == ["name"]  # no temporary file is left


def test_files_of_other_users(cache, monkeypatch):
    disk_cache.write("name", b"content")
    if hasattr(os, "geteuid"):
        monkeypatch.setattr(os, "geteuid", lambda: os.stat(cache).st_uid + 1)
        assert disk_cache.read("name") is None


def test_size_is_bounded(cache):
    for k in range(5):
        disk_cache.write(f"file{k}", bytes(1000))
        os.utime(cache / "code" / f"file{k}", (k, k))
    (cache / "mine.txt").write_text("not of the cache")
    assert disk_cache.read("file0") is not None  # used now, so it is no longer the oldest
    disk_cache.trim(2500)
    assert {x.name for x in (cache / "code").iterdir()} == {"file0", "file4"}
    assert (cache / "mine.txt").exists()


def test_where_the_folder_is(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOMINT_CACHE", "OFF")
    assert disk_cache.folder() is None
    monkeypatch.delenv("GEOMINT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.folder() == tmp_path / "geomint"


def test_key_covers_the_program():
    """Programs that differ in anything that the translation reads have different keys; the same one has the same."""
    c = np.arange(3.0)
    programs = [
        lambda x: x * 2.0,
        lambda x: x * 3.0,
        lambda x: 2.0 - x,
        lambda x: x - 2.0,
        lambda x: x + c,
        lambda x: x + 2 * c,
        lambda x: x[::-1],
        lambda x: x[::2],
        lambda x: jnp.sum(x),
        lambda x: jnp.cumsum(x),
        lambda x: (x, x + x),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * y, x),
        lambda x: jax.lax.fori_loop(0, 4, lambda _, y: y * y, x),
        lambda x: jax.jit(jnp.sin)(x),
        lambda x: jax.jit(jnp.cos)(x),
        lambda x: x.at[0].add(1.0),
        lambda x: x.at[1].add(1.0),
    ]
    digest = lambda f: jaxpr_digest([jax.make_jaxpr(f)(np.ones(3))])
    digests = [digest(f) for f in programs]
    assert len(set(digests)) == len(programs)
    assert digests == [digest(f) for f in programs]


def test_key_refuses_what_it_does_not_know():
    with pytest.raises(Unhashable):
        jaxpr_digest([jax.make_jaxpr(lambda x: jax.pure_callback(np.sin, x, x))(np.ones(3))])
