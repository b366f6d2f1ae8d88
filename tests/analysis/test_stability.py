"""Linear stability from a method's own step, beside theory that does not use the step."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import geomint as gm
from geomint.analysis.measure import step_jacobian

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("docs_figures", ROOT / "docs/figures.py")
assert spec is not None
assert spec.loader is not None
figures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(figures)

ON_GROUPS = lambda m: "lie group" in m.traits.needs  # where no linear test equation exists
ABLE = [m for m in gm.methods.all() if not (m.traits.event_driven or m.traits.stochastic or ON_GROUPS(m))]
FIRST = {type(m): m.name for m in reversed(ABLE)}  # of each class; the others wait for the slow tests


@pytest.mark.parametrize(
    "method", [pytest.param(m, id=m.name, marks=[] if FIRST[type(m)] == m.name else pytest.mark.slow) for m in ABLE]
)
def test_as_in_theory(method):
    """The limit, and for 2×2 matrices every unstable window, against the trace by hand on a grid of a million
    points."""
    _, known = figures.theory(method)
    if known is None:
        pytest.skip("no theory written down")
    diagram = gm.stability_diagram(method)
    assert np.all(diagram.growth[diagram.frequencies < diagram.limit] < 1 + 1e-6)
    if not callable(known):
        assert diagram.limit == pytest.approx(known, abs=1e-6)
        return
    expected = figures.windows(known, diagram.frequencies[-1])
    assert len(diagram.unstable) == len(expected)
    assert np.array(diagram.unstable) == pytest.approx(np.array(expected), abs=1e-6)


def test_numbers():
    """Written out, so that nothing computed is compared with itself."""
    limit = lambda m, **settings: gm.stability_diagram(m, **settings).limit
    assert limit(gm.Verlet()) == pytest.approx(2, abs=1e-9)
    assert limit(gm.SymplecticEuler()) == pytest.approx(2, abs=1e-9)
    # Kick b, drift ½, kick ½ − b is half of the two-stage step; where an entry of its matrix vanishes, the trace is ∓2.
    for scheme, b in (("two-stage", 0.211781), ("two-stage-linear", (3 - 3**0.5) / 6)):
        ends = np.sqrt([4 / (1 - 2 * b), 2 / b, 1 / (b * (0.5 - b))])
        assert np.ravel(gm.stability_diagram(gm.Splitting(scheme)).unstable)[:3] == pytest.approx(ends, abs=1e-9)
    assert limit(gm.RungeKutta4()) == pytest.approx(8**0.5, abs=1e-6)
    lobatto = gm.stability_diagram(gm.LobattoIIIAB(3))
    assert np.ravel(lobatto.unstable)[:3] == pytest.approx([8**0.5, 12**0.5, 24**0.5], abs=1e-6)
    assert lobatto.last == pytest.approx(24**0.5, abs=1e-6)
    lobatto = gm.stability_diagram(gm.LobattoIIIAB(4))
    squares = [42 - 1044**0.5, 10, 30, 60, 42 + 1044**0.5]
    assert np.ravel(lobatto.unstable)[:5] ** 2 == pytest.approx(squares, abs=1e-5)


def test_lobatto_by_hand():
    """The explicit matrix of the IIIA–IIIB pair with three stages, from the coefficients in the books."""
    a = np.array([[0, 0, 0], [5 / 24, 1 / 3, -1 / 24], [1 / 6, 2 / 3, 1 / 6]])
    b = np.array([[1 / 6, -1 / 6, 0], [1 / 6, 1 / 3, 0], [1 / 6, 5 / 6, 0]])
    weights = np.array([1 / 6, 2 / 3, 1 / 6])
    one, zero = np.ones(3), np.zeros(3)
    for x in (0.5, 2.0, 3.1, 4.0, 6.0):
        # Q = q + x a P, P = p − x b Q
        system = np.block([[np.eye(3), -x * a], [x * b, np.eye(3)]])
        stages = np.linalg.solve(system, np.array([[*one, *zero], [*zero, *one]]).T)
        matrix = np.eye(2) + x * np.array([weights @ stages[3:], -weights @ stages[:3]])
        diagram = gm.stability_diagram(gm.LobattoIIIAB(3))
        at = np.argmin(abs(diagram.frequencies - x))
        assert diagram.frequencies[at] == pytest.approx(x)
        assert diagram.growth[at] == pytest.approx(max(abs(np.linalg.eigvals(matrix))), abs=1e-7)


@pytest.mark.parametrize("kind", [gm.ZhangSkeel, gm.SimplifiedZhangSkeel, gm.PushforwardNewmark, gm.Newmark])
def test_filtered(kind):
    for beta in (0.0, 0.1, 0.2):
        assert gm.stability_diagram(kind(beta=beta)).limit == pytest.approx(2 / np.sqrt(1 - 4 * beta), abs=1e-6)
    for beta in (0.25, 0.3):
        assert gm.stability_diagram(kind(beta=beta), largest=1000.0).limit == np.inf


def test_a_limit_before_the_first_point():
    assert gm.stability_diagram(gm.Verlet(), largest=1e4).limit == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize(
    "method", [gm.ImplicitMidpoint(), gm.Gauss(2), gm.Gauss(4), gm.Variational("midpoint")], ids=lambda m: m.name
)
def test_no_limit(method):
    assert gm.stability_diagram(method, largest=1e4).limit == np.inf


@pytest.mark.parametrize("a", [None, (0.5,), (-0.3,), (-0.7, 0.4), (-0.8, -0.4, 0.7)])
def test_multistep(a):
    """The eigenvalues of the carry leave the circle at the end of the interval of periodicity."""
    method = gm.SymmetricMultistep(8) if a is None else gm.SymmetricMultistep(a=a, unsafe=True)
    assert gm.stability_diagram(method, largest=4.0).limit == pytest.approx(method.periodicity, abs=1e-6)


# --- on a manifold --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "free", "limit"),
    [
        (gm.Rattle(), gm.Verlet(), 2.0),
        (gm.Rattle(gm.Verlet(form="drift")), gm.Verlet(), 2.0),
        (gm.Shake(), gm.Verlet(), 2.0),
        (gm.Rattle("two-stage"), gm.Splitting("two-stage"), (4 / (1 - 2 * 0.211781)) ** 0.5),
        (gm.Rattle("three-stage"), gm.Splitting("three-stage"), 4.66185),
        (gm.Rattle("blanes-moan"), gm.Splitting("blanes-moan"), 3.13282),
        (gm.Composition(gm.Rattle(), 4, "yoshida"), gm.Splitting("forest-ruth"), 1.57340),
        (gm.Composition(gm.Rattle(), 4), gm.Composition(gm.Verlet(), 4), 2.72097),
        (gm.Composition(gm.Rattle(), 6), gm.Composition(gm.Verlet(), 6), 2.53263),
        (gm.Composition(gm.Rattle(), 8), gm.Composition(gm.Verlet(form="drift"), 8), 3.09644),
    ],
    ids=lambda x: getattr(x, "name", ""),
)  # fmt: skip
def test_along_a_line(method, free, limit):
    """Every window is that of the splitting it is built on, which knows of no constraint."""
    diagram, other = gm.stability_diagram(method), gm.stability_diagram(free)
    assert diagram.limit == pytest.approx(limit, abs=1e-5)
    assert np.array(diagram.unstable) == pytest.approx(np.array(other.unstable), abs=1e-9)


def test_imex_along_a_line():
    method = gm.Rattle(gm.IMEX())
    assert gm.stability_diagram(method).limit == np.inf
    assert gm.stability_diagram(method, omega=3.0).limit == pytest.approx(2, abs=1e-9)
    assert gm.stability_diagram(method, h=2.01).limit == 0
    composed = [gm.stability_diagram(gm.Composition(base, 4)).unstable for base in (method, gm.IMEX())]
    assert len(composed[0]) == 2
    assert np.array(composed[0]) == pytest.approx(np.array(composed[1]), abs=1e-8)


class MultistepOnManifolds(gm.SymmetricMultistep):
    """Says that it moves constrained systems only."""

    @property
    def traits(self):
        return dataclasses.replace(super().traits, free=False)


def test_multistep_along_a_line():
    """Normal to it only the multipliers remember, by the roots of σ, which lie on the circle."""
    method = MultistepOnManifolds(6)
    windows = [np.array(gm.stability_diagram(m, largest=2.0).unstable) for m in (method, gm.SymmetricMultistep(6))]
    assert windows[0] == pytest.approx(windows[1], abs=1e-6)


@pytest.mark.parametrize(
    "method",
    [gm.Rattle(), gm.Shake(), gm.Rattle("two-stage"), gm.Composition(gm.Rattle(), order=4)],
    ids=lambda m: m.name,
)
def test_a_pendulum_at_rest_grows_as_the_diagram_says(method):
    """ω = 1, by the pull of the rod alone."""
    system = gm.System(lambda q: q[1], constraint=lambda q: (q @ q - 1)[None])
    bottom, diagram = np.array([0.0, -1.0]), gm.stability_diagram(method)
    prepared = gm.methods.protocols.prepare(method, [(system, bottom)])
    for x in (0.5, 1.9, 2.1, 2.8, 4.5):
        at = np.argmin(abs(diagram.frequencies - x))
        sideways = step_jacobian(prepared, system, bottom, np.zeros(2), diagram.frequencies[at])[::2, ::2]
        assert max(abs(np.linalg.eigvals(sideways))) == pytest.approx(diagram.growth[at], rel=1e-6)


# --- fast and slow --------------------------------------------------------------------------------------------------
def test_imex_has_the_limit_of_its_slow_part():
    for omega in (0.5, 3.0, 100.0):
        assert gm.stability_diagram(gm.IMEX(), omega=omega).limit == pytest.approx(2, abs=1e-4)
    assert gm.stability_diagram(gm.IMEX(), h=2.0).limit == np.inf
    too_long = gm.stability_diagram(gm.IMEX(), h=2.01)
    assert too_long.unstable == ((0.0, too_long.frequencies[-1]),)
    assert "unstable for every" in str(too_long)


@pytest.mark.parametrize("h", [0.05, 0.1, 0.3])
def test_impulse_resonates_below_multiples_of_pi(h):
    """2cot(x/2) = h²/x and so on: the windows end at kπ and are about h²/kπ wide."""
    windows = gm.stability_diagram(gm.Impulse(), h=h).resonances
    assert len(windows) == 4
    for k, (low, high) in enumerate(windows, 1):
        assert high == pytest.approx(k * np.pi, abs=1e-6)
        assert high - low == pytest.approx(h**2 / (k * np.pi), rel=0.1 * h)


def test_respa_resonates_where_its_inner_steps_turn_by_pi():
    for inner in (2, 4, 8):
        diagram = gm.stability_diagram(gm.RESPA(inner), largest=2.2 * inner)
        ends = [2 * inner * np.sin(k * np.pi / (2 * inner)) for k in range(1, inner)]
        assert [high for _, high in diagram.resonances] == pytest.approx(ends, abs=1e-5)
        assert diagram.last == pytest.approx(2 * inner, abs=1e-2)


def test_a_run_grows_as_the_diagram_says():
    """In the middle of the first window of Impulse, and beside it."""
    diagram, h, steps = gm.stability_diagram(gm.Impulse(), h=0.3), 0.3, 4000
    low, high = diagram.resonances[0]
    inside = (diagram.frequencies > low) & (diagram.frequencies < high)
    worst = np.argmax(np.where(inside, diagram.growth, 0))
    for x, growth in ((diagram.frequencies[worst], diagram.growth[worst]), (low - 0.02, 1.0)):
        system = gm.System(potential=_slow, fast=_fast, params=float((x / h) ** 2))
        run = gm.simulate(
            system, np.ones(1), np.ones(1), method=gm.Impulse(), dt=h, t_end=steps * h, save_every=steps // 2
        )
        rate = np.log(run.energy[-1] / run.energy[-2]) / steps
        assert rate == pytest.approx(np.log(growth), abs=2e-4)


def _slow(q, square):
    return 0.5 * (q**2).sum()


def _fast(q, square):
    return 0.5 * square * (q**2).sum()


# --- what is told ---------------------------------------------------------------------------------------------------
class OwnTimes(gm.Verlet):
    @property
    def traits(self):
        return dataclasses.replace(super().traits, event_driven=True)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (gm.Verlet, {}, "is the class"),
        (OwnTimes(), {}, "chooses its own times"),
        (gm.Verlet(), {"h": 0.1}, "fast part"),
        (gm.IMEX(), {"h": 0.1, "omega": 3.0}, "not both"),
        (gm.Verlet(), {"largest": -1.0}, "largest"),
        (gm.Verlet(), {"points": 2}, "points"),
        (gm.IMEX(), {"h": float("nan")}, "h=nan"),
    ],
)  # fmt: skip
def test_bad_input(method, settings, message):
    with pytest.raises(gm.InputError, match=message):
        gm.stability_diagram(method, **settings)


def test_told_and_drawn(tmp_path):
    diagram = gm.stability_diagram(gm.Splitting("blanes-moan"))
    text = str(diagram)
    assert text.startswith("Splitting(scheme='blanes-moan'): stable for hω up to 3.13282")
    assert "resonance 3.13282 … 3.16011" in text
    assert "unstable from 8.03044 on" in text
    assert str(gm.stability_diagram(gm.Gauss(2))) == "Gauss(): stable for every hω up to 20"
    assert "and 55 more" in str(gm.stability_diagram(gm.Impulse(), omega=50.0))
    diagram.plot(tmp_path / "stability")
    assert (tmp_path / "stability.png").stat().st_size > 1000
    gm.stability_diagram(gm.Gauss(2)).plot()


def test_page_lists_every_method():
    page = (ROOT / "docs/stability.md").read_text()
    missing = [m.name for m in ABLE if f"| `{m.name}` |" not in page]
    assert not missing, "run `python docs/figures.py stability`"
