"""What the book adds to its theme, on a site of two pages: with and without the address of a repository."""

import copy
import io
import json
import re

import nbformat
import pytest
import yaml
from dpbook_launch import commands
from fontTools.ttLib import TTFont
from jupyter_book.config import get_final_config
from sphinx.application import Sphinx

from helpers import paths

ADDRESS = "https://github.com/owner/a-book"
INDEX = """
# First

Said by {cite:t}`one` and {cite:p}`two`; $\\mathbbm{secretmath}$ and `plaincode`, see {prf:ref}`thm-a`.
Brackets ($a$), a comma after $b$, and $c$ alone.

```python
secretcode = 1
```

```{prf:theorem} A title
:label: thm-a
A wordofthetheorem.
```

<div class="verdict">wordofhtml \\(\\mathsecret\\) <code>secrettag</code></div>

```{get-the-project}
```

```{bibliography}
```

```{toctree}
chapter
```
"""
WORKS = """
@article{one, author = {First, Ann and Second, Bob}, title = {On one}, journal = {J}, year = {2001}}
@article{two, author = {First, Ann and Second, Bob and Third, Cy}, title = {On two}, journal = {J}, year = {2002}}
"""
AS_IN_THE_BOOK = ("html_theme", "html_theme_options", "bibtex_reference_style", "bibtex_default_style",
                  "myst_enable_extensions", "mathjax3_config")  # fmt: skip
CONFIG = yaml.safe_load((paths.ROOT / "_config.yml").read_text())
EXTENSIONS = ["myst_nb", "sphinx_design", "sphinx_proof", "sphinxcontrib.bibtex"]
EXTENSIONS += [f"dpbook_{name}" for name in ("indexes", "launch", "theme", "weight")]


def build(folder, address=""):
    """The HTML of the two pages; a warning is an error."""
    repository = CONFIG["repository"] | {"url": address}
    book, _ = get_final_config(
        user_yaml=CONFIG | {"repository": repository}, cli_config={"latex_individualpages": False}
    )
    source = folder / "source"
    source.mkdir()
    (source / "index.md").write_text(INDEX)
    (source / "works.bib").write_text(WORKS)
    cells = [nbformat.v4.new_markdown_cell("# Chapter"), nbformat.v4.new_code_cell("import helpers")]
    kernel = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), source / "chapter.ipynb")
    settings = {
        "extensions": EXTENSIONS,
        "html_title": "A book",
        "nb_execution_mode": "off",
        "templates_path": [str(paths.BOOK / "_templates")],
        "bibtex_bibfiles": ["works.bib"],
        "suppress_warnings": ["app"],  # in one process the second site registers everything again
    } | {name: copy.deepcopy(book[name]) for name in AS_IN_THE_BOOK}
    warned = io.StringIO()
    app = Sphinx(source, None, folder / "html", folder / "trees", "html", settings, None, warned)
    app.build()
    assert warned.getvalue() == ""
    return folder / "html"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def with_address(tmp_path_factory):
    return build(tmp_path_factory.mktemp("address"), ADDRESS)


def article(file) -> str:
    return re.search(r"<article.*</article>", file.read_text(), re.DOTALL)[0]


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def test_labels_of_works_are_what_the_text_prints(site):
    page = article(site / "index.html")
    assert "Said by First and Second [2001] and [First et al., 2002]" in text(page)
    labels = [text(label) for label in re.findall(r'<span class="label">(.*?)</span>\n', page)]
    assert labels == ["[First and Second, 2001]", "[First et al., 2002]"]


def test_theorems_are_listed_by_chapter_with_number_and_title(site):
    page = (site / "prf-prf.html").read_text()
    assert re.search(r'<h2>First</h2>\s*<ul>\s*<li><a href="index.html#thm-a">Theorem 1: A title</a></li>', page)
    assert 'id="thm-a"' in (site / "index.html").read_text()


def test_a_search_knows_words_and_no_code(site):
    index = (site / "searchindex.js").read_text()
    for word in ("wordofthetheorem", "wordofhtml", "plaincod"):
        assert word in index, word
    assert not re.findall(r"\w*secret\w*", index)


def test_lists_have_items_and_ids_are_unique(site):
    page = article(site / "index.html")
    assert page.count('role="listitem"') == 2
    assert "doc-biblioentry" not in page
    assert 'id="proof-content"' not in page


def test_no_line_breaks_between_a_formula_and_what_touches_it(site):
    together = re.findall(
        r'<span class="together">(.*?)<span class="math[^>]*>\\\((.)\\\)</span>(.*?)</span>',
        article(site / "index.html"),
    )
    assert together == [("(", "a", "),"), ("", "b", ",")]


def test_pages_load_what_they_use(site):
    page = (site / "index.html").read_text()
    assert "searchindex.js" not in page
    assert "searchindex.js" in (site / "search.html").read_text()
    for unused in ("thebe", "sphinx-design", "design-tabs"):
        assert unused not in page.lower(), unused
    assert (site / "_static/scripts/fontawesome.js").stat().st_size < 100


def test_icons_are_those_that_occur(site):
    styles = (site / "_static/styles/pydata-sphinx-theme.css").read_text()
    assert ".fa-magnifying-glass:before" in styles
    assert ".fa-monero:before" not in styles
    fonts = {file.stem: file for file in (site / "_static/vendor/fontawesome/webfonts").glob("*.ttf")}
    assert f"url(../vendor/fontawesome/webfonts/{fonts['fa-solid-900'].name})" in styles
    assert not re.search(r"url\([^)]*woff2\)", styles)
    drawn = TTFont(fonts["fa-solid-900"]).getBestCmap()
    for name in set(re.findall(r"fa-solid (fa-[a-z-]+)", (site / "index.html").read_text())):
        code = re.search(rf'\.{name}:+before[^{{]*{{content:"\\([0-9a-f]+)"', styles)[1]
        assert int(code, 16) in drawn, name
    assert ord("\uf05a") in drawn, "the theme's own rules have icons too, as before the title of a note"
    assert len(drawn) < 60


def test_no_address_is_invented():
    """Jupyter Book has one of its own in its defaults."""
    assert set(CONFIG["repository"]) == {"url", "branch"}


def test_without_an_address_nothing_leads_nowhere(site):
    page = (site / "chapter.html").read_text()
    for foreign in ("mybinder", "colab", "github"):
        assert foreign not in page, foreign
    assert "git clone" not in (site / "index.html").read_text()
    assert "make lab" in text(article(site / "index.html"))


def test_with_an_address_there_are_buttons_and_a_line_that_clones(with_address):
    page = (with_address / "chapter.html").read_text()
    for link in (
        "https://mybinder.org/v2/gh/owner/a-book/main?urlpath=lab/tree/chapter.ipynb",
        "https://colab.research.google.com/github/owner/a-book/blob/main/chapter.ipynb",
        "https://github.com/owner/a-book/blob/main/chapter.ipynb?plain=1",
        f'href="{ADDRESS}"',
    ):
        assert link in page, link
    told = text(article(with_address / "index.html"))
    assert f"git clone {ADDRESS} cd a-book make lab" in told
    assert f"!git clone {ADDRESS} %pip install -e a-book" in told


@pytest.mark.parametrize(
    ("which", "first"), [("site", "make lab"), ("with_address", f"git clone {ADDRESS}\ncd a-book")]
)
def test_a_downloaded_notebook_says_how_to_get_what_it_imports(which, first, request):
    file = request.getfixturevalue(which) / "_sources/chapter.ipynb"
    notebook = json.loads(file.read_text())
    nbformat.validate(notebook)
    told = "".join(notebook["cells"][0]["source"])
    assert "`helpers`" in told
    assert "`chapter.ipynb`" in told
    assert first in told
    assert len(notebook["cells"]) == 3


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/", f"{ADDRESS}.git"])
def test_the_folder_of_a_clone(address):
    assert commands(address).splitlines()[1] == "cd a-book"
