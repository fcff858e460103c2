"""Every page of the built book, opened in a browser at desktop and phone width.

Needs the built book (`make book`), the extra `browser` and a Chromium; leaves pictures of all pages in `screenshots/`.
"""

import shutil

import pytest

from helpers import paths

SITE = paths.ROOT / "_build" / "html"
# Pages at old addresses only lead on.
PAGES = [file for file in sorted((SITE / "book").glob("*.html")) if 'http-equiv="refresh"' not in file.read_text()]
PICTURES = paths.ROOT / "screenshots"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
# Formulas that scroll are no tab stops: a page has hundreds.
AXE = {"runOnly": ["wcag2a", "wcag2aa"], "rules": {"scrollable-region-focusable": {"enabled": False}}}
HARMLESS = "THEBE_JS_URL"  # the theme declares it twice on every page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


def open_page(browser, file, width):
    """The page with its maths typeset, the errors it raised and the requests that would leave the machine."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors, outside = [], []
    page.on("pageerror", lambda error: errors.append(str(error)) if HARMLESS not in str(error) else None)
    page.on("request", lambda request: outside.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri(), wait_until="load")
    if page.locator(".math").count():
        page.wait_for_selector("mjx-container", state="attached", timeout=30_000)
        page.wait_for_function("!MathJax.startup.promise || MathJax.startup.promise.then(() => true)")
    return page, errors, outside


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_page(browser, file, width):
    page, errors, outside = open_page(browser, file, width)
    try:
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"{file.stem}-{width}.png", full_page=True)
        assert errors == []
        assert outside == []
        scroll = page.evaluate("document.documentElement.scrollWidth")
        assert scroll <= width, f"the page is {scroll} px wide at {width} px"
        assert page.locator("mjx-merror").count() == 0, "a formula does not parse"
        assert page.locator("img:not([alt])").count() == 0
        assert page.locator("mjx-container[tabindex='0']").count() == 0, "a formula is a tab stop"
    finally:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "which-method", "findings", "claims", "private-classifiers", "data-sets"])
def test_page_is_accessible(browser, name, scheme):
    """No serious finding of axe-core: contrast, names of controls, what the keyboard reaches."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    try:
        page.goto((SITE / "book" / f"{name}.html").as_uri(), wait_until="load")
        found = axe.Axe().run(page, options=AXE).response["violations"]
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert not serious, [(rule["id"], rule["nodes"][0]["html"]) for rule in serious]
    finally:
        page.close()


def test_the_claims_can_be_filtered_and_sorted(browser):
    page, _, _ = open_page(browser, SITE / "book" / "claims.html", 1280)
    rows = page.locator("table.claims-register tbody tr:visible")
    everything = rows.count()
    page.select_option('[data-filter="document"]', "sad")
    only_sad = rows.count()
    assert 0 < only_sad < everything
    assert f"{only_sad} of {everything} shown" in page.locator(".claims-filters output").inner_text()
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


def test_the_book_is_there():
    assert (SITE / "book" / "index.html").is_file(), "run make book first"
