"""Bad input gets an error that names the argument and says what to do; nothing saved is lost."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.system import checks

quartic = gm.System(lambda q: jnp.sum(q**4))


def go(system=quartic, q0=(1.0, 0.5), v0=None, method=None, dt=0.1, t_end=1.0, **more):
    return gm.simulate(system, q0, v0, method=method or gm.Verlet(), dt=dt, t_end=t_end, **more)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"system": gm.System(lambda q: q**2)}, r"potential\(q\).*\(2,\).*sum"),
        ({"system": gm.System(lambda q: jnp.sum(q**2, keepdims=True))}, r"potential\(q\).*one number"),
        ({"system": gm.System(lambda q: jnp.sum(q) * 1j)}, "potential.*real"),
        ({"system": gm.System(lambda q: jnp.sum(q.astype(jnp.float32)))}, "potential.*float32"),
        ({"system": gm.System(lambda q: jnp.log(-jnp.sum(q**2)))}, r"potential\(q0\) is not finite"),
        ({"q0": [1.0, np.nan]}, "q0.*not finite"),
        ({"q0": ["a", "b"]}, "q0 must be an array of numbers"),
        ({"q0": [1j, 2]}, "q0 must be real"),
        ({"v0": [1.0]}, r"v0 has shape \(1,\).*q0 has shape \(2,\)"),
        ({"v0": [1.0, 0.0], "p0": [1.0, 0.0]}, "v0 or p0, not both"),
        ({"p0": [[1.0, 0.0]]}, "p0 has shape"),
        ({"system": gm.System(lambda q: jnp.sum(q**2), mass=[1.0, 2.0, 3.0])}, r"mass has shape \(3,\).*\(2,\)"),
        ({"system": gm.System(lambda q: jnp.sum(q**2), mass=[[1.0, 2.0], [2.0, 1.0]])}, "positive definite.*-1"),
        ({"system": gm.System(lambda q: jnp.sum(q**2), mass=[[1.0, 2.0], [0.0, 1.0]])}, "symmetric"),
        ({"dt": 0.0}, "dt must be positive"),
        ({"dt": -0.1}, "dt must be positive"),
        ({"dt": float("nan")}, "dt must be finite"),
        ({"dt": "fast"}, "dt must be a number"),
        ({"t_end": -1.0}, "t_end = -1 lies before t0 = 0"),
        ({"t_end": float("inf")}, "t_end must be finite"),
        ({"dt": 0.3}, r"3.33333 steps.*t_end = 0\.9 or 1\.2.*dt = 0\.25 or 0\.333"),
        ({"t_end": 1.0005}, r"10.005 steps of dt = 0.1, not a whole number.*t_end = 1 or 1\.1"),
        ({"save_every": 3}, "save_every = 3 does not divide the 10 steps.*2 or 5"),
        ({"save_every": 0}, "save_every must be a whole number"),
        ({"save_every": "a"}, "save_every must be a whole number"),
        ({"method": gm.Verlet}, r"write Verlet\(\)"),
        ({"method": "verlet"}, r"gm\.methods"),
        ({"engine": "xls"}, "xla"),
        ({"engine": 3}, "engine must be one of 'auto', 'xla', 'native', 'kernel', not 3"),
        ({"engine": ["xla"]}, "engine must be one of"),
        ({"seed": 1.9}, "seed must be an integer, not 1.9"),
        ({"seed": "a"}, "seed must be an integer, not 'a'"),
        ({"seed": None}, "seed must be an integer, not None"),
        (
            {"system": gm.System(lambda q: jnp.sum(q**2), constraint=lambda q: q[:1])},
            "does not integrate constrained systems",
        ),
    ],
)
def test_messages(arguments, words):
    with pytest.raises(gm.GeomintError, match=words):
        go(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"v0s": [[1.0, 0.0]]}, r"v0s has shape \(1, 2\), but q0s has shape \(3, 2\)"),
        ({"v0s": np.ones((3, 2)), "p0s": np.ones((3, 2))}, "v0s or p0s, not both"),
        ({"keep": 3}, "keep must list members by their numbers, 0 to 2, not 3"),
        ({"keep": [0, 3]}, "keep must list members by their numbers, 0 to 2"),
        ({"keep": [-4]}, "keep must list members by their numbers, 0 to 2"),
        ({"seed": [1, 2]}, "one integer for each of the 3 members"),
        ({"seed": 1.9}, "seed must be an integer"),
        (
            {"q0s": [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]], "system": gm.System(lambda q: jnp.sum(jnp.log(q)))},
            r"the energy at q0 of member 1 is nan: potential",
        ),
    ],
)
def test_messages_of_ensembles(arguments, words):
    with pytest.raises(gm.InputError, match=words):
        gm.ensemble(
            **{"system": quartic, "q0s": np.ones((3, 2)), "method": gm.Verlet(), "dt": 0.1, "t_end": 1.0, **arguments}
        )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gm.System(potential=3.0), "potential must be a function"),
        (lambda: gm.System(mass=-1.0), "mass must be positive"),
        (lambda: gm.System(mass=[1.0, np.inf]), "mass has entries that are not finite"),
        (lambda: gm.System(mass="heavy"), "mass must be a number"),
        (lambda: gm.System(symmetries=(gm.Rotation,)), r"Rotation\(\)"),
        (lambda: gm.System(overrides={"gradiant": jnp.sin}), "gradiant.*gradient"),
        (lambda: gm.Rotation((0, 0)), "two different"),
        (lambda: gm.Generator(np.ones((2, 3))), "square"),
        (lambda: gm.models.named("fpuu"), "no model named 'fpuu'.*fpu"),
        (lambda: gm.methods.named("verlett"), "no method named 'verlett'.*Verlet"),
        (lambda: gm.methods.named("Verlet(shape='kick')"), "shape"),
        (lambda: gm.methods.named("__import__('os')"), "no method named"),
        (lambda: gm.Composition(gm.RungeKutta4()), "symmetric.*RungeKutta4"),
        (lambda: gm.Composition(gm.Verlet(), order=5), "4, 6 or 8"),
        (lambda: gm.Composition(gm.Verlet(), order=8, scheme="suzuki"), "no such scheme"),
        (lambda: gm.Gauss(7), "1, 2, 3 or 4"),
        (lambda: gm.Splitting("two-stages"), "two-stage"),
        (lambda: gm.Verlet(form="leap"), "'kick' or 'drift'"),
        (lambda: gm.models.kepler(eccentricity=2.0), "eccentricity"),
        (lambda: gm.models.fpu(springs=0), "springs"),
        (lambda: gm.project(gm.models.double_pendulum(), [1.0]), r"model\.system"),
    ],
)
def test_messages_of_construction(make, words):
    with pytest.raises(gm.GeomintError, match=words):
        make()


def test_checks_of_arguments():
    """A bound from above is named; a tracer and a text that is no file name are refused by an InputError."""
    with pytest.raises(gm.InputError, match="largest must be a number above 0 and of at most 1"):
        checks.number(5, "largest", "stability_diagram", above=0.0, most=1.0)
    with pytest.raises(gm.InputError, match="x must be positive"):
        checks.number(-5, "x", above=0.0)
    for check in (lambda x: checks.choice(x, "x", "f", (1, 2)), lambda x: checks.vector([x, 1.0], "x", "f")):
        with pytest.raises(gm.InputError, match="f.*x must be"):
            jax.jit(check)(1.0)
    with pytest.raises(gm.InputError, match="path must be a path that the file system can encode"):
        gm.load("a\ud800")
    for x, given in ((3, "int"), (dict, "the class dict")):
        with pytest.raises(gm.InputError, match=rf"f\(x=...\): x must be a function of \(q, p\), not {given}\."):
            checks.function(x, "x", "f", of="(q, p)")


def test_integers_and_float32_are_widened():
    for q0 in ([1, 2], np.array([1, 2], np.int32), np.array([1, 2], np.float32), jnp.array([1, 2], jnp.float32)):
        run = go(q0=q0)
        assert run.q.dtype == run.p.dtype == run.energy.dtype == np.float64
    assert np.array_equal(run.q, go(q0=[1.0, 2.0]).q)
    system = gm.System(lambda q, k: k * jnp.sum(q**4), params=np.float32(0.5), mass=np.float32(2))
    assert system.params.dtype == system.mass.dtype == np.float64


def test_float32_constants_are_pointed_out():
    stiffness = np.float32(0.1) * np.ones(2, np.float32)
    with pytest.warns(UserWarning, match=r"potential\(q\) uses numbers in float32"):
        go(gm.System(lambda q: jnp.sum(stiffness * q**2)))


def test_a_wrong_derivative_by_hand_is_caught():
    right = gm.System(lambda q: jnp.sum(q**4), overrides={"gradient": lambda q: 4 * q**3})
    wrong = gm.System(lambda q: jnp.sum(q**4), overrides={"gradient": lambda q: 3 * q**3})
    np.testing.assert_allclose(go(right).q, go(quartic).q, rtol=1e-14)
    with pytest.raises(gm.InputError, match="gradient.*differs from the automatic derivative"):
        go(wrong)
    with pytest.raises(gm.InputError, match="gradient.*differs from the automatic derivative"):
        gm.ensemble(wrong, np.ones((3, 2)), method=gm.Verlet(), dt=0.1, t_end=1.0)


def test_a_slightly_wrong_derivative_by_hand_is_caught():
    """A coefficient that is off by 1e-5: the energy would drift, and nothing else would tell."""
    make = lambda k: gm.System(lambda q: jnp.sum(q**4), overrides={"gradient": lambda q: k * q**3})
    go(make(4.0))
    with pytest.raises(gm.InputError, match=r"'gradient'\] differs from the automatic derivative at q0 by 4e-05"):
        go(make(4.00004))


def test_a_wrong_derivative_by_hand_is_caught_where_members_have_their_own_params():
    make = lambda factor: gm.System(
        lambda q, k: k * jnp.sum(q**4), params=1.0, overrides={"gradient": lambda q, k: factor * k * q**3}
    )
    own = lambda system: gm.ensemble(
        system, np.ones((3, 2)), params=np.array([1.0, 2.0, 3.0]), method=gm.Verlet(), dt=0.1, t_end=1.0
    )
    own(make(4.0))
    with pytest.raises(gm.InputError, match="gradient.*differs from the automatic derivative"):
        own(make(3.0))


def test_a_run_is_not_resumed_with_another_derivative_by_hand(tmp_path):
    make = lambda factor: gm.System(lambda q: jnp.sum(q**4), overrides={"gradient": lambda q: factor * q**3})
    for name, system in (("plain.h5", quartic), ("by_hand.h5", make(4.0))):
        go(system, output=tmp_path / name)
        with pytest.raises(gm.ArchiveError, match="the system given is not the one that was run"):
            gm.resume(tmp_path / name, system=make(3.0), t_end=2.0)
    run = gm.resume(tmp_path / "by_hand.h5", system=make(4.0), t_end=2.0)
    assert np.array_equal(run.q, go(make(4.0), t_end=2.0).q)


def test_a_run_that_turns_non_finite_keeps_what_it_has(tmp_path):
    """q̈ = 4q³ from q = 1 at rest reaches infinity in a finite time, ∫₁^∞ dq/√(2(q⁴ − 1)) = .93; steps of .01 follow it
    there."""
    escape = gm.System(lambda q: -jnp.sum(q**4))
    with pytest.raises(gm.RunStopped, match=r"non-finite at step (\d+), t = .*smaller|try dt") as stopped:
        gm.simulate(escape, [1.0], method=gm.Verlet(), dt=0.01, t_end=10.0, save_every=10, output=tmp_path / "run.h5")
    error = stopped.value
    assert error.time == pytest.approx(error.step * 0.01)
    assert 0.9 < error.time < 1.1
    assert len(error.run) == error.step // 10 + (error.step % 10 > 0)
    assert np.isfinite(error.run.q).all()
    assert np.isfinite(error.q).all()
    assert np.array_equal(gm.load(tmp_path / "run.h5").q, error.run.q)
    # The step it names is the first bad one: the step before it can be run, that step can't.
    good = gm.simulate(
        escape, [1.0], method=gm.Verlet(), dt=0.01, t_end=(error.step - 1) * 0.01, save_every=error.step - 1
    )
    assert np.array_equal(good.q[-1], error.q)
    with pytest.raises(gm.RunStopped):
        gm.simulate(escape, [1.0], method=gm.Verlet(), dt=0.01, t_end=error.step * 0.01)


def test_a_singular_force_is_named():
    cusp = gm.System(lambda q: jnp.sqrt(jnp.sum(q**2)))
    with pytest.raises(gm.RunStopped, match="at step 1,.*force at the last good state is not finite"):
        go(cusp, q0=[0.0, 0.0], v0=[0.0, 0.0])


def test_an_unsolved_stage_is_named():
    with pytest.raises(gm.RunStopped, match="did not converge"):
        gm.simulate(gm.System(lambda q: -jnp.sum(q**4)), [1.0], method=gm.Gauss(2), dt=0.05, t_end=10.0)


def test_a_failing_member_does_not_stop_the_others():
    escape = gm.System(lambda q: -jnp.sum(q**4) + 0.5 * jnp.sum(q**2))
    run = gm.ensemble(escape, [[0.1], [1.0], [0.2]], method=gm.Verlet(), dt=0.01, t_end=3.0, save_every=10)
    assert run.failed_at[0] == run.failed_at[2] == -1
    assert 0 < run.failed_at[1] < 30
    alone = gm.simulate(escape, [0.2], method=gm.Verlet(), dt=0.01, t_end=3.0, save_every=10)
    np.testing.assert_allclose(run.q[2], alone.q, rtol=1e-13)
    with pytest.raises(gm.RunStopped):
        gm.ensemble(escape, [[1.0], [1.1]], method=gm.Verlet(), dt=0.01, t_end=3.0, save_every=10)


def test_inside_a_transformation():
    with pytest.raises(gm.InputError, match="dt must be a plain number"):
        jax.jit(lambda h: go(dt=h).q)(0.1)
    with pytest.raises(gm.GeomintError, match="output="):
        jax.grad(lambda q: go(q0=q, output="x.h5").energy[-1])(jnp.ones(2))


def test_an_unknown_attribute_lists_what_there_is():
    with pytest.raises(AttributeError, match="energy"):
        _ = go().enrgy


def test_nothing_warns_on_good_input():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go()


def in_chunks_of(steps, monkeypatch):
    monkeypatch.setattr(
        "geomint.run.loop._chunk", lambda grid, n, rows, budget: (min(steps, grid.save_every - n % grid.save_every), 1)
    )


def test_a_watched_quantity_may_be_no_number():
    watching = gm.System(lambda q: jnp.sum(q**2) / 2, watch={"log": lambda q, p: jnp.log(q[0])})
    run = gm.simulate(watching, [1.0], method=gm.Verlet(), dt=0.1, t_end=10.0)
    assert np.array_equal(
        run.q, gm.simulate(gm.System(watching.potential), [1.0], method=gm.Verlet(), dt=0.1, t_end=10.0).q
    )
    assert np.array_equal(np.isnan(run.watched["log"]), run.q[:, 0] < 0)
    assert run.failed_at == -1
    for reduce in (None, {"energy": gm.Mean("energy"), "log": gm.Mean("log")}):
        many = gm.ensemble(watching, [[1.0], [-2.0]], method=gm.Verlet(), dt=0.1, t_end=10.0, reduce=reduce)
        assert np.array_equal(many.failed_at, [-1, -1])
    assert np.all(many.members_left == 2)
    assert many.reduced["log"].members.min() < 2


@pytest.mark.parametrize("reduce", [None, {"q": gm.Mean("q")}], ids=["rows", "reduced"])
def test_the_outcome_does_not_depend_on_the_chunks(monkeypatch, reduce):
    """With an energy that has no value on the other side, where no save falls; and with one that overflows before q
    does."""
    halved = gm.System(lambda q: jnp.sum(q**2) / 2 + 1e-30 * jnp.log(q[0]), watch={"log": lambda q, p: jnp.log(q[0])})
    escape = gm.System(lambda q: -jnp.sum(q**4))
    seen = []
    for steps in (1000, 20, 19, 7, 1):
        in_chunks_of(steps, monkeypatch)
        with pytest.raises(gm.RunStopped) as stopped:
            gm.ensemble(escape, [[1.0], [1.1]], method=gm.Verlet(), dt=0.01, t_end=10.0, save_every=500, reduce=reduce)
        run = gm.ensemble(
            halved, [[1.0], [1.2]], method=gm.Verlet(), dt=0.1, t_end=63 * 0.5, save_every=63, reduce=reduce
        )
        q = run.q if reduce is None else run.reduced["q"].mean
        seen.append((stopped.value.step, len(stopped.value.run.t), q.tobytes(), run.failed_at.tolist()))
    assert len(set(map(str, seen))) == 1
    assert run.failed_at.tolist() == [-1, -1]


def test_an_energy_without_a_value_is_named():
    halved = gm.System(lambda q: jnp.sum(q**2) / 2 + 1e-30 * jnp.log(q[0]))
    with pytest.raises(gm.RunStopped, match="energy there is not finite, although q and p are"):
        gm.simulate(halved, [1.0], method=gm.Verlet(), dt=0.1, t_end=10.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gm.System(lambda q: np.sin(q).sum()), "potential uses numpy.*jnp"),
        (lambda: gm.System(lambda q: jnp.sum(q) if q[0] > 0 else 0.0), "potential uses numpy.*`if`"),
        (lambda: gm.System(lambda q, k: jnp.sum(q)), "no params"),
        (lambda: gm.System(lambda q, a, b: jnp.sum(q), params=1.0), "a and b are none of these"),
    ],
)
def test_functions_written_the_wrong_way(make, words):
    with pytest.raises(gm.InputError, match=words):
        gm.simulate(make(), [1.0], method=gm.Verlet(), dt=0.1, t_end=1.0)
