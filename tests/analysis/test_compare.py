"""compare and recommend: errors that are known otherwise, and the choice that follows from them."""

import math

import numpy as np
import pytest

import geomint as gm
from geomint.analysis import recommend as recommending
from geomint.analysis.compare import Comparison, seconds_for
from geomint.analysis.work_precision import Measured

ACCURATE = gm.Composition(gm.Verlet(form="drift"), order=6)


@pytest.fixture(scope="module")
def compared():
    return gm.compare(gm.models.harmonic_oscillator(), [gm.Verlet(), ACCURATE.name], dt=0.1, t_end=20.0, points=3)


def test_the_error_of_verlet_is_that_of_its_frequency(compared):
    """Verlet from q = 0, p = 1 moves as q = A sin(ω_h t), ω_h = (2/h) asin(h/2), A = h/sin(hω_h), and conserves
    p² + (1 − ¼h²) q² = 1; the exact motion is sin t."""
    times = np.arange(1, 21)
    for row in compared.line("Verlet()"):
        h, frequency = row.dt, 2 / row.dt * np.arcsin(row.dt / 2)
        size, exact = h / np.sin(h * frequency), np.sin(times)
        worst = np.max(np.abs(size * np.sin(frequency * times) - exact)) / np.max(np.abs(exact))
        assert row.error == pytest.approx(worst, rel=1e-6)
        steps = h * np.arange(row.steps + 1)
        assert row.energy_error == pytest.approx(
            0.125 * h**2 * np.max(np.abs(size * np.sin(frequency * steps))) ** 2, rel=1e-9
        )
    orders = [r.order for r in compared.rows]
    assert set(orders) == {2, 6}
    assert compared.accuracy < 1e-13
    assert all(row.seconds > 0 for row in compared.rows)


def test_steps_are_halved_and_cost_the_same_at_first(compared):
    verlet, accurate = compared.line("Verlet()"), [r for r in compared.rows if r.order == 6]
    assert [row.steps for row in verlet] == [40, 100, 200]  # of 50, 100, 200, in multiples of the 20 samples
    assert [row.steps for row in accurate] == [20, 40, 80]  # nine forces a step, and at least a step for each sample
    assert compared.best(1e-5) == ACCURATE.name
    with pytest.raises(gm.InputError, match="reaches an error"):
        compared.best(1e-30)
    with pytest.raises(gm.InputError, match=r"best\(accuracy=nan\)"):
        compared.best(float("nan"))
    with pytest.raises(gm.InputError, match=r"no method 'Verlet' .* Did you mean Verlet\(\)"):
        compared.seconds_for("Verlet", 1e-3)


@pytest.mark.parametrize("asked", [lambda system, *start: gm.compare(system, ["verlet"], *start), gm.recommend])
def test_a_system_of_ones_own_needs_an_end(asked):
    settings = {"accuracy": 1e-3} if asked is gm.recommend else {}
    with pytest.raises(gm.InputError, match="needs t_end, or dt"):
        asked(gm.System(lambda q: 0.5 * q[0] ** 2), [1.0], [0.0], **settings)


def test_a_budget_that_nothing_fits():
    with pytest.raises(gm.GeomintError, match="within 1e-12 CPU seconds; give a larger budget"):
        gm.recommend(gm.System(lambda q: 0.5 * q[0] ** 2), [1.0], [0.0], t_end=3.0, budget=1e-12)


def test_tables_and_pictures(compared):
    text = str(compared)
    assert "Verlet()" in text
    assert len(text.splitlines()) == 3 + len(compared.rows)
    assert compared._repr_html_().count("<tr>") == 1 + len(compared.rows)
    lines = compared.plot().axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), [row.error for row in compared.line("Verlet()")])
    assert compared.to_dict()["rows"][0]["method"] == "Verlet()"


def row(method, dt, error, seconds):
    return Measured(method, 2, dt, 100, error, 0.0, 0.0, math.nan, math.nan, seconds, "xla")


def test_costs_are_interpolated_on_logarithmic_scales():
    line = [row("A", 0.4, 1e-2, 1.0), row("A", 0.2, 1e-4, 4.0)]
    assert seconds_for(line, 1e-3) == pytest.approx(2.0)
    assert seconds_for(line, 0.1) == 1.0
    assert seconds_for(line, 1e-5) == math.inf
    other = [row("B", 0.4, 1e-2, 0.5), row("B", 0.2, 1e-3, 2.2)]
    assert Comparison((*line, *other), "x", 1.0, 0.0).best(1e-3) == "A"
    failed = row("B", 0.8, math.nan, 0.1)
    assert Comparison((failed, *other), "x", 1.0, 0.0).line("B") == other


def test_a_recommendation_keeps_its_promise(monkeypatch):
    """With two methods to choose from: the exact motion is cos t, over a run five times as long as the one measured."""
    monkeypatch.setattr(recommending, "candidates", lambda system: [gm.Verlet(), ACCURATE])
    oscillator = gm.models.harmonic_oscillator()
    settings = {"accuracy": 1e-8, "dt": 0.05}
    found = gm.recommend(oscillator.system, [1.0], [0.0], t_end=500.0, **settings)
    assert found.method is ACCURATE
    run = gm.simulate(oscillator.system, [1.0], [0.0], method=found.method, dt=found.dt, t_end=500 * found.dt)
    assert np.max(np.abs(run.q[:, 0] - np.cos(run.t))) < 2e-8
    assert found.error < 1e-8 / 5 * 1.01  # 500 of 100 units of time, at linear growth
    assert any("ω = 1 " in reason for reason in found.reasons)
    rough = gm.recommend(oscillator.system, [1.0], [0.0], t_end=50.0, accuracy=0.05, dt=0.05)
    assert rough.error < 0.05
    assert rough.dt > found.dt
    cheap = gm.recommend(oscillator.system, [1.0], [0.0], t_end=50.0, budget=50 * 20 * rough.seconds, dt=0.05)
    assert cheap.error < rough.error
    assert cheap.seconds < 25 * rough.seconds
    assert "<li>" in found._repr_html_()
    with pytest.raises(gm.InputError, match="one of them"):
        gm.recommend(oscillator)


@pytest.mark.parametrize(
    ("model", "some", "none"),
    [
        ("double_pendulum()", gm.Rattle, gm.Verlet),
        ("penning_trap()", gm.MagneticSplitting, gm.Verlet),
        ("double_pendulum_angles()", gm.Variational, gm.Verlet),
        ("fpu()", gm.Trigonometric, gm.Rattle),
        ("driven_pendulum()", gm.Verlet, gm.SymmetricMultistep),
    ],
)
def test_candidates_fit_the_kind_of_system(model, some, none):
    kinds = [type(method) for method in recommending.candidates(gm.models.named(model).system)]
    assert some in kinds
    assert none not in kinds
