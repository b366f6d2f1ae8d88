"""Malformed calls of everything public: one or two arguments of a good call are replaced by values that do not fit.

Each call must end in one of two ways: a GeomintError whose message names a replaced argument, or a result whose numbers are
finite. An exception of JAX, numpy, h5py or Python itself, a hang, and a result with NaN are failures.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import geomint as gm

SECONDS = 20  # a call that takes longer hangs


# --- good arguments -------------------------------------------------------------------------------------------------
quartic = gm.System(lambda q: jnp.sum(q**4))
shared = gm.System(lambda q, k: k * jnp.sum(q**4), params=1.0)
stiff = gm.System(lambda q: jnp.sum(q**4), fast=lambda q: 50 * q[0] ** 2 + 0.5 * q[1] ** 2)
pendulum = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0)]))
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
    hidden = {"manifold", "plan", "quadratic", "small"}  # found before a run, not given by users
    names = [p for p in inspect.signature(callee).parameters if p not in hidden]
    return Call(name, callee, lambda: dict(needed), tuple(names))


@functools.cache
def calls() -> list[Call]:
    step = {"dt": 0.25, "t_end": 1.0}
    two = [[1.0, 0.5], [0.5, 1.0]]
    several = [
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
        call("methods.named", gm.methods.named, lambda: {"text": "verlet"}),
        call("models.named", gm.models.named, lambda: {"text": "kepler"}),
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
    needed = {"Composition": {"base": gm.Verlet()}, "EnergyStepping": {"height": 0.1}}
    several += [of_signature(name, method, **needed.get(name, {})) for name, method in gm.methods.classes().items()]
    small = {"lennard_jones_cluster": {"n": 3}, "morse_cluster": {"n": 3}}
    several += [of_signature(f"models.{name}", make, **small.get(name, {})) for name, make in gm.models.all().items()]
    return [c for c in several if c.open]


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


# --- numpy scalars --------------------------------------------------------------------------------------------------
PLAIN = [  # a class, settings in Python's numbers, the same in numpy's and others
    (
        gm.ZhangSkeel,
        {"beta": 0.25},
        [
            {"beta": np.float64(0.25)},
            {"beta": np.float32(0.25)},
            {"beta": np.array(0.25)},
            {"beta": jnp.array(0.25)},
            {"beta": Fraction(1, 4)},
        ],
    ),
    (
        gm.EnergyStepping,
        {"height": 0.5, "offset": 1.0, "reach": 2.0},
        [{"height": np.float64(0.5), "offset": np.int64(1), "reach": np.float32(2)}],
    ),
    (
        gm.Composition,
        {"base": gm.Verlet(), "order": 8},
        [{"base": gm.Verlet(), "order": np.int64(8)}, {"base": gm.Verlet(), "order": 8.0}],
    ),
    (gm.Gauss, {"stages": 3}, [{"stages": np.int32(3)}, {"stages": np.array(3)}]),
    (gm.LobattoIIIAB, {"stages": 4}, [{"stages": np.int64(4)}]),
    (gm.MultiStage, {"half": (0.25,)}, [{"half": [np.float64(0.25)]}, {"half": np.array([0.25])}]),
    (gm.SymmetricMultistep, {"order": 6}, [{"order": np.int64(6)}]),
    (gm.RESPA, {"inner": 3}, [{"inner": np.uint8(3)}]),
    (gm.Rattle, {"relaxation": 1.5}, [{"relaxation": np.float64(1.5)}]),
    (
        gm.Variational,
        {"quadrature": "galerkin", "degree": 2},
        [{"quadrature": np.str_("galerkin"), "degree": np.int64(2)}],
    ),
    (
        gm.models.fpu,
        {"springs": 4, "omega": 20.0},
        [{"springs": np.int64(4), "omega": np.float64(20.0)}, {"springs": np.array(4), "omega": np.array(20)}],
    ),
    (
        gm.models.heavy_top,
        {"inertia": (0.5, 0.5, 0.75)},
        [{"inertia": np.array([0.5, 0.5, 0.75])}, {"inertia": [np.float64(0.5), 0.5, np.float32(0.75)]}],
    ),
]


@pytest.mark.parametrize(("make", "plain", "others"), PLAIN, ids=lambda x: getattr(x, "__name__", None))
def test_numpy_scalars_are_as_good_as_numbers(make, plain, others):
    told = lambda x: x.system.origin if isinstance(x, gm.models.Model) else x.name
    expected = make(**plain)
    for settings_ in others:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as Equinox's, of arrays in static fields
            made = make(**settings_)
        assert told(made) == told(expected)
        assert isinstance(made, gm.models.Model) or jax.tree.structure(made) == jax.tree.structure(expected)
    assert told((gm.models if isinstance(expected, gm.models.Model) else gm.methods).named(told(expected))) == told(
        expected
    )


def test_a_run_with_numpy_scalars_is_saved_and_resumed(tmp_path):
    model = gm.models.pendulum(length=np.float64(0.5), angle=np.float32(0.5))
    method = gm.ZhangSkeel(beta=np.float64(0.25))
    stated = {"dt": np.float64(0.125), "save_every": np.int64(2), "t0": np.array(0.0), "seed": np.int64(3)}
    gm.simulate(
        model.system,
        model.q0,
        model.v0,
        method=method,
        t_end=np.float32(1),
        output=tmp_path / "run.h5",
        engine="xla",
        **stated,
    )
    run = gm.resume(tmp_path / "run.h5", t_end=np.array(2))
    plain = gm.models.pendulum(length=0.5, angle=0.5)
    whole = gm.simulate(
        plain.system,
        plain.q0,
        plain.v0,
        method=gm.ZhangSkeel(beta=0.25),
        dt=0.125,
        t_end=2.0,
        save_every=2,
        engine="xla",
    )
    assert np.array_equal(run.q, whole.q)
    assert gm.load(tmp_path / "run.h5").method.name == whole.method.name == "ZhangSkeel(beta=0.25)"


def test_settings_of_methods_and_models_may_be_traced():
    assert jax.grad(lambda x: gm.ZhangSkeel(beta=x).beta ** 2)(0.25) == 0.5
    assert jax.grad(lambda x: gm.EnergyStepping(x, reach=x).reach ** 2)(0.25) == 0.5
    assert np.array_equal(jax.vmap(lambda x: gm.Rattle(relaxation=x).relaxation)(jnp.array([0.5, 1.5])), [0.5, 1.5])
    assert jax.grad(lambda x: gm.models.pendulum(length=x).system.mass)(0.5) == 1.0


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
