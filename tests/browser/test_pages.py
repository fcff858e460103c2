"""Every page of the built book, opened in a browser at desktop and phone width, light and dark.

Needs the built book (`make book`), the extra `browser` and a Chromium; leaves pictures of all pages in `screenshots/`.
"""

import itertools
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from helpers import paths

SITE = paths.ROOT / "_build" / "html"
# Pages at old addresses only lead on.
PAGES = [file for file in sorted((SITE / "book").rglob("*.html")) if 'http-equiv="refresh"' not in file.read_text()]
PAGES += [SITE / f"{name}.html" for name in ("genindex", "prf-prf", "search")]
PICTURES = paths.ROOT / "screenshots"
AXE = {"resultTypes": ["violations"], "preload": False}
EVERYTHING = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
# What takes axe longest, and does not depend on the width; nothing else depends on the scheme.
CONTRAST = {"runOnly": ["color-contrast"]}
NO_CONTRAST = EVERYTHING | {"rules": {"color-contrast": {"enabled": False}}}
# What scrolls to the side.
_BOXES = ".bd-article :is(.book-table-scroll, .pst-scrollable-table-container, span.math, div.math mjx-container)"
WIDE = f"[...document.querySelectorAll('{_BOXES}')].filter(box => box.scrollWidth > box.clientWidth + 4)"
CHECKED = {1280: {"light": EVERYTHING, "dark": CONTRAST}, 390: {"light": NO_CONTRAST, "dark": None}}
HEAVIEST = 2_000_000  # bytes of a page and all it loads, as they lie on the disk

pytestmark = pytest.mark.browser


class Opened:
    """A page with its maths typeset, the errors it raised and what it loaded."""

    def __init__(self, browser, file, width, query=""):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        self.errors, self.loaded = [], set()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self.loaded.add(request.url))
        self.page.goto(file.as_uri() + query, wait_until="load")
        if self.page.locator(".math").count():
            self.page.wait_for_selector("mjx-container", state="attached", timeout=30_000)
            self.page.wait_for_function("MathJax.startup.promise.then(() => true)")
        self.page.wait_for_function("document.fonts.status === 'loaded'")
        self.page.wait_for_function(f"{WIDE}.every(box => box.role === 'group')", timeout=20_000)  # `scroll.js` is done

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()

    @property
    def outside(self):
        return [url for url in self.loaded if not url.startswith(("file:", "data:"))]

    @property
    def weight(self):
        files = {unquote(urlsplit(url).path) for url in self.loaded if url.startswith("file:")}
        return sum(Path(file).stat().st_size for file in files)

    def violations(self, axe, rules):
        """Findings of axe-core, of any weight."""
        found = axe.run(self.page, options=AXE | rules).response["violations"]
        return [(rule["id"], node["target"], node["html"][:150]) for rule in found for node in rule["nodes"]]


@pytest.fixture(scope="module")
def axe():
    """What reads a page for contrast, names of controls and what the keyboard reaches."""
    PICTURES.mkdir(exist_ok=True)
    return pytest.importorskip("axe_playwright_python.sync_playwright").Axe()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_page(browser, axe, file, width):
    with Opened(browser, file, width) as opened:
        page = opened.page
        for scheme, rules in CHECKED[width].items():
            page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
            page.screenshot(path=PICTURES / f"{file.stem}-{width}-{scheme}.png", full_page=True)
            assert not rules or opened.violations(axe, rules) == [], scheme
        assert opened.errors == []
        assert opened.outside == []
        assert opened.weight <= HEAVIEST
        scroll = page.evaluate("document.documentElement.scrollWidth")
        assert scroll <= width, f"the page is {scroll} px wide at {width} px"
        assert page.locator("mjx-merror").count() == 0, "a formula does not parse"
        assert page.locator("img:not([alt])").count() == 0
        stops = page.locator("mjx-container[tabindex='0'], span.math[tabindex='0']").all()
        fits = [box for box in stops if box.evaluate("box => box.scrollWidth <= box.clientWidth + 4")]
        assert not fits, "a formula that fits is a tab stop"


def test_what_scrolls_is_named_and_what_fits_is_no_tab_stop(browser):
    """On a page whose tables are wider than a phone."""
    with Opened(browser, SITE / "book" / "which-method.html", 390) as phone:
        names = phone.page.evaluate(f"{WIDE}.map(box => box.role + ' ' + box.ariaLabel)")
        assert any(name.startswith("group Table: ") for name in names), names
        assert all(re.match(r"group (Table|Text|Formula)(:| in) ?\S", name) for name in names), names
        phone.page.set_viewport_size({"width": 1900, "height": 900})
        phone.page.wait_for_function(
            f"{len(names)} > document.querySelectorAll('.bd-article figure [role=group]').length"
        )
        fits = "box => box.scrollWidth <= box.clientWidth && !box.closest('.cell_input')"
        stops = "[...document.querySelectorAll('.bd-article [tabindex=\"0\"]')]"
        phone.page.wait_for_function(f"!{stops}.some({fits})")


def test_a_link_to_a_term_shows_what_the_term_means(browser):
    with Opened(browser, SITE / "book" / "smote.html", 1280) as opened:
        link = opened.page.locator(".bd-article a[href*='#term-epsilon']").first
        card = opened.page.locator("#preview-card")
        assert card.is_hidden()
        link.focus()
        assert "one record changes" in card.inner_text()
        assert link.get_attribute("aria-describedby") == "preview-card"
        opened.page.keyboard.press("Escape")
        assert card.is_hidden()


def test_title_search_and_the_open_chapter_are_in_view(browser):
    with Opened(browser, SITE / "book" / "appendix" / "benchmark-cells.html", 1280) as opened:
        for part in (".navbar-brand", ".search-button-field", "li.active a.current"):
            box = opened.page.locator(f".bd-sidebar-primary {part}").first.bounding_box()
            assert box["y"] >= 0, part
            assert box["y"] + box["height"] <= 900, part


def test_the_claims_can_be_filtered_and_sorted(browser):
    claims = SITE / "book" / "claims.html"
    with Opened(browser, claims, 1280) as opened:
        page = opened.page
        rows = page.locator("table.claims-register tbody tr:visible")
        everything = rows.count()
        page.select_option('[data-filter="document"]', "sad")
        only_sad = rows.count()
        assert 0 < only_sad < everything
        assert f"{only_sad} of {everything} shown" in page.locator(".claims-filters output").inner_text()
        assert urlsplit(page.url).query == "document=sad"
        page.fill('[data-filter="text"]', "no such statement")
        assert rows.count() == 0
        page.fill('[data-filter="text"]', "")
        page.select_option('[data-filter="document"]', "")
        header = page.locator("table.claims-register thead button").nth(2)
        header.click()
        ascending = page.locator("table.claims-register tbody tr td:nth-child(3) strong").all_inner_texts()
        assert ascending == sorted(ascending, key=str.lower)
        header.click()
        descending = page.locator("table.claims-register tbody tr td:nth-child(3) strong").all_inner_texts()
        assert descending == sorted(descending, key=str.lower, reverse=True)
        assert descending[0] != ascending[0]
    with Opened(browser, claims, 1280, query="?document=sad") as again:
        assert again.page.locator("table.claims-register tbody tr:visible").count() == only_sad


def test_one_reads_on_from_page_to_page():
    """The links at the end of each page follow the table of contents."""
    contents = yaml.safe_load((paths.ROOT / "_toc.yml").read_text())
    names = [contents["root"], *(entry["file"] for part in contents["parts"] for entry in part["chapters"])]
    for here, following in itertools.pairwise(names):
        page = (SITE / f"{here}.html").read_text()
        [link] = re.findall(r'<a class="right-next"\s+href="([^"]+)"', page)
        assert link == f"{os.path.relpath(following, Path(here).parent)}.html", here


def test_a_search_finds_a_page_and_no_code(browser):
    """Without a server: the index is a script."""
    with Opened(browser, SITE / "search.html", 1280, query="?q=mammography") as opened:
        opened.page.wait_for_selector("#search-results li a")
        assert opened.page.locator("#search-results li a").count() > 2
    index = (SITE / "searchindex.js").read_text()
    terms = index[index.index("terms:{") :] if "terms:{" in index else index[index.index('"terms"') :]
    for not_a_word in ("mathbb", "varepsilon", "linspace", "book.glue"):
        assert not re.search(rf'\b{not_a_word}"?:', terms), not_a_word


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("which epsilon", "which-method"),
        ("rare class", "which-method"),
        ("imblearn", "smote"),
        ("SMOTE privacy", "smote"),
        ("private classifier", "private-classifiers"),
    ],
)
def test_a_search_finds_what_readers_ask_for_first(browser, query, page):
    with Opened(browser, SITE / "search.html", 1280, query=f"?q={query.replace(' ', '+')}") as opened:
        opened.page.wait_for_selector("#search-results li a")
        found = opened.page.locator("#search-results li > a").first
        assert Path(urlsplit(found.get_attribute("href")).path).stem == page


def test_the_magnifier_leaves_room_for_the_first_letter(browser):
    with Opened(browser, SITE / "search.html", 1280, query="?q=x") as opened:
        icon = opened.page.locator(".bd-content .bd-search i").first.bounding_box()
        field = opened.page.locator(".bd-content .bd-search input").first
        begin = field.bounding_box()["x"] + float(
            field.evaluate("field => parseFloat(getComputedStyle(field).paddingLeft)")
        )
        assert icon["x"] + icon["width"] <= begin


@pytest.mark.parametrize("width", [1280, 390])
def test_the_front_page_has_its_doors_in_view(browser, width):
    """Cards, picture and caption on a desktop, the three cards on a phone."""
    with Opened(browser, SITE / "book" / "index.html", width) as opened:
        doors = opened.page.locator(".bd-article .sd-row .sd-card").all()
        assert len(doors) == 3
        picture = opened.page.locator(".bd-article .cell_output")
        caption = picture.locator("xpath=following-sibling::p[1]")
        for box in [*doors, picture, caption] if width == 1280 else doors:
            place = box.bounding_box()
            assert place["y"] + place["height"] <= 900


def test_links_to_what_has_moved_lead_there(browser):
    with Opened(browser, SITE / "book" / "smote.html", 1280) as opened:
        for old, new in (
            ("smote.html#claim-dpci-thm3", "appendix/app-smote.html#claim-dpci-thm3"),
            ("kissing-numbers.html#smote-typical", "appendix/kissing-numbers.html#smote-typical"),
        ):
            opened.page.goto((SITE / "book" / "index.html").as_uri())
            opened.page.goto((SITE / "book").as_uri() + "/" + old)
            opened.page.wait_for_url(f"**/book/{new}")


def test_the_book_is_there():
    assert (SITE / "book" / "index.html").is_file(), "run make book first"
