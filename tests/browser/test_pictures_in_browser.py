"""Pictures as pages, from a disk in a real browser: what they draw, and that they agree with SVG."""

import json
import re
import time

import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, save, to_svg
from zoo.pictures.labels import label

pytestmark = pytest.mark.browser
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--",
    "\u202eabc",
]
HOSTILE += [
    "\ud800",
    "\u2028",
    "\0",
    "\u200d",
    "",
    " ",
    "\u00a0",
    "\n",
    "\t",
    "\u0902",
    "ن\u200cم",
    "😀",
    "\u2067ab",
    "&lt;",
]
SOURCE, TARGET = [*"21 نوفمبر", "</s>"], [*"-11-", "</s>"]


def softmax(*shape):
    weights = np.exp(2 * np.random.default_rng(0).normal(size=shape))
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture
def opened(driver, tmp_path):
    """A function that saves pictures and opens their page."""
    driver.get_log("browser")
    driver.get_log("performance")

    def opened(pictures, **options):
        driver.get("about:blank")
        driver.get(save(pictures, tmp_path / "page.html", **options).as_uri())
        return driver.execute_script

    yield opened
    assert [each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"] == []


@pytest.fixture
def grid():
    to_source = AttentionMaps("Attention to the source", SOURCE, TARGET, softmax(2, 3, len(TARGET), len(SOURCE)))
    within = AttentionMaps("Self-attention of the encoder", SOURCE, SOURCE, softmax(1, 3, len(SOURCE), len(SOURCE)))
    return AttentionGrid(to_source, within, title="Arabic")


def weights_of(run, number=0):
    return np.array(run("return document.querySelectorAll('.alignment')[arguments[0]].alignment.weights", number))


def test_the_mean_of_the_last_layer_and_each_head_has_its_weights(opened, grid):
    run = opened(grid)
    to_source, within = (kind.weights for kind in grid.kinds)
    np.testing.assert_allclose(weights_of(run), to_source[-1].mean(0), atol=1e-6)
    np.testing.assert_allclose(weights_of(run, 1), within[-1].mean(0), atol=1e-6)
    names = run("return [...document.querySelectorAll('.heads button')].map((each) => each.title)")
    assert names == [f"layer {n}, head {m}" for n, m in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3))] + names[:3]
    run("document.querySelectorAll('.heads button')[1].click()")
    np.testing.assert_allclose(weights_of(run), to_source[0, 1], atol=1e-6)
    np.testing.assert_allclose(weights_of(run, 1), within[-1].mean(0), atol=1e-6)


def test_a_token_that_has_the_focus_shows_what_it_attends_to(opened):
    weights = softmax(len(TARGET), len(SOURCE))
    run = opened(Alignment(SOURCE, TARGET, weights), vmax=0.5)
    run("document.querySelector('.alignment').alignment.to.spans[2].focus()")
    styles = run(
        "return document.querySelector('.alignment').alignment.from.spans.map((each) => each.style.background)"
    )
    shares = [float((re.findall(r"([\d.]+)%", style) or ["0"])[0]) for style in styles]
    np.testing.assert_allclose(shares, 70 * np.minimum(weights[2] / 0.5, 1), atol=0.51)


@pytest.mark.parametrize("vmax", [1, 0.5])
def test_the_page_and_an_svg_have_the_same_layout_and_ink(opened, vmax):
    weights = softmax(len(TARGET), len(SOURCE))
    picture = Alignment(SOURCE, TARGET, weights)
    run = opened(picture, vmax=vmax)
    saved = run(
        "const {alignment} = document.querySelector('.alignment');"
        "return labelledMap(arguments[0], arguments[1], alignment.weights, 't').outerHTML",
        SOURCE,
        TARGET,
    )
    inks = re.search(r'<g class="inks">(.*?)</g>', to_svg(picture, vmax))[1]
    python = {shape: float(ink) for ink, shape in re.findall(r'fill-opacity="([\d.]+)" d="([^"]+)"', inks)}
    page = {shape: float(ink) for ink, shape in re.findall(r'<path fill-opacity="([\d.]+)" d="([^"]+)"', saved)}
    assert page == python and len(page) > 10
    labels = re.findall("\u2068([^\u2069]+)\u2069", saved.replace("&lt;", "<").replace("&gt;", ">"))
    assert labels == [label(token) for token in SOURCE + TARGET]


def test_the_legend_below_a_small_map_is_whole(opened):
    run = opened(Alignment(["a", "</s>"], ["b"], softmax(1, 2)), vmax=0.35)
    beyond = run(
        "const [legend, map] = ['.legend', 'svg:has(.legend)'].map((each) => document.querySelector(each));"
        "return legend.getBoundingClientRect().right - map.getBoundingClientRect().right"
    )
    assert -10 < beyond <= 0


def test_hostile_texts_are_text_and_every_token_can_be_seen(opened):
    joined = "".join(HOSTILE)
    texts = dict(source_text=joined, target_text=joined, title=joined, caption=joined)
    run = opened(Alignment(HOSTILE, HOSTILE[:5], softmax(5, len(HOSTILE)), **texts), title=joined)
    assert run("return window.hacked") is None
    assert run("return document.querySelectorAll('main img, main script').length") == 0
    tokens = "JSON.parse(document.getElementById('answer').textContent).pictures[0].kinds[0].source_tokens"
    assert run(f"return {tokens}.map(visible)") == [label(token) for token in HOSTILE]
    shown = run("return document.body.innerText")
    assert not re.search("[\u202a-\u202e\u2066\u2067\u2028]", shown)
    assert "</script><script>window.hacked = 1</script>" in shown


def test_asks_nobody(opened, driver, grid):
    opened([grid, Alignment(SOURCE, TARGET, softmax(len(TARGET), len(SOURCE)))])
    time.sleep(0.3)
    asked = [
        message["params"]["request"]["url"]
        for each in driver.get_log("performance")
        if (message := json.loads(each["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert len([url for url in asked if url.startswith("file:")]) == 1
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_no_serious_fault_of_accessibility_and_nothing_sticks_out(opened, driver, grid, serious_faults):
    opened([grid, Alignment(SOURCE, TARGET, softmax(len(TARGET), len(SOURCE)))], columns=2)
    try:
        for width in (1440, 768, 360):
            size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            time.sleep(0.3)
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert serious_faults() == []


def test_512_tokens_are_drawn(opened):
    """It prints how long each step takes, for docs/explorer.md; a test of the time would fail on a busy machine."""
    tokens = [f"word{place}" for place in range(512)]
    weights = softmax(2, 2, 512, 512)
    run = opened(AttentionGrid(AttentionMaps("Self-attention", tokens, tokens, weights)))
    run("window.frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawn = run("await frame(); return performance.now()")
    assert run("return document.querySelectorAll('.alignment .token').length") == 512
    assert not run("return document.querySelector('details').open"), "a large map is drawn when it is asked for"
    steps = {
        "a token pointed at": "document.querySelectorAll('.token')[300].focus()",
        "the map of the weights opened": "document.querySelector('details').open = true",
        "another head chosen": "document.querySelector('.heads button').click()",
    }
    print(f"\n512 tokens: the page drawn after {drawn:.0f} ms")
    for name, step in steps.items():
        took = run(f"const begin = performance.now(); {step}; await frame(); return performance.now() - begin")
        print(f"{name}: {took:.0f} ms")
    assert run("return document.querySelectorAll('.map svg .inks path').length") > 10
    np.testing.assert_allclose(weights_of(run)[300], weights[0, 0, 300], atol=1e-6)


def test_a_wide_map_is_saved_as_png(opened):
    """A canvas of twice its size would be wider than browsers draw."""
    run = opened(Alignment(["a"] * 1000, ["b", "c"], softmax(2, 1000)))
    run(
        "window.save = (blob) => { window.saved = blob ? blob.size : 'nothing'; };"
        "[...document.querySelectorAll('button')].find((each) => each.textContent === 'Save as PNG').click()"
    )
    end = time.monotonic() + 30
    while not (size := run("return window.saved")) and time.monotonic() < end:
        time.sleep(0.1)
    assert isinstance(size, int) and size > 1000


def test_slanted_labels_fit_a_phone(opened, driver):
    size = {"width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        source = ["▁Two", "▁dogs", "▁are", "▁play", "ing", "▁in", "▁the", "▁agreements"]
        run = opened(Alignment(source, ["▁Zwei", "▁spielen", "."], softmax(3, len(source))))
        time.sleep(0.3)
        assert "rotate(-45)" in run("return document.querySelector('.map svg text').getAttribute('transform')")
        inside, outside, cell = run("""
            const map = document.querySelector('.map'), box = map.getBoundingClientRect();
            const ends = [...map.querySelectorAll('svg > text')].map((each) => each.getBoundingClientRect().right);
            return [Math.max(...ends, box.left + map.scrollWidth), box.right + 1,
                    map.querySelector('.inks').getBoundingClientRect().width / arguments[0]];
        """, len(source))  # fmt: skip
        assert inside <= outside and cell >= 16
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
