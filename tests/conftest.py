"""Shared by all tests: chapters run without a network, and are skipped by name when their data cannot be had."""

import os
from functools import cache
from pathlib import Path

import pytest

from helpers import data
from helpers.book import chapters

NO_NETWORK = Path(__file__).parent / "no_network"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        for chapter in chapters.chapters():
            missing_data(chapter.path)  # fetches what can be fetched, before anything is cut off
    # Kernels, workers and other child processes inherit this.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.suffix == ".ipynb":
            reason = missing_data(item.path)
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"{item.path.stem}: {reason}"))


@cache
def missing_data(notebook: Path) -> str:
    """Why a chapter cannot run here, or an empty text."""
    for name in chapters.Chapter(notebook).requires:
        try:
            data.load(name)
        except data.DatasetUnavailable as error:
            return str(error)
    return ""


@pytest.fixture(params=chapters.chapters(), ids=lambda chapter: chapter.name)
def chapter(request) -> chapters.Chapter:
    """Each chapter of the book in turn."""
    return request.param
