"""Pictures and labelled arrays: what is drawn is what was saved, no display is needed, nothing is kept alive."""

import gc
import sys
import weakref

import matplotlib.image
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf

import geomint as gm
from geomint.io.labelled import identifier
from geomint.plots import figures as plots
from geomint.plots.overview import overview


@pytest.fixture(scope="module")
def kepler():
    m = gm.models.kepler()
    return gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.02, t_end=10.0)


@pytest.fixture(scope="module")
def bodies():
    m = gm.models.n_body(n=3)
    return gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.01, t_end=1.0)


@pytest.fixture(scope="module")
def pendulums():
    m = gm.models.pendulum()
    angles = np.linspace(0.1, 2.0, 70)[:, None]
    return gm.ensemble(m.system, angles, np.zeros_like(angles), method=gm.Verlet(), dt=0.05, t_end=5.0)


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes}


def test_the_plane_the_energy_and_the_momentum_map(kepler, tmp_path):
    figure = kepler.plot(tmp_path / "kepler.png")
    shown = panels(figure)
    assert list(shown) == ["Paths (dots: start)", "Energy error", "Momentum map: rotation[0, 1]"]
    x, y = shown["Paths (dots: start)"].lines[0].get_data()
    np.testing.assert_array_equal(np.stack([x, y], 1), kepler.q)
    np.testing.assert_array_equal(shown["Energy error"].lines[0].get_ydata(), kepler.energy_error)
    np.testing.assert_array_equal(
        shown["Momentum map: rotation[0, 1]"].lines[0].get_ydata(),
        kepler.momentum_maps["rotation[0, 1]"][:, 0] - kepler.momentum_maps["rotation[0, 1]"][0, 0],
    )
    title = figure.get_suptitle()
    assert "kepler()" in title
    assert "Verlet()" in title
    assert "dt = 0.02" in title
    assert "501 saved points" in title
    assert matplotlib.image.imread(tmp_path / "kepler.png").shape == (690, 1650, 4)  # 11 × 4.6 inches at 150 dpi


def test_paths_in_space(bodies):
    shown = panels(overview(bodies))
    axes = shown["Paths in space (dots: start)"]
    paths = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert [line.get_label() for line in paths] == ["particle 0", "particle 1", "particle 2"]
    np.testing.assert_array_equal(paths[2].get_ydata(), bodies.q[:, 2, 1])
    assert {line.get_label() for line in shown["Momentum maps"].lines} == {
        f"{kind} {axis}" for kind in ("translation", "rotation") for axis in "xyz"
    }


def test_modes_are_not_taken_for_particles():
    m = gm.models.fpu()  # q is (2, 3), rows of modes
    run = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.005, t_end=1.0)
    figure = overview(run)
    assert [axes.get_ylabel() for axes in figure.axes[:6]] == [f"q[{i}, {j}]" for i in range(2) for j in range(3)]
    assert "Paths in space (dots: start)" in panels(overview(run, space=True))


def test_few_of_many_coordinates():
    m = gm.models.coupled_oscillators(n=40)
    run = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.05, t_end=1.0)
    shown = panels(overview(run))
    assert "8 of 40 coordinates over time" in shown
    assert len(overview(run).axes) == 9


def test_an_ensemble_is_drawn_as_thin_lines_of_some_members(pendulums):
    figure = overview(pendulums)
    energy = panels(figure)["Energy error"]
    assert len(energy.lines) == 50
    np.testing.assert_array_equal(energy.lines[0].get_ydata(), pendulums.energy_error[0])
    np.testing.assert_array_equal(energy.lines[-1].get_ydata(), pendulums.energy_error[-1])
    assert all(line.get_linewidth() == 0.5 for line in energy.lines)
    assert "50 of 70 members" in figure.get_suptitle()


def test_the_constraint_residual_has_its_panel(kepler):
    residual = np.linspace(-2e-9, 1e-9, len(kepler))[:, None] * [1.0, 0.5]
    run = gm.Trajectory(
        kepler.system, kepler.method, kepler.grid, kepler.t, {**kepler.columns, "constraint_residual": residual}
    )
    drawn = panels(overview(run))["Constraint residual"].lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, np.abs(residual[:, 0]))


def test_thinning_keeps_every_peak_and_the_ends():
    t = np.arange(100_001) * 1e-3
    y = np.sin(400 * t)
    y[54_321] = 7.0
    y[54_400] = -9.0
    thin_t, thin_y = plots.envelope(t, y)
    assert len(thin_t) <= 5000
    assert (thin_y.min(), thin_y.max()) == (-9.0, 7.0)
    assert thin_t[np.argmax(thin_y)] == t[54_321]
    assert (thin_t[0], thin_t[-1]) == (t[0], t[-1])
    assert np.all(np.diff(thin_t) > 0)
    np.testing.assert_array_equal(thin_y, y[np.searchsorted(t, thin_t)])


def test_a_picture_that_can_not_be_written_is_refused_before_it_is_drawn(kepler, tmp_path):
    with pytest.raises(gm.InputError, match=r"folder .*nowhere does not exist"):
        kepler.plot(tmp_path / "nowhere" / "run.png")
    with pytest.raises(gm.InputError, match=r"can't be written as '.docx'.*\.png"):
        kepler.plot(tmp_path / "run.docx")
    assert plots.save_figure(kepler.plot(), tmp_path / "plain") == tmp_path / "plain.png"
    assert (tmp_path / "plain.png").stat().st_size > 10_000


def test_figures_are_not_kept_alive(kepler):
    managed = set(Gcf.figs)
    figure = weakref.ref(kepler.plot())
    gc.collect()
    assert figure() is None
    assert set(Gcf.figs) == managed  # pyplot never heard of it


# --- xarray ---------------------------------------------------------------------------------------------------------
def test_labelled_arrays_of_a_run(bodies):
    data = bodies.to_xarray()
    assert data["q"].dims == ("time", "axis_0", "axis_1")
    assert data["energy"].dims == ("time",)
    np.testing.assert_array_equal(data["q"], bodies.q)
    np.testing.assert_array_equal(data["v"], bodies.v)
    np.testing.assert_array_equal(data["energy_error"], bodies.energy_error)
    np.testing.assert_array_equal(data["rotation"], bodies.momentum_maps["rotation"])
    assert float(data["energy"].sel(time=0.5, method="nearest")) == bodies.energy[50]
    assert data.attrs["method"] == "Verlet()"
    assert (data.attrs["dt"], data.attrs["t0"], data.attrs["save_every"]) == (0.01, 0.0, 1)
    assert data.attrs["geomint_version"] == gm.__version__
    assert data.attrs["model"] == "n_body(n=3)"


def test_labelled_arrays_of_an_ensemble(pendulums):
    data = pendulums.to_xarray()
    assert dict(data.sizes) == {"member": 70, "time": 101, "axis_0": 1}
    np.testing.assert_array_equal(data["energy_error"].isel(time=0), np.zeros(70))
    np.testing.assert_array_equal(data["q"].sel(member=3), pendulums.q[3])


def test_one_number_a_time_for_a_map_of_one_generator(kepler):
    data = kepler.to_xarray()
    assert data["rotation_0_1"].dims == ("time",)
    assert data["rotation_0_1"].attrs["long_name"] == "rotation[0, 1]"
    np.testing.assert_allclose(data["rotation_0_1"], 0.8, atol=1e-13)  # √(1 − e²)


def test_an_archive_without_its_system_has_no_velocities(tmp_path):
    system = gm.System(lambda q: 0.5 * (q @ q))
    gm.simulate(system, [1.0, 0.0], method=gm.Verlet(), dt=0.1, t_end=1.0, output=tmp_path / "run.h5")
    assert "v" not in gm.load(tmp_path / "run.h5").to_xarray()
    assert "v" in gm.load(tmp_path / "run.h5", system).to_xarray()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rotation[0, 1]", "rotation_0_1"),
        ("translation[-1.0, 0.5]", "translation_minus1_0p5"),
        ("rotation 2", "rotation_2"),
    ],
)
def test_names_become_identifiers(name, key):
    assert identifier(name) == key


def test_without_xarray_it_says_what_to_install(kepler, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(gm.GeomintError, match=r"pip install geomint\[analysis\]"):
        kepler.to_xarray()


# --- what a notebook and the prompt show -----------------------------------------------------------------------------
def test_a_notebook_shows_the_figure_and_a_table(kepler):
    assert kepler.plot()._repr_png_().startswith(b"\x89PNG")
    table = kepler._repr_html_()
    assert "<td>kepler()</td>" in table
    assert f"{np.max(np.abs(kepler.energy_error)):.2e}" in table


def test_at_the_prompt_the_picture_is_named(kepler, monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    figure = kepler.plot()
    assert figure.axes
    named = capsys.readouterr().err.split("the picture is in ")[1].strip()
    assert matplotlib.image.imread(named).shape[2] == 4


def test_names_of_the_user(bodies, kepler):
    axes = panels(bodies.plot(labels=["Sun", "Earth", "Moon"]))["Paths in space (dots: start)"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Sun", "Earth", "Moon"]
    strips = kepler.plot(space=False, labels=["across", "up"])
    assert [axes.get_ylabel() for axes in strips.axes[:2]] == ["across", "up"]
    with pytest.raises(gm.InputError, match="3 names, those of the particles"):
        bodies.plot(labels=["Sun"])


def test_watched_quantities_that_hardly_change():
    """Ticks of a nearly constant quantity would all show the same number: its change is drawn. Names may be
    identifiers."""
    watch = {
        "angular_momentum": lambda q, p: q[0] * p[1] - q[1] * p[0],
        "x": lambda q, p: q[0],
        "zero": lambda q, p: 0.0,
    }
    system = gm.System(gm.models.kepler().system.potential.function, watch=watch)
    run = gm.simulate(system, [1.0, 0.0], [0.0, 1.1], method=gm.Verlet(), dt=0.05, t_end=10.0)
    shown = panels(run.plot())
    momentum = run.watched["angular_momentum"]
    assert shown["Angular momentum"].get_ylabel() == "change from the start"
    np.testing.assert_array_equal(shown["Angular momentum"].lines[0].get_ydata(), momentum - momentum[0])
    assert shown["X"].get_ylabel() == "as watched"
    np.testing.assert_array_equal(shown["X"].lines[0].get_ydata(), run.q[:, 0])
    assert shown["Zero"].get_ylabel() == "as watched"


def test_a_plane_path_in_space():
    """Rounding in the third coordinate does not get a scale of its own."""
    model = gm.models.spherical_pendulum(rate=1.0)
    run = gm.simulate(model, t_end=4.0)
    axes = panels(run.plot())["Paths in space (dots: start)"]
    assert 0 < np.ptp(run.q[:, 2]) < 1e-3
    assert np.ptp(axes.get_zlim3d()) > np.ptp(axes.get_xlim3d()) / 10


def test_watched_quantities_with_several_entries():
    m = gm.models.kepler()
    system = gm.System(m.system.potential.function, watch={"velocity": lambda q, p: p})
    run = gm.simulate(system, m.q0, m.v0, method=gm.Verlet(), dt=0.05, t_end=1.0)
    lines = panels(run.plot())["Velocity"].lines
    assert [line.get_label() for line in lines] == ["entry 0", "entry 1"]
    np.testing.assert_array_equal(lines[1].get_ydata(), run.p[:, 1])
