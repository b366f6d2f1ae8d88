"""The site in a browser: every page at the width of a phone and of a desk, without console errors or requests that
leave the folder; plots, legends, filters and animations respond.

Needs chromium and chromedriver (Debian: apt install chromium-driver) and selenium.
"""

import json
import shutil
import time
import urllib.parse

import pytest

from geomint import papers
from geomint.report import write_index, write_pages

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("chromium and chromedriver are not installed here", allow_module_level=True)
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed here")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

WIDTHS = (360, 1280)
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage
--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"""
DRAWN = "return [...document.querySelectorAll('.plot > div')].every(e => e.querySelector('.main-svg'))"


class Browser:
    def __init__(self, folder, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for option in [*OPTIONS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.folder = folder
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
        self.driver.get("about:blank")
        self.requests()  # of the page of a new tab
        self.run, self.wait = self.driver.execute_script, WebDriverWait(self.driver, 20, 0.1)

    def size(self, width, height=900, scheme="light"):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, page):
        self.driver.get((self.folder / page).as_uri())

    def draw_all(self):
        """Scroll through the page: plots are drawn when they come into sight."""
        for k in range(len(self.find(".plot"))):
            self.run("const e = document.querySelectorAll('.plot')[arguments[0]]; if (e) e.scrollIntoView()", k)
            time.sleep(0.05)
        self.wait.until(lambda _: self.run(DRAWN))

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def errors(self):
        return [row["message"] for row in self.driver.get_log("browser") if row["level"] == "SEVERE"]

    def requests(self):
        """The addresses that pages have asked for."""
        found = [json.loads(row["message"])["message"] for row in self.driver.get_log("performance")]
        sent = [row["params"]["request"]["url"] for row in found if row["method"] == "Network.requestWillBeSent"]
        return [urllib.parse.urlsplit(address) for address in sent]

    def all_is_well(self):
        """No errors, nothing wider than the page, and nothing asked of another machine."""
        assert self.errors() == []
        wide = self.run("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{self.driver.current_url} is {wide} pixels too wide"
        for address in self.requests():
            assert address.scheme in ("file", "data", "blob"), address
            if address.scheme == "file":
                assert urllib.parse.unquote(address.path).startswith(str(self.folder)), address


@pytest.fixture(scope="module")
def browser(tiny, tmp_path_factory):
    made = Browser(tiny.folder, tmp_path_factory.mktemp("profile"))
    yield made
    made.driver.quit()


def click_through(browser):
    """From the start page by the links of the experiments, one after another; returns the pages seen."""
    browser.open("index.html")
    browser.all_is_well()
    first = browser.find(".card h3 a")[0]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", first)
    first.click()
    seen = []
    while True:
        browser.draw_all()
        browser.all_is_well()
        assert browser.run("return [...document.images].every(e => e.loading === 'lazy' || e.naturalWidth > 0)")
        seen.append(browser.driver.current_url.rpartition("/")[2])
        after = browser.find(".bar a[rel=next]")
        if not after:
            return seen
        after[0].click()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page(browser, tiny, width):
    browser.size(width, scheme="dark" if width == 360 else "light")
    assert click_through(browser) == [f"{each.paper}-{each.name}.html" for each in tiny.chosen]


@pytest.mark.parametrize("width", WIDTHS)
def test_plots_respond(browser, width):
    browser.size(width)
    browser.open("tao-2015-full.html")
    browser.draw_all()
    plot = browser.find("#plot-0")[0]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    # A point of the sine under the pointer: its numbers appear.
    k = 100
    x, y = browser.run(
        """const g = document.getElementById("plot-0"), l = g._fullLayout, box = g.getBoundingClientRect();
        return [box.left + l.xaxis._offset + l.xaxis.l2p(g._fullData[0].x[arguments[0]]),
                box.top + l.yaxis._offset + l.yaxis.l2p(g._fullData[0].y[arguments[0]])]""",
        k,
    )
    pointer = lambda kind, x, y, **more: browser.driver.execute_cdp_cmd(
        "Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more}
    )
    pointer("mouseMoved", x - 3, y)
    pointer("mouseMoved", x, y)
    browser.wait.until(
        lambda _: "sin <q>" in browser.run("return document.querySelector('#plot-0 .hoverlayer').textContent")
    )
    # A stroke zooms, and the panel with the same times follows.
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    pointer("mousePressed", x, y, **held)
    for step in range(1, 5):
        pointer("mouseMoved", x + 15 * step, y, **held)
    pointer("mouseReleased", x + 60, y, button="left", clickCount=1)
    ranges = "return [0, 1].map(k => [...document.getElementById('plot-' + k).layout.xaxis.range])"
    browser.wait.until(lambda _: browser.run(ranges)[1][0] > 1)
    assert browser.run(ranges)[0] == browser.run(ranges)[1]
    low, high = browser.run(ranges)[0]
    assert low == pytest.approx(10 * k / 199, abs=0.5)
    assert high - low < 5
    # An entry of the legend hides its line, and shows it again.
    entry = browser.find("[data-legend='0'] button")[1]
    visible = "return document.getElementById('plot-0').data[1].visible"
    entry.click()
    browser.wait.until(lambda _: browser.run(visible) is False)
    assert entry.get_attribute("aria-pressed") == "false"
    entry.click()
    browser.wait.until(lambda _: browser.run(visible) is True)
    bound = browser.find("[data-legend='1'] button")[1]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", bound)
    bound.click()  # a line over the whole axes
    browser.wait.until(
        lambda _: browser.run("return document.getElementById('plot-1').layout.shapes[0].visible") is False
    )
    browser.all_is_well()


def test_plots_turn_dark(browser):
    browser.size(1280)
    browser.open("tao-2015-full.html")
    browser.draw_all()
    tone = "return document.getElementById('plot-0').data[1].line.color"
    assert browser.run(tone) == "#000000"
    browser.size(1280, scheme="dark")
    browser.wait.until(lambda _: browser.run(tone) == "rgba(232,232,232,1)")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 21, 27)"
    browser.all_is_well()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_animation_plays(browser, width):
    browser.size(width)
    browser.open("tao-2015-full.html")
    frame = browser.find("iframe.motion")[0]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", frame)
    browser.driver.switch_to.frame(frame)
    try:
        browser.wait.until(
            lambda _: browser.run("return document.readyState") == "complete" and browser.find("#slider")
        )
        place = lambda: float(browser.run("return document.getElementById('slider').value"))
        start = place()
        browser.wait.until(lambda _: place() > start + 1)  # by frames
        button = browser.find("#play")[0]
        button.click()
        held = place()
        time.sleep(0.2)
        assert place() == held
        painted = "const c = document.getElementById('scene'); return c.toDataURL()"
        before = browser.run(painted)
        button.click()
        browser.wait.until(lambda _: place() > held + 1)
        assert browser.run(painted) != before
    finally:
        browser.driver.switch_to.default_content()
    browser.all_is_well()


@pytest.mark.parametrize("width", WIDTHS)
def test_filters(browser, width):
    browser.size(width)
    browser.open("index.html")
    shown = lambda selector: sum(element.is_displayed() for element in browser.find(selector))
    rows = "#claims tr.row"
    total = 8  # with the experiment that stopped
    if width == 360:
        assert shown(rows) == 0  # folded
        browser.find("#claims .group button")[0].click()
        assert shown(rows) == 5
    else:
        assert shown(rows) == total
        head, first = browser.find("#claims thead th"), browser.find("#claims tbody:first-of-type tr:nth-child(2) td")
        assert [cell.rect["x"] for cell in first] == [cell.rect["x"] for cell in head]
        texts = ["period of the pendulum", "6.283\neq. (3)", "6.2831 ± 0.01", "6.28 … 6.29", "✓ reproduced"]
        assert [cell.text.replace("✓\n", "✓ ") for cell in first] == texts
    chip = browser.find(".chip:has(input[value=FAILED])")[0]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", chip)
    chip.click()
    assert (shown(rows), shown(".card")) == (2, 2)
    browser.find("select[name=paper] option[value='stern-2009']")[0].click()
    assert (shown(rows), shown(".card"), shown("section.paper")) == (1, 1, 1)
    assert browser.find("#count")[0].text == "1 claim"
    browser.find("button[type=reset]")[0].click()
    browser.wait.until(lambda _: shown(".card") == 3)
    browser.find("input[type=search]")[0].send_keys("pendulum PERIOD")
    browser.wait.until(lambda _: (shown(rows), shown(".card")) == (1, 1))
    browser.all_is_well()


@pytest.mark.slow
def test_the_whole_site(tmp_path):
    """All experiments at reduced size."""
    folder, chosen = tmp_path / "site", papers.all()
    entries = list(write_pages(chosen, True, folder))
    write_index(chosen, entries, folder, time.perf_counter())
    assert [entry.done.experiment.id for entry in entries if not entry.done.ok] == []
    unknown = {entry.done.experiment.id: entry.pictures for entry in entries if entry.pictures}
    assert unknown == {"console-hairer-lubich-2013/periodicity": {"the scale 'symlog'": 1}}
    browser = Browser(folder, tmp_path / "profile")
    try:
        for width in WIDTHS:
            browser.size(width)
            assert click_through(browser) == [f"{each.paper}-{each.name}.html" for each in chosen]
    finally:
        browser.driver.quit()
