"""The figure with sliders: valid without JavaScript, alive with it, and nothing fetched."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from helpers import paths
from helpers.book import chapters
from helpers.book.widgets import SliderFigure

FRAMES = {"1": {"a": [0.0, 0.5, 1.0], "b <i>": [1.0, 0.5, 0.2]}, "2": {"a": [1.0, 0.2, 0.0], "b <i>": [0.1, 0.5, 0.9]}}


def figure(**changes) -> SliderFigure:
    values = {"name": "demo", "x": [0, 1, 2], "frames": FRAMES, "x_label": "x & y", "frame_label": "frame",
              "caption": "Two </script> curves.", "cursor": 1, "peaks": True}  # fmt: skip
    return SliderFigure(**values | changes)


def test_the_picture_is_well_formed_and_needs_no_script():
    page = figure()._repr_html_()
    picture = re.search(r"<svg role.*?</svg>", page, re.DOTALL)[0]
    root = ElementTree.fromstring(picture)
    assert len(root.findall(".//path[@data-curve]")) == 2
    assert [text.text for text in root.findall("text")][6:-2] == ["0", "0.5", "1", "1.5", "2"]
    assert root.get("aria-label") == "Two </script> curves."
    assert '<div data-role="controls" hidden>' in page


def test_nothing_is_fetched_and_the_data_is_inside():
    page = figure()._repr_html_()
    assert not re.search(r"https?:|src=|href=|fetch\(|import", page)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    assert data["frames"][1][0] == [1.0, 0.2, 0.0]
    assert data["names"] == ["1", "2"]
    assert page.count("</script>") == 2, "a caption must not end the script"


def test_logarithmic_axes_have_equal_steps_for_equal_factors():
    frames = {"1": {"a": [0.01, 0.1, 1.0]}}
    page = figure(
        x=[1, 10, 100], frames=frames, log_x=True, log_y=True, y_range=(0.01, 1.0), y_label="loss"
    )._repr_html_()
    root = ElementTree.fromstring(re.search(r"<svg role.*?</svg>", page, re.DOTALL)[0])
    points = np.array(re.findall(r"[\d.]+", root.find(".//path[@data-curve]").get("d")), float).reshape(3, 2)
    np.testing.assert_allclose(points[1], (points[0] + points[2]) / 2, atol=0.1)
    texts = [text.text for text in root.findall("text")]
    assert {"0.01", "0.1", "1", "10", "100", "loss"} <= set(texts)


def test_repr_is_plain_text():
    assert repr(figure()) == "Two </script> curves. (a, b <i>; frame: 1, 2)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "name"),
        ({"x": [0, 0, 1]}, "increasing"),
        ({"frames": {"1": {"a": [0, 1]}}}, "3 values"),
        ({"frames": {"1": {"a": [0, 1, 1]}, "2": {"b": [0, 1, 1]}}}, "curves"),
        ({"frames": {"1": {"a": [0, float("nan"), 1]}}}, "in \\[0, 1\\]"),
        ({"y_range": (0.0, 0.9)}, "in \\[0, 0.9\\]"),
        ({"y_range": (1.0, 1.0)}, "increasing"),
        ({"log_x": True}, "above 0"),
        ({"log_y": True}, "above 0"),
    ],
)
def test_bad_figures_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        figure(**changes)


def test_stored_pages_have_the_scripts_as_they_are():
    """No digest covers them; `dpbook refresh` renews a page."""
    for chapter in chapters.chapters():
        outputs = [output for cell in chapter.notebook.cells for output in cell.get("outputs", ())]
        texts = [text for output in outputs if (text := output.get("data", {}).get("text/html"))]
        for file, figure in {"helpers/book/widgets.js": "slider-figure", "checks/which_method.js": "chooser"}.items():
            code = (paths.ROOT / file).read_text()
            fixed = max(code.split("%("), key=len).partition(")")[2][1:]  # the longest part without a value
            assert all(fixed in text for text in texts if f'<figure class="{figure}"' in text)


@pytest.mark.browser
def test_moving_the_sliders_changes_the_picture(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{figure()._repr_html_()}")
    static = browser.new_page(java_script_enabled=False)
    static.goto(file.as_uri())
    assert not static.locator("input").first.is_visible()
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(file.as_uri())
    path, line = page.locator("[data-curve]").first, page.locator("[data-role=line]")
    before = path.get_attribute("d"), line.get_attribute("x1"), page.locator("[data-value]").all_inner_texts()
    assert before[0] == static.locator("[data-curve]").first.get_attribute("d")
    page.locator("[data-role=frame]").focus()
    page.keyboard.press("ArrowRight")
    assert path.get_attribute("d") != before[0]
    assert page.locator("[data-value]").all_inner_texts() == ["0.2", "0.5"]
    page.locator("[data-role=cursor]").focus()
    page.keyboard.press("ArrowRight")
    assert line.get_attribute("x1") != before[1]
    assert page.locator("[data-value]").all_inner_texts() == ["0", "0.9"]
    assert page.locator("[data-best]").all_inner_texts() == ["0", "2"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    static.close()
    page.close()
