"""Sphinx extension that keeps pages light: of scripts, styles and icons they load what the book uses.

The template `book/_templates/layout.html` and the list of MathJax's parts in `_config.yml` belong to it.
"""

import json
import re
from pathlib import Path

from docutils import nodes
from fontTools import subset
from sphinx.application import Sphinx

from dpbook_pages import add_directives

_STYLES = Path("_static", "styles", "pydata-sphinx-theme.css")
_FONTS = Path("_static", "vendor", "fontawesome", "webfonts")
_DRAWING = Path("_static", "scripts", "fontawesome.js")  # 1.5 MB that draws icons, which the font does as well
_ICON = re.compile(r'((?:\.fa-[\w-]+::?before,?)+)\{content:"[^"]*"\}')
# Characters of private use, as icons are, in whatever rule: as they are, or as numbers.
_CHARACTER = re.compile(r"([\ue000-\uf8ff])|\\([ef][0-9a-f]{3})\b")
_NAME = re.compile(r"\bfa-[\w-]+")
_GRIDS = ("sphinx-design", "design-tabs")  # styles and a script of Jupyter Book's for what no page may have


def _load_what_is_used(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Each inline script once, nothing for live cells, which need a server, and for grids only where there are some."""
    useless = ("thebe",) if 'class="sd-' in context.get("body", "") else ("thebe", *_GRIDS)

    def used(asset) -> bool:
        return not any(name in _code(asset).lower() for name in useless)

    context["css_files"] = [asset for asset in context.get("css_files", ()) if used(asset)]
    scripts = {_code(asset): asset for asset in reversed(context.get("script_files", ())) if used(asset)}
    context["script_files"] = list(reversed(scripts.values()))


def _code(asset) -> str:
    return getattr(asset, "attributes", {}).get("body") or str(asset.filename)


def _keep_used_icons(app: Sphinx, exception: Exception | None) -> None:
    """Take icons that occur nowhere out of the theme's styles and fonts."""
    folder = Path(app.outdir)
    if exception or not (folder / _STYLES).is_file():
        return
    (folder / _DRAWING).write_text("// Icons are drawn by the font.\n")
    sources = [*folder.rglob("*.html"), *folder.glob("_static/scripts/*.js")]
    used = {name for file in sources for name in _NAME.findall(file.read_text(encoding="utf-8"))}
    styles = (folder / _STYLES).read_text(encoding="utf-8")
    styles = _ICON.sub(lambda icon: icon[0] if used & set(_NAME.findall(icon[1])) else "", styles)
    # One format is enough when a font is this small; this one is written without a further package.
    (folder / _STYLES).write_text(re.sub(r'url\([^)]*\.woff2\) format\("woff2"\),', "", styles))
    named = {match for file in folder.rglob("*.css") for match in _CHARACTER.findall(file.read_text(encoding="utf-8"))}
    for font in (folder / _FONTS).glob("*.ttf"):
        _reduce(font, {ord(character) if character else int(code, 16) for character, code in named})


def _keep_used_parts_of_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Take away the ready-made bundles of MathJax and the parts that `_config.yml` does not load: 20 MB."""
    folder = Path(app.outdir, "_static", "mathjax")
    if exception or not folder.is_dir():
        return
    loaded = {"startup", *app.config.mathjax3_config["loader"]["load"]}
    # TeX loads its rarer commands, and the output its fonts, when a formula needs them.
    later = (folder / "input" / "tex", folder / "output" / "chtml" / "fonts")
    for file in folder.rglob("*.*"):
        part = file.relative_to(folder).with_suffix("").as_posix()
        if file.is_file() and part not in loaded and not any(file.is_relative_to(place) for place in later):
            file.unlink()


def _leave_out_source_maps(app: Sphinx, exception: Exception | None) -> None:
    """They are for who develops the theme: 4 MB."""
    if not exception:
        for file in Path(app.outdir, "_static").rglob("*.map"):
            file.unlink()


def _leave_pictures_out_of_downloads(app: Sphinx, exception: Exception | None) -> None:
    """A notebook to download is there to be run, which makes its pictures again: 5 MB."""
    if exception:
        return
    for file in Path(app.outdir, "_sources").rglob("*.ipynb"):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            for output in cell.get("outputs", ()):
                output.get("data", {}).pop("image/png", None)
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _reduce(font: Path, characters: set[int]) -> None:
    options = subset.Options()
    loaded = subset.load_font(font, options)
    reducer = subset.Subsetter(options)
    reducer.populate(unicodes=characters)
    reducer.subset(loaded)
    subset.save_font(loaded, font, options)


def setup(app: Sphinx) -> dict[str, bool]:
    # Half of the usual bundle is a menu, which makes formulas tab stops.
    app.config.mathjax_path = "mathjax/startup.js"
    app.connect("html-page-context", _load_what_is_used, priority=900)  # after the extensions that add scripts
    app.connect("build-finished", _keep_used_icons)
    app.connect("build-finished", _keep_used_parts_of_mathjax)
    app.connect("build-finished", _leave_out_source_maps)
    app.connect("build-finished", _leave_pictures_out_of_downloads)
    return add_directives(app, {})
