"""Figures of matplotlib in plotly: the numbers arrive unchanged, what has no form is named."""

import base64

import numpy as np
import pytest
from matplotlib.figure import Figure

from geomint.report import panels_of
from geomint.report.looks import colour, dash, words


def decoded(array):
    values = np.frombuffer(base64.b64decode(array["bdata"]), "<f8")
    return values.reshape([int(n) for n in array["shape"].split(",")]) if "shape" in array else values


def only(axes):
    """The one panel of a figure."""
    made = panels_of(axes.figure)
    assert made.unknown == {}
    [panel] = made.panels
    return panel


def traces(axes):
    return only(axes).plot["data"]


def xy(trace):
    return decoded(trace["x"]), decoded(trace["y"])


@pytest.fixture
def axes():
    return Figure(figsize=(6, 4)).subplots()


RANDOM = np.random.default_rng(1).normal(size=(2, 50))


def test_a_line(axes):
    x, y = RANDOM
    axes.plot(x, np.ma.masked_where(y > 1, y), color="C3", lw=1.5, ls="--", marker="s", ms=6, label="a < b")
    [trace] = traces(axes)
    found = xy(trace)
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], np.where(y > 1, np.nan, y))
    assert trace["line"] == {"color": "#d62728", "width": 2.0, "dash": "dash", "shape": "linear"}
    assert (trace["mode"], trace["name"]) == ("lines+markers", "a &lt; b")
    assert (trace["marker"]["symbol"], trace["marker"]["size"]) == ("square", 8.0)


def test_steps_dots_and_every_other_marker(axes):
    x = np.arange(5.0)
    axes.step(x, x**2, where="post")
    axes.plot(x, -x, "o", mfc="none", mec="C1")
    axes.plot(x, 2 * x, "x:", markevery=2)
    step, hollow, dots, line = traces(axes)
    assert step["line"]["shape"] == "hv"
    assert (hollow["mode"], hollow["marker"]["symbol"], hollow["marker"]["color"]) == (
        "markers",
        "circle-open",
        "#ff7f0e",
    )
    np.testing.assert_array_equal(decoded(dots["y"]), [0, 4, 8])
    np.testing.assert_array_equal(decoded(line["y"]), 2 * x)
    assert line["line"]["dash"] == "dot"


def test_a_long_line_keeps_its_peaks(axes):
    t = np.linspace(0, 1, 100_000)
    y = np.sin(40 * t)
    y[12345] = 7.0
    axes.plot(t, y)
    panel = only(axes)
    [trace] = panel.plot["data"]
    found = xy(trace)
    assert len(found[0]) <= 8000
    assert found[1].max() == 7.0
    assert panel.thinned == ["8,000 of 100,000 points"]


def test_scattered_points(axes):
    x, y = RANDOM
    axes.scatter(x, y, s=9, marker="^", color=["C0", "C1"] * 25)
    axes.scatter(x, y, c=x * y, cmap="viridis", vmin=-1, vmax=2)
    plain, valued = traces(axes)
    np.testing.assert_array_equal(xy(plain), [x, y])
    assert (plain["marker"]["symbol"], plain["marker"]["size"]) == ("triangle-up", 4.0)
    assert plain["marker"]["color"][:2] == ["#1f77b4", "#ff7f0e"]
    np.testing.assert_array_equal(decoded(valued["marker"]["color"]), x * y)
    assert (valued["marker"]["cmin"], valued["marker"]["cmax"]) == (-1.0, 2.0)
    assert valued["marker"]["colorscale"][0] == [0.0, "#440154"]


def test_segments_and_areas(axes):
    axes.vlines([1.0, 2.0], [0.0, 1.0], [3.0, 4.0], colors="k")
    axes.fill_between([0.0, 1.0, 2.0], [0.0, 0.5, 0.0], [1.0, 2.0, 3.0], color="C0", alpha=0.25, lw=0)
    area, lines = traces(axes)
    np.testing.assert_array_equal(decoded(lines["x"]), [1, 1, np.nan, 2, 2])
    np.testing.assert_array_equal(decoded(lines["y"]), [0, 3, np.nan, 1, 4])
    assert area["fillcolor"] == "rgba(31,119,180,0.25)"
    corners = set(zip(*xy(area), strict=True))
    assert {(0, 0), (1, 0.5), (2, 0), (0, 1), (1, 2), (2, 3)} <= corners
    assert area["line"] == {"width": 0}


def test_bars_of_errors(axes):
    axes.errorbar([1.0, 2.0], [3.0, 5.0], yerr=[0.5, 1.0], fmt="o-", capsize=2, label="mean")
    axes.legend()
    panel = only(axes)
    found = {(len(trace["name"]) > 0, trace["mode"]): xy(trace) for trace in panel.plot["data"]}
    np.testing.assert_array_equal(found[False, "lines"], [[1, 1, np.nan, 2, 2], [2.5, 3.5, np.nan, 4, 6]])
    [entry] = panel.legend
    assert len(entry.parts) == len(panel.plot["data"]) == 4  # the line, its bars, and their lower and upper ends


def test_bars_and_histograms(axes):
    axes.bar([1.0, 3.0], [2.0, 5.0], width=0.5, bottom=[0.0, 1.0], color=["C0", "C1"], label="bars")
    axes.barh([10.0], [4.0], height=2.0)
    axes.hist([0.1, 0.2, 0.7], bins=[0, 0.5, 1], histtype="step")
    bars, across, outline = traces(axes)
    np.testing.assert_array_equal(
        [*xy(bars), decoded(bars["width"]), decoded(bars["base"])], [[1, 3], [2, 5], [0.5, 0.5], [0, 1]]
    )
    assert (bars["name"], bars["marker"]["color"], bars["orientation"]) == ("bars", ["#1f77b4", "#ff7f0e"], "v")
    np.testing.assert_array_equal([*xy(across), decoded(across["width"])], [[4], [10], [2]])
    assert across["orientation"] == "h"
    assert "base" not in across
    np.testing.assert_array_equal(xy(outline), [[0, 0, 0.5, 0.5, 1, 1], [0, 2, 2, 1, 1, 0]])


def test_bars_on_a_logarithmic_axis_are_areas(axes):
    axes.bar([1.0, 10.0], [2.0, 5.0], width=[0.5, 5.0], align="edge")
    axes.set_xscale("log")
    layout = only(axes).plot["layout"]
    assert [(s["x0"], s["x1"], s["y1"]) for s in layout["shapes"]] == [(1, 1.5, 2), (10, 15, 5)]


def test_meshes_and_images(axes):
    values = np.arange(6.0).reshape(2, 3)
    mesh = axes.pcolormesh([0, 1, 3, 4], [0, 2, 5], np.ma.masked_equal(values, 4.0), vmin=-1, vmax=5)
    axes.figure.colorbar(mesh, label="Ω")
    axes.imshow(values, extent=(10, 13, 20, 22))
    image, heat = traces(axes)
    np.testing.assert_array_equal(decoded(heat["x"]), [0, 1, 3, 4])
    np.testing.assert_array_equal(decoded(heat["y"]), [0, 2, 5])
    np.testing.assert_array_equal(decoded(heat["z"]), [[0, 1, 2], [3, np.nan, 5]])
    assert (heat["zmin"], heat["zmax"], heat["colorbar"]["title"]["text"]) == (-1, 5, "Ω")
    np.testing.assert_array_equal(decoded(image["z"]), values[::-1])  # plotly counts rows from below
    np.testing.assert_array_equal(decoded(image["y"]), [20, 21, 22])
    assert not image["showscale"]


def test_contours(axes):
    x = np.linspace(-1, 1, 41)
    radius = np.hypot(*np.meshgrid(x, x))
    axes.contour(x, x, radius, levels=[0.5], colors="k")
    axes.contourf(x, x, radius, levels=[0.25, 0.75], colors=["0.7"])
    area, line = traces(axes)
    np.testing.assert_allclose(np.hypot(*xy(line)), 0.5, atol=2e-3)
    assert "fill" not in line
    assert area["fillcolor"] == colour("0.7")
    rings = np.hypot(*xy(area))
    rings = rings[np.isfinite(rings)]
    assert np.all((np.abs(rings - 0.25) < 3e-3) | (np.abs(rings - 0.75) < 3e-3))


def test_lines_and_bands_over_the_whole_axes(axes):
    axes.plot([0, 1], [0, 1])
    axes.axhline(0.25, ls=":", color="C1")
    axes.axvline(0.5)
    axes.axvspan(0.1, 0.2, color="0.9", lw=0)
    axes.axline((0, 0.5), slope=0.5)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    band, level, upright, slope = only(axes).plot["layout"]["shapes"]
    ends = lambda shape: [shape[key] for key in ("x0", "x1", "y0", "y1", "xref", "yref")]
    assert ends(level) == [0, 1, 0.25, 0.25, "x domain", "y"]
    assert (level["line"]["dash"], level["line"]["color"]) == ("dot", "#ff7f0e")
    assert ends(upright) == [0.5, 0.5, 0, 1, "x", "y domain"]
    np.testing.assert_allclose(ends(band)[:4], [0.1, 0.2, 0, 1], rtol=1e-15)
    assert (band["xref"], band["yref"], band["layer"]) == ("x", "y domain", "below")
    np.testing.assert_allclose(ends(slope)[:4], [0, 1, 0.5, 1], atol=1e-12)


def test_texts(axes):
    axes.loglog([1, 1000], [1, 10])
    axes.text(100.0, 1.0, "here", color="C0", ha="right", va="top")
    axes.text(0.25, 0.75, "corner", transform=axes.transAxes)
    axes.annotate("point", (10.0, 1.0), (6, -3), textcoords="offset points", arrowprops={"arrowstyle": "->"})
    here, corner, point = only(axes).plot["layout"]["annotations"]
    assert (here["x"], here["y"], here["xref"], here["text"]) == (2.0, 0.0, "x", "here")  # exponents
    assert (here["xanchor"], here["yanchor"], here["font"]["color"]) == ("right", "top", "#1f77b4")
    assert (corner["x"], corner["y"], corner["xref"], corner["yref"]) == (0.25, 0.75, "x domain", "y domain")
    assert (point["x"], point["ax"], point["ay"], point["showarrow"]) == (1.0, 8.0, 4.0, True)  # y downwards


def test_axes(axes):
    axes.loglog([1, 1000], [1, 10])
    axes.set(xlim=(1000, 1), ylim=(1, 10), xlabel="step $h_0$", ylabel="100 %", title="T & V")
    axes.set_yticks([1, 5], ["one", "five"])
    panel = only(axes)
    x, y = (panel.plot["layout"][f"{name}axis"] for name in "xy")
    assert (x["type"], x["range"]) == ("log", [3.0, 0.0])  # turned round
    assert x["title"]["text"] == "step <i>h</i><sub>0</sub>"
    assert (y["tickvals"], y["ticktext"]) == ([1.0, 5.0], ["one", "five"])
    assert panel.title == "T &amp; V"


def test_equal_scales_and_no_axes(axes):
    axes.plot([0, 1], [0, 1])
    axes.set_aspect("equal")
    layout = only(axes).plot["layout"]
    assert (layout["yaxis"]["scaleanchor"], layout["yaxis"]["scaleratio"]) == ("x", 1.0)
    axes.axis("off")
    assert only(axes).plot["layout"]["xaxis"]["visible"] is False


def test_legends_know_their_lines(axes):
    other = axes.figure.add_axes((0.95, 0.1, 0.04, 0.8))
    axes.plot([0, 1], [0, 1], label="rise")
    axes.axhline(0.5, color="C2", label="level")
    axes.plot([0, 1], [1, 0], "C4:", label="_hidden")
    other.plot([0, 1], [0, 2], label="rise")
    axes.legend(title="lines")
    proxy = axes.plot([], [], "C4:")[0]
    axes.figure.legend([axes.lines[0], proxy], ["rise", "dotted"])
    made = panels_of(axes.figure)
    first = made.panels[0]
    assert [(e.name, e.parts) for e in first.legend] == [("rise", [(0, "trace", 0)]), ("level", [(0, "shape", 0)])]
    assert first.legend_title == "lines"
    assert first.legend[0].sample["line"]["color"] == "#1f77b4"
    assert [(e.name, e.parts) for e in made.legend] == [
        ("rise", [(0, "trace", 0), (1, "trace", 0)]),
        ("dotted", [(0, "trace", 1)]),  # by its look
    ]


def test_the_grid_of_a_figure():
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.add_gridspec(1, 2, width_ratios=(2, 1))
    strips = left.subgridspec(2, 1).subplots(sharex=True)
    strips[1].set_xlabel("time")
    figure.add_subplot(right)
    figure.suptitle("all")
    made = panels_of(figure)
    assert [panel.cell for panel in made.panels] == [(1, 2, 1, 2), (2, 3, 1, 2), (1, 3, 2, 3)]
    assert 1.7 < made.columns[0] / made.columns[1] < 2.3
    assert (made.title, made.proportion) == ("all", 0.5)
    assert [panel.linked for panel in made.panels] == [{"x": 0}, {"x": 0}, {}]
    assert made.panels[0].plot["layout"]["xaxis"]["title"]["text"] == "time"


def test_twins_and_insets_share_a_panel(axes):
    axes.plot([0, 1], [0, 1])
    twin = axes.twinx()
    twin.plot([0, 1], [5, 7])
    x0, y0, x1, y1 = axes.get_position().extents
    inset = axes.figure.add_axes((x0, y0, (x1 - x0) / 4, (y1 - y0) / 2))
    inset.plot([3], [4], "o")
    panel = only(axes)
    assert [(t["xaxis"], t["yaxis"]) for t in panel.plot["data"]] == [("x", "y"), ("x2", "y2"), ("x3", "y3")]
    layout = panel.plot["layout"]
    assert (layout["yaxis2"]["overlaying"], layout["yaxis2"]["side"]) == ("y", "right")
    assert layout["xaxis2"]["matches"] == "x"
    np.testing.assert_allclose(
        [layout["xaxis3"]["domain"], layout["yaxis3"]["domain"]], [[0, 0.25], [0, 0.5]], atol=1e-12
    )


def test_space():
    axes = Figure().add_subplot(projection="3d")
    t = np.linspace(0, 1, 5)
    axes.plot(t, t**2, t**3, color="C1")
    axes.scatter([1.0], [2.0], [3.0])
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    axes.plot_trisurf(*corners.T, triangles=[[0, 1, 2], [0, 1, 3]], color="C2", shade=False)
    axes.set(xlabel="x of q", zlim=(0, 4))
    panel = only(axes)
    kinds = {
        trace["type"]: trace for trace in panel.plot["data"] if trace["type"] == "mesh3d" or trace["mode"] != "markers"
    }
    line, faces = kinds["scatter3d"], kinds["mesh3d"]
    np.testing.assert_array_equal([decoded(line[name]) for name in "xyz"], [t, t**2, t**3])
    found = np.stack([decoded(faces[name]) for name in "xyz"], axis=-1)
    index = np.stack([faces[name] for name in "ijk"], axis=-1)
    np.testing.assert_array_equal(found[index], corners[[[0, 1, 2], [0, 1, 3]]])
    assert faces["facecolor"] == ["#2ca02c"] * 2
    scene = panel.plot["layout"]["scene"]
    assert (scene["zaxis"]["range"], scene["xaxis"]["title"]["text"]) == ([0.0, 4.0], "x of q")
    assert panel.spatial


@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        (lambda axes: axes.set_yscale("symlog"), "the scale 'symlog'"),
        (lambda axes: axes.quiver([0], [0], [1], [1]), "Quiver"),
        (lambda axes: axes.imshow(np.zeros((2, 2, 3))), "images of colours"),
        (lambda axes: axes.plot([0], [0], marker="$a$"), "the marker '$a$'"),
        (lambda axes: axes.inset_axes((0.1, 0.1, 0.2, 0.2)), "Axes in axes"),
        (lambda axes: axes.table([["a"]]), "Table"),
    ],
)
def test_what_has_no_form_is_named(axes, draw, kind):
    draw(axes)
    assert list(panels_of(axes.figure).unknown) == [kind]


def test_words_colours_and_dashes():
    assert words("a_1 < b & $\\omega^2 + h_{max}$") == "a_1 &lt; b &amp; ω<sup>2</sup> + <i>h</i><sub>max</sub>"
    assert words("5 $ each\nor less") == "5 $ each<br>or less"
    assert colour("k", 0.5) == "rgba(0,0,0,0.5)"
    assert dash((0, (3.0, 1.5))) == "4px,2px"
