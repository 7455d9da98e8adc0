"""The report in a real browser: Chromium through playwright, both optional."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from archer.analysis import Run, write_report

pytestmark = pytest.mark.slow
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="needs the playwright package: pip install playwright"
    )
    path = os.environ.get("ARCHER_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium on the path, or its place in ARCHER_CHROMIUM")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page with the report of one run, and everything that went wrong in it."""

    def __init__(self, page, run: Run, problems: list[str]) -> None:
        self.page, self.run, self.problems = page, run, problems

    def rows(self, step: int, group: int) -> list[dict]:
        file = dict(self.run.rollout_files())[step]
        return [row for row in map(json.loads, file.read_text().splitlines()) if row["group"] == group]


@pytest.fixture
def open_report(browser, make_run, tmp_path, gradient):
    contexts = []

    def opener(viewport=DESKTOP, scheme="light", **settings):
        run = make_run(steps=40, every=20, groups=6, size=4, length=60, **settings)
        file = write_report([run], tmp_path / "report.html", gradient_of=lambda _: gradient, min_count=20)
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page, problems = context.new_page(), []
        page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: problems.append(r.url) if re.match("https?:|wss?:", r.url) else None)
        page.goto(file.as_uri())
        page.wait_for_selector("#tokens span")
        return Opened(page, run, problems)

    yield opener
    for context in contexts:
        context.close()


def scroll_through(page):
    for top in range(0, page.evaluate("document.body.scrollHeight"), 500):
        page.evaluate(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
        page.wait_for_timeout(30)
    page.wait_for_timeout(300)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_drawn_without_a_complaint_and_fits(open_report, viewport, scheme):
    opened = open_report(viewport, scheme)
    scroll_through(opened.page)
    plots = opened.page.locator(".plot")
    assert plots.count() > 20
    assert opened.page.locator(".plot .main-svg").count() >= plots.count()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert opened.page.evaluate("window.hacked") is None
    assert opened.problems == []


def test_the_drawn_curve_is_the_recorded_one(open_report):
    opened = open_report()
    opened.page.locator("#figure-reward").scroll_into_view_if_needed()
    opened.page.wait_for_selector("#figure-reward .main-svg")
    raw, smoothed = opened.page.evaluate("document.querySelector('#figure-reward .plot').data.map(t => t.y)")
    np.testing.assert_allclose(raw, [row["reward/mean"] for row in opened.run.metrics[1:]], rtol=1e-5)
    assert np.var(np.diff(smoothed)) < np.var(np.diff(raw)), "the smoothed line is smoother"
    opened.page.select_option("#smoothing", "0")
    assert opened.page.evaluate("document.querySelector('#figure-reward .plot').data.length") == 1
    opened.page.click("#figure-entropy .legend button:first-child")
    assert opened.page.get_attribute("#figure-entropy .legend button:first-child", "aria-pressed") == "false"
    opened.page.click("#figure-reward summary")
    opened.page.wait_for_selector("#figure-reward .numbers td")
    cells = opened.page.locator("#figure-reward .numbers tbody tr:first-child td").all_inner_texts()
    assert float(cells[2]) == pytest.approx(opened.run.metrics[1]["reward/mean"], rel=1e-5)
    assert opened.problems == []


def test_empty_bins_of_a_density_lie_below_its_axis(open_report):
    page = open_report().page
    page.locator("#figure-fig03_regions-0").scroll_into_view_if_needed()
    page.wait_for_selector("#figure-fig03_regions-0 .main-svg")
    recorded, drawn, axis = page.evaluate("""() => {
      const node = document.querySelector('#figure-fig03_regions-0 .plot');
      const marks = DATA.figures[node.dataset.figure][0].marks.filter((mark) => mark.kind === 'area');
      const traces = node.data.filter((trace) => trace.fill === 'tozeroy');
      return [marks.map((m) => m.y), traces.map((t) => t.y), node.layout.yaxis2.range];
    }""")
    assert len(recorded) == len(drawn) == 2
    for shares, heights in zip(recorded, drawn, strict=True):
        assert 0 in shares, "a density without empty bins tests nothing"
        assert len(heights) == len(shares) + 1, "the last bin has a right edge"
        for share, height in zip(shares, heights[:-1], strict=True):
            assert height == share if share else np.log10(height) < axis[0]
            assert share == 0 or axis[0] < np.log10(share) < axis[1]


def test_every_colouring_shows_the_values_of_the_records(open_report):
    opened = open_report()
    page = opened.page
    page.click("button[aria-label^='Open step 40, group 0, sample 1,']")
    row = opened.rows(40, 0)[1]
    spans = page.locator("#tokens span")
    assert spans.count() == len(row["tokens"])
    assert "".join(spans.all_text_contents()).replace("⏎\n", "\n") == row["text"]
    entropies = []
    for mode in ("entropy", "role", "clip", "kl", "change"):
        page.check(f"input[name=colour][value={mode}]")
        classes = spans.evaluate_all("all => all.map(s => s.className)")
        shares = spans.evaluate_all("all => all.map(s => parseInt(s.style.getPropertyValue('--t')))")
        if mode == "role":
            assert [("strong" in c) for c in classes] == row["reasoning"]
        elif mode == "clip":
            eps = np.where(row["reasoning"], 0.5, 0.2)
            assert [("above" in c) for c in classes] == (np.array(row["ratio"]) > 1 + eps).tolist()
            assert [("below" in c) for c in classes] == (np.array(row["ratio"]) < 1 - eps).tolist()
        elif mode == "entropy":
            entropies = shares
        assert page.inner_text("#scale")
    assert np.argsort(entropies)[-1] in np.flatnonzero(
        np.array(row["entropy"]) >= np.quantile(row["entropy"], 0.8)
    )
    spans.nth(5).hover()
    tip = page.inner_text("#tooltip")
    assert f"entropy {row['entropy'][5]:.3f} nats" in tip
    assert f"ratio {row['ratio'][5]:.3f}"[:-1] in tip
    d = row["logp"][5] - row["ref_logp"][5]
    assert float(re.search(r"KL to the reference (\S+) nats", tip).group(1)) == pytest.approx(
        np.exp(-d) + d - 1, abs=2e-3
    )
    assert opened.problems == []


def test_tokens_can_be_read_with_the_keyboard_alone(open_report):
    opened = open_report()
    page = opened.page
    row = opened.rows(40, 0)[0]
    page.focus("#tokens")
    for key, at in (("ArrowRight", 0), ("ArrowRight", 1), ("End", len(row["tokens"]) - 1), ("Home", 0)):
        page.keyboard.press(key)
        text = page.inner_text("#token-values")
        assert text.startswith(f"Token {at + 1} of {len(row['tokens'])}:")
        assert f"entropy {row['entropy'][at]:.3f}" in text
    page.keyboard.press("]")
    following = next(i for i, role in enumerate(row["reasoning"]) if role and i > 0)
    assert page.inner_text("#token-values").startswith(f"Token {following + 1} of")
    assert page.get_attribute("#token-values", "role") == "status", "told to screen readers"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(n => !(n.labels && n.labels.length)"
        " && !n.getAttribute('aria-label') && !n.textContent.trim() && !n.closest('.modebar')).length"
    )
    assert unnamed == 0


def test_responses_can_be_filtered_sorted_and_searched(open_report):
    opened = open_report()
    page = opened.page
    rows = [row for step in (20, 40) for group in range(6) for row in opened.rows(step, group)]

    def count():
        page.wait_for_timeout(450)
        return int(page.inner_text("#viewer-status").split()[0])

    for box, keep in (
        ("wrong", lambda r: r["status"] == "incorrect"),
        ("right", lambda r: r["status"] == "correct"),
        ("truncated", lambda r: r["finish_reason"] == "length"),
    ):
        page.check(f"#only-{box}")
        assert count() == sum(map(keep, rows))
        page.uncheck(f"#only-{box}")
    page.check("#only-repetition")
    assert count() == 2, "the two responses that say one word over and over"
    page.uncheck("#only-repetition")
    page.select_option("#filter-step", "20")
    assert count() == 24
    page.select_option("#filter-step", "")
    page.select_option("#filter-sort", "kl")
    kls = [float(text) for text in page.locator("#viewer-list tbody td:nth-child(5)").all_inner_texts()]
    d = [np.array(row["logp"]) - row["ref_logp"] for row in rows]
    worst = int(np.argmax([np.max(np.exp(-x) + x - 1) for x in d]))
    assert kls[0] == pytest.approx(np.mean(np.exp(-d[worst]) + d[worst] - 1), abs=1e-4)
    page.fill("#filter-text", "WINDOW.hacked = 2'>")
    assert count() == sum("window.hacked" in row["text"] for row in rows)
    page.click("#viewer-list tbody tr:first-child button")
    page.wait_for_selector("#tokens .found")
    assert "window.hacked" in page.inner_text("#tokens .found >> nth=0")
    page.fill("#filter-text", "no such words")
    assert count() == 0
    assert opened.problems == []


def test_the_group_and_other_steps_lead_to_their_responses(open_report):
    opened = open_report()
    page = opened.page
    row = opened.rows(40, 0)[2]
    page.click("#group-list li:nth-child(3) button")
    page.wait_for_selector(f"#tokens span:nth-child({len(row['tokens'])})")
    assert page.inner_text("#response-title").startswith("Step 40, group 0, sample 2")
    assert page.inner_text("#response-prompt") == row["prompt"]
    page.click("#problem-list li:first-child button")
    page.wait_for_timeout(200)
    assert page.inner_text("#response-title").startswith("Step 20, group 0, sample 2")
    assert opened.problems == []


def test_what_a_run_lacks_cannot_be_chosen(open_report):
    opened = open_report(reference=False, clipped=False)
    for mode, enabled in (
        ("entropy", True),
        ("role", True),
        ("clip", False),
        ("kl", False),
        ("change", True),
    ):
        assert opened.page.is_enabled(f"input[name=colour][value={mode}]") == enabled
    assert opened.problems == []


CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (...layers) => {
    paint.clearRect(0, 0, 1, 1);
    for (const colour of layers) { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => {
    const [r, g, b] = c.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = getComputedStyle(document.getElementById('tokens')).backgroundColor;
  return Math.min(...[...document.querySelectorAll('#tokens span')].map((span) => {
    const style = getComputedStyle(span);
    const [a, b] = [light(rgb(ground, style.backgroundColor)), light(rgb(style.color))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }));
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tokens_are_readable_in_every_colouring(open_report, theme):
    page = open_report().page
    page.select_option("#theme", theme)
    for mode in ("entropy", "role", "clip", "kl", "change"):
        page.check(f"input[name=colour][value={mode}]")
        assert page.evaluate(CONTRAST) >= 4.5, (theme, mode)


def test_the_theme_can_be_switched_by_hand(open_report):
    opened = open_report(scheme="dark")
    page = opened.page
    ground = "getComputedStyle(document.body).backgroundColor"
    scroll_through(page)
    font = "document.querySelector('.plot').layout.font.color"
    dark = page.evaluate(ground), page.evaluate(font)
    page.select_option("#theme", "light")
    assert (page.evaluate(ground), page.evaluate(font)) == ("rgb(255, 255, 255)", "#1b1f27")
    page.select_option("#theme", "auto")
    assert (page.evaluate(ground), page.evaluate(font)) == dark != ("rgb(255, 255, 255)", "#1b1f27")
    assert opened.problems == []
