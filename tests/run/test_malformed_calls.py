"""Malformed calls of everything public: one or two arguments of a good call are replaced by values that do not fit.

Each call must end in one of two ways: a GeomintError whose message names a replaced argument, or a result whose numbers
are finite. An exception of JAX, numpy, h5py or Python itself, a hang, and a result with NaN are failures."""

from __future__ import annotations

import contextlib
import re
import signal
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import geomint as gm
from helpers.good_calls import Call, calls, folder, pendulum, quartic, rolling, springs, written

SECONDS = 20  # a call that takes longer hangs


# --- bad ones -------------------------------------------------------------------------------------------------------
class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text for this")


class Odd(float):
    """A float whose text is not that of a number."""

    def __repr__(self) -> str:
        return "odd"


def bad_values() -> dict[str, Callable[[], Any]]:
    """By their text; made anew for every call, since a generator can be used up."""
    plain = [
        None, "a", "", "0.1", "Verlet", "x\0y", b"a", float("nan"), float("inf"), -float("inf"), -1, -1.5, 0, 0.0,
        -0.0, 1, 2, 0.5, True, False, 10**12, 10**30, -(10**30), 1e300, 1e-300,
        1j, [], (), [[]], [1, [2, 3]], [None], ["a", "b"], [1.0, 2.0, 3.0], [0, 1], [[0, 1]], [(0, "a")], [(0, 5)],
        [-1], {}, {"a": 1}, {1: 2}, {"a": gm.Mean("energy")}, set(), Fraction(1, 2), Decimal("0.5"),
        Decimal("NaN"), range(3), slice(3), Ellipsis, int, float, gm.Verlet, gm.Verlet(), gm.Rattle(), gm.System,
        quartic, pendulum, rolling, gm, Path("/nonexistent/folder/x.h5"),
        Path("/"), "a" * 5000, gm.Mean, gm.Mean("energy"), gm.Rotation, gm.Rotation(), gm.OnSphere(),
        gm.models.kepler, Odd(0.5),
    ]  # fmt: skip
    arrays = [
        np.array([]), np.zeros((0, 2)), np.array([1.0, np.nan]), np.array(["a"]), np.array([None, 1]),
        np.zeros((2, 3, 4)), np.full((2, 2), np.nan), np.array([1.0, np.inf]), np.array([1.0, 2.0]),
        np.ones((2, 2)), np.array([1j, 2]), np.array([True, False]), np.array(np.nan), np.array(0.5), np.array(2),
        np.array("a"),
        np.array(None), np.float64(0.5), np.float64("nan"), np.float32(0.5), np.int64(2), np.int64(-1),
        np.bool_(True), np.str_("a"), np.datetime64("2020-01-01"), np.timedelta64(1, "s"), np.ma.masked,
        np.zeros(2, "i4,f8"), jnp.array(0.5), jnp.array(2),
        jnp.array(jnp.nan), jnp.array([1.0, 2.0]), jnp.zeros((3, 3)), jax.ShapeDtypeStruct((2,), float),
        jax.random.key(0),
    ]  # fmt: skip
    functions: dict[str, Callable] = {
        "lambda: 0": lambda: 0, "lambda a, b, c, d, e: 0": lambda a, b, c, d, e: 0,
        "lambda *, q: 0": lambda *, q: 0, "lambda *x: None": lambda *x: None, "lambda *x: 'a'": lambda *x: "a",
        "lambda *x: x": lambda *x: x,
        "lambda q, *x: q": lambda q, *x: q, "lambda q, *x: np.sin(q)": lambda q, *x: np.sin(q),
        "lambda q, *x: q[:, :, :]": lambda q, *x: q[:, :, :], "lambda q, *x: float(q)": lambda q, *x: float(q),
        "lambda q, *x: q.missing": lambda q, *x: q.missing,
        "lambda q, *x: 1 / 0": lambda q, *x: 1 / 0, "lambda q, *x: {}['a']": lambda q, *x: {}["a"],
        "lambda q, *x: sum(q) * nan": lambda q, *x: jnp.sum(q) * jnp.nan,
        "lambda q, *x: 1j * sum(q)": lambda q, *x: 1j * jnp.sum(q),
        "lambda q, *x: int(1)": lambda q, *x: 1, "lambda q, *x: q @ ones(7)": lambda q, *x: q @ jnp.ones(7),
        "lambda q, *x: if": lambda q, *x: jnp.sum(q) if jnp.sum(q) > 0 else 0, "math.sin": __import__("math").sin,
        "dict": dict, "str.upper": str.upper,
        "lambda *x: object()": lambda *x: object(), "lambda *x: [1, [2]]": lambda *x: [1, [2]],
        "lambda *x: {'a': 1}": lambda *x: {"a": 1}, "lambda q, *x: q.shape": lambda q, *x: q.shape,
        "lambda q, *x: sum(q) > 0": lambda q, *x: jnp.sum(q) > 0,
    }  # fmt: skip
    made: dict[str, Callable[[], Any]] = {
        "a generator": lambda: (x for x in range(3)), "an iterator of floats": lambda: iter([0.1, 0.2]),
        "object()": object, "unprintable": Unprintable, "a model": gm.models.kepler, "a run": springs,
        "an archive": written, "an existing file": lambda: folder() / "written.h5", "a folder": folder,
        "a text file": lambda: _text_file(), "a dict of arrays": lambda: {"a": np.ones(3), "b": "c"},
    }  # fmt: skip
    made |= {" ".join(repr(x).split())[:60]: (lambda x=x: x) for x in (*plain, *arrays)}
    return made | {name: (lambda f=f: f) for name, f in functions.items()}


def _text_file() -> Path:
    path = folder() / "text.h5"
    path.write_text("this is no archive")
    return path


# --- the oracle -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def time_limit():
    def late(*_: Any) -> None:
        raise TimeoutError(f"the call did not end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def shown(x: Any) -> str:
    try:
        return repr(x)[:60]
    except Exception:
        return ""


def numbers_in(result: Any) -> list[Any]:
    """The numbers of a result that must be finite."""
    if isinstance(result, gm.Trajectory):
        kept = [result.t, *(result.columns[name] for name in ("q", "p", "energy") if name in result.columns)]
        # A mean over no member is NaN; `members` says over how many it was taken.
        means = (
            []
            if result.summary is None
            else [r.results["mean"][r.members > 0] for r in result.reduced.values() if "mean" in r.results]
        )
        return [*kept, *means]
    if isinstance(result, gm.models.Model):
        return [result.q0, result.v0, result.dt, result.t_end, *jax.tree.leaves(result.system)]
    if isinstance(result, gm.StabilityDiagram):
        return [result.frequencies, result.limit if result.unstable else 0.0]
    if isinstance(result, gm.Certificate):
        return [result.dt, result.large_dt]
    if isinstance(result, (gm.System, gm.LagrangianSystem)):
        return [getattr(result, "mass", 0.0)]
    if isinstance(
        result,
        (
            np.ndarray,
            gm.methods.Method,
            gm.Constraint,
            gm.Translation,
            gm.Rotation,
            gm.Generator,
            gm.Mean,
            gm.Quantiles,
            gm.Histogram,
            gm.RadialDistribution,
        ),
    ):
        return jax.tree.leaves(result)
    return list(result) if isinstance(result, tuple) else []


# Where a function and the start do not fit each other, a message may name the q that the function was called with.
ALIASES = {"q0": ("q",), "q0s": ("q",), "v0": ("v",), "run": ("system",)}


def fault(c: Call, replaced: dict[str, Any]) -> str | None:
    """What is wrong with the outcome of a call, or None."""
    arguments = {**c.arguments(), **replaced}
    try:
        with time_limit(), warnings.catch_warnings(), contextlib.chdir(folder()):
            warnings.simplefilter("ignore")
            result = c.callee(**arguments)
    except gm.RunStopped as stopped:  # a motion that ends early is an outcome; its message says at which step
        return None if re.search(r"at step \d+", str(stopped)) else f"RunStopped without a step: {stopped}"
    except gm.GeomintError as error:
        words = [word for name in replaced for word in (name, *ALIASES.get(name, ()))]
        words += [
            str(x) for x in replaced.values() if isinstance(x, (str, Path)) and str(x)
        ]  # a file is named by its path
        named = any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", str(error)) for word in words)
        return None if named and str(error).strip() else f"{type(error).__name__} does not name the argument: {error}"
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:200]}"
    for x in numbers_in(result):
        try:
            finite = not isinstance(x, (str, bytes)) and bool(np.all(np.isfinite(np.asarray(x, float))))
        except (TypeError, ValueError):
            finite = False
        if not finite:
            return f"a result with {type(x).__name__} {shown(x)} in it"
    return _fault_of_name(result) if isinstance(result, gm.methods.Method) and result.complete_name else None


def _fault_of_name(method: gm.methods.Method) -> str | None:
    try:
        again = gm.methods.named(method.name).name
    except Exception as error:
        again = str(error)
    return None if again == method.name else f"the name {method.name} does not make the method again: {again}"


def drawn(choose: Callable[[list], Any]) -> tuple[Call, dict[str, Callable[[], Any]], str]:
    """A call, its replaced arguments, and both as text."""
    c = choose(calls())
    count = choose([1, 1, 2])
    values = bad_values()
    replaced = {choose(list(c.open)): choose(list(values)) for _ in range(count)}
    return (
        c,
        {name: values[value] for name, value in replaced.items()},
        f"{c.name}({', '.join(f'{k}={v}' for k, v in replaced.items())})",
    )


def check(data: st.DataObject) -> None:
    c, replaced, text = drawn(lambda several: data.draw(st.sampled_from(several)))
    wrong = fault(c, {name: make() for name, make in replaced.items()})
    assert wrong is None, f"{text}: {wrong}"


quick = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@given(st.data())
@quick
def test_malformed_calls(data):
    check(data)


@pytest.mark.slow
@given(st.data())
@settings(quick, max_examples=2000)
def test_many_malformed_calls(data):
    check(data)
