"""`geomint report`: the pages, their links, and what happens to experiments that fail."""

import html
import json
import re
import urllib.parse
from html.parser import HTMLParser

import pytest
from PIL import Image

from geomint import papers
from geomint.papers import Experiment
from geomint.report import pieces, plots, prose, site, write_pages


class Reader(HTMLParser):
    """The links, the ids and the pictures of a page; and whether every element is closed."""

    VOID = {"meta", "link", "img", "input", "br", "path"}

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.pictures, self.open = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[key] for key in ("href", "src") if key in found]
        if "id" in found:
            assert found["id"] not in self.ids, f"two elements {found['id']}"
            self.ids.add(found["id"])
        if tag == "img":
            self.pictures.append(found)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_links(folder):
    """Every link of every page leads to a file of the folder, and to a place in it that exists."""
    pages = {path.name: Reader(path.read_text()) for path in folder.glob("*.html")}
    for name, page in pages.items():
        assert page.open == []
        assert all(picture["alt"] for picture in page.pictures), name
        for link in page.links:
            if link == "data:,":
                continue
            address = urllib.parse.urlsplit(link)
            assert not address.scheme, f"{name}: {link}"
            assert not address.netloc, f"{name}: {link}"
            target = urllib.parse.unquote(address.path) or name
            assert (folder / target).is_file(), f"{name}: {link}"
            if address.fragment:
                assert address.fragment in pages[target].ids, f"{name}: {link}"
    return pages


def test_every_link_leads_somewhere(tiny):
    pages = check_links(tiny.folder)
    assert pages.keys() == {"index.html", "tao-2015-full.html", "tao-2015-failing.html", "stern-2009-stopping.html"}
    assert len(list(tiny.folder.rglob("plotly*.js"))) == 1
    texts = [(tiny.folder / name).read_text() for name in sorted(pages)[1:]]
    assert [dict(re.findall(r'rel="(prev|next)" href="([^"]+)"', text)) for text in texts] == [
        {"prev": "tao-2015-failing.html"},
        {"prev": "tao-2015-full.html", "next": "stern-2009-stopping.html"},
        {"next": "tao-2015-failing.html"},
    ]


def test_the_page_of_an_experiment(tiny):
    text = (tiny.folder / "tao-2015-full.html").read_text()
    assert "A pendulum &amp; its &lt;error&gt;" in text
    assert "<p>A pendulum, with <code>code</code> and a formula:</p>" in text
    assert "q&#x27;&#x27; = −sin q</pre>" in text
    assert "<ul><li>first point</li><li>second point</li></ul>" in text
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text))
    for part in (
        "6.2831 ± 0.01",
        "6.28 … 6.29",
        "6.283 eq. (3)",
        "the sign is wrong",
        "a run of <1000> periods",
        "1, 2",
    ):
        assert part in " ".join(plain.split()), part
    for verdict in ("reproduced", "corrected", "contradicted", "chaotic", "information"):
        assert f"</span> {verdict}</span>" in text
    assert '<span class="nf">full</span>' in text  # the code, with its colours
    data = json.loads(re.search(r'id="plot-data">(.*?)</script>', text)[1])
    assert [len(panel["data"]) for panel in data["panels"]] == [2, 1]
    assert data["panels"][1]["layout"]["yaxis"]["type"] == "log"
    assert "const scene" in (tiny.folder / "motion/tao-2015-full.html").read_text()
    assert 'src="motion/tao-2015-full.html"' in text
    assert "--tall:160px" not in text


def test_what_has_no_form_in_plotly_is_a_picture(tiny):
    text = (tiny.folder / "tao-2015-failing.html").read_text()
    assert "the scale &#x27;symlog&#x27; has no form in plotly" in text
    with Image.open(tiny.folder / "figures/tao-2015-failing-panel-1.png") as picture:
        assert picture.width > 500
    assert tiny.entries[1].pictures == {"the scale 'symlog'": 1}


def test_failures_are_shown_and_the_other_pages_are_there(tiny):
    assert [entry.done.ok for entry in tiny.entries] == [True, False, False]
    index = (tiny.folder / "index.html").read_text()
    assert "<strong>1 of 3</strong> experiments hold" in index
    assert index.count('class="card failed"') == 2
    assert "it blew up at t = 7.2 &amp; more" in index
    assert re.search(r"<b>2</b><span><span[^>]*>✗</span> FAILED", index)
    stopped = (tiny.folder / "stern-2009-stopping.html").read_text()
    assert 'role="alert"' in stopped
    assert "it blew up at t = 7.2 &amp; more" in stopped
    assert "plotly.min.js" not in stopped


def test_an_error_of_the_program_is_on_its_page(tmp_path):
    def broken(quick):
        """It has a bug."""
        return papers.Outcome([], None)  # no figure

    [entry] = write_pages([Experiment("p", "broken", "Broken", "Fig. 1", broken)], False, tmp_path)
    assert not entry.done.ok
    assert "AttributeError" in entry.done.error
    assert "Traceback" in (tmp_path / "p-broken.html").read_text()


def test_a_motion_that_fails_is_a_failure(tmp_path, tiny, monkeypatch):
    def stops():
        raise papers.base.InputError("no frames")

    def still(quick):
        """Its animation fails."""
        outcome = tiny.chosen[0](quick)
        outcome.motion = stops
        return outcome

    [entry] = write_pages([Experiment("p", "still", "Still", "Fig. 1", still)], True, tmp_path)
    assert entry.done.error == "the page of the experiment: no frames"
    text = (tmp_path / "p-still.html").read_text()
    assert "6.2831 ± 0.01" in text  # what was measured
    assert 'id="plots"' in text


def test_a_paper_by_the_command(shell, tmp_path):
    arguments = "tao-owhadi-2015/linear-stability", "--quick", "--out", "pages", "--jobs", 2  # in a process of its own
    result = shell("report", *arguments)
    assert result.exit_code == 0, result.output
    assert "the start page is pages/index.html" in result.stdout
    assert "✓ tao-owhadi-2015/linear-stability" in result.stdout
    folder = tmp_path / "pages"
    check_links(folder)
    found = json.loads((folder / "results.json").read_text())
    [experiment] = found["experiments"]
    assert found["ok"] is True
    assert experiment["picture"] == "pages/figures/tao-owhadi-2015-linear-stability.png"
    text = (folder / "tao-owhadi-2015-linear-stability.html").read_text()
    assert "Tao, Owhadi: " in text  # the paper's title
    assert "@experiment" in html.unescape(re.sub(r"<[^>]+>", "", text))
    assert "still" not in re.findall(r'class="(\w+)"', text)  # all of it is interactive


def test_the_command_fails_where_a_row_fails(shell, monkeypatch, tiny):
    monkeypatch.setattr(papers.base, "_experiments", {each.id: each for each in tiny.chosen[1:]})
    monkeypatch.setattr(site, "plots_html", lambda *_: ("", {}))
    result = shell("report", "--quick")
    assert result.exit_code == 1
    assert "✗ stern-2009/stopping" in result.stdout
    assert "0 of 2 experiments hold" in result.stdout


def test_without_plotly_it_says_what_to_install(shell, monkeypatch):
    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: None)
    result = shell("report", "stern-grinspun-2009")
    assert result.exit_code == 2
    assert "pip install 'geomint[report]'" in result.stderr


def luminance(code):
    parts = [int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme):
    """4.5 to 1, as WCAG AA asks for."""
    style = (site.FOLDER / "report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    tones = {
        name: code
        for block in blocks[: 1 + (scheme == "dark")]
        for name, code in re.findall(r"--([\w-]+): (#\w{6})", block)
    }
    pairs = [
        ("ink", "paper"),
        ("ink", "panel"),
        ("soft", "paper"),
        ("soft", "panel"),
        ("accent", "paper"),
        ("soft", "sky"),
    ]
    pairs += [(name.lower(), f"{name.lower()}-back") for name in pieces.SYMBOLS]
    pairs += [(name, "panel") for name in ("comment", "keyword", "text", "number", "name")]
    for ink, paper in pairs:
        lighter, darker = sorted((luminance(tones[ink]), luminance(tones[paper])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (scheme, ink, paper)


def test_docstrings():
    assert prose.prose("One.\n\n    a = b\n      + c\n\n1. x\n   y\n2. z\n") == (
        '<p>One.</p>\n<pre class="formula">a = b\n  + c</pre>\n<ol><li>x y</li><li>z</li></ol>'
    )
    assert prose.prose(None) == ""
    assert prose.inline("``a < b`` and `c`") == "<code>a &lt; b</code> and <code>c</code>"
    assert prose.source(len) == ("", "")
    assert prose.paper_title(len, "paper") == "paper"


def test_a_thumbnail_is_small(tmp_path):
    Image.effect_noise((1800, 900), 80).save(tmp_path / "a.png")
    small = plots.thumbnail(tmp_path / "a.png")
    with Image.open(small) as picture:
        assert picture.size == (560, 280)
    assert small.name == "a-small.png"
