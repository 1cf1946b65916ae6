"""The dashboard in a real browser, served by the real app: what it shows, to whom, and what it says when it cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browser import browser, find_chromium
from shown_service import BLOCKS, HOSTILE, ShownService, serving
from zerolayer.server.http.pages import DASHBOARD

CONTRAST = """(foreground, background) => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (text) => parse(text).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [light(foreground), light(background)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""
"""The contrast ratio of WCAG 2.2, section 1.4.3."""

CUT = "Number(document.querySelectorAll('#legend-discarded dd')[1].innerText.replace(/\\D/g, ''))"
"""Tokens that the static window had cut, as the legend tells: at the pointer, else the latest."""

HALFWAY = f"({CUT} > 10_000 && {CUT} < 16_000)"

DRAWN_LEFT = """(() => {
  const canvas = document.querySelector('#chart-tiers canvas'), over = document.querySelector('#chart-tiers .u-over');
  const data = canvas.getContext('2d').getImageData(over.offsetLeft, 0, 40, canvas.height).data;
  let drawn = 0;
  for (let i = 0; i < data.length; i += 4) drawn += data[i + 3] === 255 && Math.max(data[i], data[i + 1], data[i + 2])
    - Math.min(data[i], data[i + 1], data[i + 2]) > 30;
  return drawn > 500;
})()"""
"""Whether a stacked curve is drawn at the left end of its axis, 40 pixels wide: in colours, where the grid is grey."""

SELECTORS = (
    "#now dd", "#now .note", "figcaption p", "#legend-tiers dt", "#sessions td",
    ".chip.answering", ".chip.park", ".chip.fallback",
)  # fmt: skip


@pytest.fixture(scope="module")
def page():
    program = find_chromium()
    if program is None:
        pytest.skip("needs chromium on the path, such as Debian's package of that name")
    with browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def url():
    with serving(ShownService()) as address:
        yield address


@pytest.fixture(scope="class")
def opened(page, url):
    """The dashboard with all its data, in which no error may happen."""
    page.errors.clear()
    page.open(url)
    page.wait(f"document.querySelectorAll('#strip .cell').length === {BLOCKS}")
    yield page
    assert page.errors == []


def text(page, selector):
    return page.js(f"document.querySelector({selector!r}).innerText")


def texts(page, selector):
    return page.js(f"[...document.querySelectorAll({selector!r})].map((node) => node.innerText)")


class TestFiles:
    def test_nothing_comes_from_elsewhere(self):
        for path in DASHBOARD.rglob("*"):
            if path.is_file() and path.suffix in {".html", ".js", ".css", ".svg"}:
                found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", path.read_text(encoding="utf-8"))
                assert set(found) <= {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}, path

    def test_the_chart_library_comes_with_its_licence(self):
        assert "MIT License" in (DASHBOARD / "vendor/uPlot.LICENSE.txt").read_text()

    def test_the_page_allows_no_scripts_but_its_own(self, url):
        import urllib.request

        with urllib.request.urlopen(url) as answer:
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            page = answer.read().decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|\bstyle=", page)

    def test_every_file_is_in_the_package(self):
        import tomllib

        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
        patterns = project["tool"]["setuptools"]["package-data"]["zerolayer"]
        packaged = {path for pattern in patterns for path in DASHBOARD.parents[1].glob(pattern)}
        assert {path for path in DASHBOARD.rglob("*") if path.is_file()} <= packaged


class TestNumbers:
    def test_every_tile_has_a_unit(self, opened):
        tiles = texts(opened, "#now dd:nth-of-type(1)")
        assert len(tiles) == 8 and tiles[0] == "0 tokens"
        assert all(re.search(r"\d (tokens|%|µs|ms|s|turns|MiB)$", tile) for tile in tiles), tiles

    def test_curves_grow_and_their_legends_name_units(self, opened):
        opened.wait("document.querySelectorAll('.chart canvas').length === 5")
        before = text(opened, "#legend-discarded")
        opened.wait(f"document.querySelector('#legend-discarded').innerText !== {before!r}")
        assert re.search(r"this server\s+0 tokens\s+static window\s+[\d,]+ tokens", before), before
        for name, unit in (("tiers", "MiB"), ("grades", "tokens"), ("waste", "%"), ("latency", "µs")):
            values = texts(opened, f"#legend-{name} dd")
            assert values and all(unit in value for value in values), (name, values)
            assert unit in opened.js(f"document.querySelector('#chart-{name}').getAttribute('aria-label')")

    def test_the_curve_is_drawn_in_its_colour(self, opened):
        seen = """(() => {
          const canvas = document.querySelector('#chart-tiers canvas');
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const colours = {};
          for (let i = 0; i < data.length; i += 4) {
            if (data[i + 3] === 255) {
              const key = [data[i], data[i + 1], data[i + 2]].join(); colours[key] = (colours[key] || 0) + 1;
            }
          }
          return colours;
        })()"""
        opened.wait(
            f"({seen})['0,158,115'] > 200 && ({seen})['185,99,154'] > 200 && ({seen})['109,127,163'] > 200"
        )

    def test_the_heat_map_is_live_and_pointed_at(self, opened):
        opened.wait("document.querySelector('#heat-about').innerText.includes('256 × 256 cells')")
        hottest, cold = opened.js(
            "(pen => [[...pen.getImageData(90, 60, 1, 1).data], [...pen.getImageData(250, 250, 1, 1).data]])"
            "(document.querySelector('#heat-map').getContext('2d'))"
        )
        assert sum(hottest[:3]) > 2 * sum(cold[:3])
        opened.point("#heat-map")
        assert re.fullmatch(r"Address 0x[0-9a-f]+: [\d.e-]+ accesses", text(opened, "#heat-note"))

    def test_sessions_policies_and_fallbacks(self, opened):
        rows = texts(opened, "#sessions tbody tr")
        assert len(rows) == 3 and "contract.pdf" in rows[0] and "answering" in rows[0]
        assert (
            "14 · 30 · 96 · 120" in rows[0]
            and "2 of 16" in rows[0]
            and re.search(r"in (\d+ min|[12] h)", rows[0])
        )
        assert "Mietvertrag Straße.pdf" in rows[1] and "parked" in rows[1]
        assert "graded policy default" in text(opened, "#policies")
        assert "ppo was late" in text(opened, "#fallbacks") and "decision 81.0 µs" in text(
            opened, "#fallbacks"
        )


class TestHistory:
    """The static window's cut tokens rise by 320 a sample, from 1,920 to 24,000 when a page is opened."""

    @pytest.fixture
    def service(self):
        return ShownService()

    @pytest.fixture
    def late(self, page, service):
        """A page opened when the server has run for a while, pointed at the middle of that time."""
        with serving(service) as address:
            page.open(address)
            page.wait(f"{CUT} >= 24_000")
            page.point("#chart-discarded .u-over")
            page.wait(HALFWAY)
            yield page
        page.errors.clear()  # the browser notes failed requests

    def test_curves_from_before_are_drawn_from_the_left_end_and_go_on(self, late):
        assert late.js(DRAWN_LEFT)
        assert "Curves begin when the server started" in text(late, "#footer")
        late.point("h1")
        late.wait(f"{CUT} > 24_000")
        late.wait(f"{CUT} > {late.js(CUT)}")
        for name, unit in (("tiers", "MiB"), ("grades", "tokens"), ("waste", "%"), ("latency", "µs")):
            late.point(f"#chart-{name} .u-over")
            values = texts(late, f"#legend-{name} dd")
            assert values and all(unit in value for value in values), (name, values)

    @pytest.mark.parametrize("jump_s", [-7200, 7200])
    def test_the_clock_of_the_pages_machine_may_jump_and_differ_from_the_servers(self, late, jump_s):
        late.js(f"(now => {{ Date.now = () => now() + 1000 * {jump_s}; }})(Date.now)")
        late.wait(
            "document.querySelector('#footer').innerText"
            ".includes(`Numbers as of ${new Date(Date.now()).toLocaleTimeString('en-GB').slice(0, 5)}`)"
        )
        late.point("h1")
        late.wait(f"{CUT} > 24_000")
        late.point("#chart-discarded .u-over")
        late.wait(HALFWAY)
        assert late.js(DRAWN_LEFT)

    def test_another_server_has_a_past_of_its_own(self, late, service):
        service.started, service.past = service.started + 800, 8
        late.wait(f"{CUT} > 21_000 && {CUT} < 24_000")

    def test_without_it_curves_begin_now_and_the_page_says_why(self, page, service):
        history, service.history = service.history, lambda: 1 / 0
        with serving(service) as address:
            page.open(address)
            page.wait("document.querySelector('#errors').innerText.includes('v1/rtls/history: 500')")
            page.point("#chart-discarded .u-over")
            page.wait(f"{CUT} > 24_320")
            service.history = history
            page.wait(f"document.querySelector('#errors').hidden && {HALFWAY}")
        page.errors.clear()


class TestStrip:
    def test_pointing_at_a_block_tells_all_of_it(self, opened):
        opened.point("#block-3")
        opened.wait("document.querySelector('#block h3')")
        told = text(opened, "#block")
        for part in (
            "Block 3, page 1",
            "Notice number 3",
            "used in turn 4",
            "device, slot 3",
            "probability of use",
        ):
            assert part in told
        assert told.index("EVICT_P3") < told.index("MOVE_P0") and "210 ns" in told and "41.0 µs" in told

    def test_keys_move_through_blocks_lines_and_pages(self, opened):
        opened.js("document.querySelector('#strip').focus()")
        chosen = "document.querySelector('#strip').getAttribute('aria-activedescendant')"
        seen = [opened.js(chosen)]
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "PageDown", "End", "Home"):
            opened.key(key)
            seen.append(opened.js(chosen))
        last = f"block-{BLOCKS - 1}"
        assert seen == ["block-0", "block-1", "block-2", "block-1", "block-12", last, "block-0"]
        opened.key("ArrowDown")
        below = int(opened.js(chosen).removeprefix("block-"))
        assert below > 12
        assert f"Block {below}" in text(opened, "#block h3")
        assert opened.js(f"document.getElementById('block-{below}').getAttribute('aria-selected')") == "true"

    def test_a_documents_text_is_never_markup(self, opened):
        opened.point("#block-4")
        opened.wait("document.querySelector('#block blockquote')")
        assert HOSTILE in text(opened, "#block blockquote")
        assert opened.js("document.querySelectorAll('#block img, #block b').length") == 0

    def test_another_session_is_chosen_and_a_stored_one_says_so(self, opened):
        choose = (
            "(node => { node.value = %r; node.dispatchEvent(new Event('change')); })"
            "(document.querySelector('#session'))"
        )
        opened.js(choose % ("99aa88bb" * 8))
        opened.wait("document.querySelector('#strip-about').innerText.includes('it is stored, not live')")
        assert opened.js("document.querySelectorAll('#strip .cell').length") == 0
        opened.js(choose % ("0f1e2d3c" * 8))
        opened.wait(f"document.querySelectorAll('#strip .cell').length === {BLOCKS}")
        assert text(opened, "#strip-about").startswith("Mietvertrag Straße.pdf")

    def test_what_is_looked_at_stays_when_another_session_is_used(self, page):
        service = ShownService()
        with serving(service) as address:
            page.open(address)
            page.wait(f"document.querySelectorAll('#strip .cell').length === {BLOCKS}")
            service.shown[:2] = service.shown[1::-1]
            page.wait("document.querySelector('#strip-about').innerText.startsWith('Mietvertrag')")
            page.js("document.querySelector('#block-7').click()")
            service.shown[:2] = service.shown[1::-1]
            page.wait("document.querySelector('#sessions tbody th').innerText.startsWith('contract.pdf')")
            assert text(page, "#strip-about").startswith("Mietvertrag")
            assert "Block 7" in text(page, "#block h3")


class TestReading:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_stands_out_in_both_themes(self, page, url, scheme):
        page.open(url, scheme=scheme)
        page.wait("document.querySelectorAll('#strip .cell').length")
        dark = page.js("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 26)"
        assert dark == (scheme == "dark")
        for selector in SELECTORS:
            ratio = page.js(
                f"(() => {{ const node = document.querySelector({selector!r}); let back = node;"
                "while (getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;"
                f"return ({CONTRAST})(getComputedStyle(node).color, getComputedStyle(back).backgroundColor); }})()"
            )
            assert ratio >= 4.5, (selector, ratio)
        for grade in ("P0", "P1", "P2", "P3"):
            on, cell = page.js(
                f"(s => [s.color, s.getPropertyValue('--{grade.lower()}')])"
                f"(getComputedStyle(document.querySelector('#strip-legend .cell.{grade}')))"
            )
            rgb = [int(cell.strip().lstrip("#")[i : i + 2], 16) for i in (0, 2, 4)]
            assert page.js(f"({CONTRAST})('{on}', 'rgb({rgb[0]}, {rgb[1]}, {rgb[2]})')") >= 4.5, grade

    def test_the_switch_goes_before_the_systems_choice_and_is_kept(self, opened, url):
        background = "getComputedStyle(document.body).backgroundColor"
        assert opened.js(background) == "rgb(246, 247, 249)"
        opened.js("document.querySelector('[data-theme-choice=dark]').click()")
        assert opened.js(background) == "rgb(17, 20, 26)"
        opened.open(url)
        assert opened.js(background) == "rgb(17, 20, 26)"
        assert (
            opened.js("document.querySelector('[data-theme-choice=dark]').getAttribute('aria-pressed')")
            == "true"
        )
        opened.js("document.querySelector('[data-theme-choice=auto]').click()")

    def test_it_fits_a_phone(self, page, url):
        page.open(url, width=360, height=740)
        page.wait("document.querySelectorAll('#strip .cell').length")
        assert page.js("document.documentElement.scrollWidth") <= 360
        assert len(page.picture()) > 20_000

    def test_what_is_operated_has_a_name(self, opened):
        unnamed = opened.js(
            "[...document.querySelectorAll('button, select, input, canvas[role], [role=region], [role=listbox]')]"
            ".filter((node) => !(node.innerText || node.labels?.length || node.getAttribute('aria-label')"
            "|| node.getAttribute('aria-labelledby'))).map((node) => node.outerHTML)"
        )
        assert unnamed == []


class TestTrouble:
    def test_not_ready_says_why(self, page):
        service = ShownService()
        service.ok = False
        with serving(service) as address:
            page.open(address)
            page.wait("document.querySelector('#ready').innerText.includes('the model is loading')")

    def test_a_server_that_has_gone_is_said_and_its_return_is_seen(self, page):
        service = ShownService()
        with serving(service) as address:
            page.open(address)
            page.wait("document.querySelectorAll('#now dd').length")
            assert page.js("document.querySelector('#errors').hidden")
            totals, service.totals = service.totals, lambda: 1 / 0
            page.wait("!document.querySelector('#errors').hidden")
            assert "v1/rtls/totals: 500" in text(page, "#errors") and "since" in text(page, "#errors")
            service.totals = totals
            page.wait("document.querySelector('#errors').hidden")
        page.wait("document.querySelector('#errors').innerText.includes('the server does not answer')")
        assert text(page, "#ready") == "no answer"
        page.errors.clear()  # the browser notes failed requests

    def test_with_a_key(self, page):
        with serving(ShownService(), api_keys=("open-sesame",)) as address:
            page.open(address)
            page.wait("!document.querySelector('#key-form').hidden")
            assert "API key" in text(page, "#errors")
            page.js("document.querySelector('#key').value = 'open-sesame'")
            page.js("document.querySelector('#key-form button').click()")
            page.wait("document.querySelectorAll('#now dd').length")
            page.wait("document.querySelector('#key-form').hidden")
        page.errors.clear()
