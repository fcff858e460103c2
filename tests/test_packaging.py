"""pyproject.toml, constraints.txt and environment.yml describe one environment."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers import __version__, paths

CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib"}


def pins() -> dict[str, str]:
    lines = (paths.ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def project() -> dict:
    return tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]


def direct_requirements() -> dict[str, Requirement]:
    found = [Requirement(text) for text in project()["dependencies"]]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def environment() -> dict[str, str]:
    """Versions by name in environment.yml, conda and pip parts together ('' where it leaves the version open)."""
    listed = yaml.safe_load((paths.ROOT / "environment.yml").read_text())["dependencies"]
    conda = [entry for entry in listed if isinstance(entry, str)]
    [pip] = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    assert "-e ." in pip
    versions = {}
    for entry in conda + [entry for entry in pip if not entry.startswith("-")]:
        name, _, version = entry.replace("==", "=").partition("=")
        versions[canonicalize_name(CONDA_NAMES.get(name, name))] = version
    return versions


def test_every_requirement_is_pinned_within_its_range():
    for name, requirement in direct_requirements().items():
        assert name in pins(), f"{name} is not in constraints.txt"
        assert requirement.specifier.contains(pins()[name]), f"{name}: {pins()[name]} is outside {requirement}"


def test_the_extras_are_pinned_too():
    for extra in project()["optional-dependencies"].values():
        for text in extra:
            assert canonicalize_name(Requirement(text).name) in pins()


def test_environment_and_pyproject_list_the_same_packages():
    listed = environment()
    python = listed.pop("python")
    listed.pop("pip")
    assert python == "3.11"
    assert set(listed) == set(direct_requirements())


def test_environment_has_the_pinned_versions():
    for name, version in environment().items():
        if version and name not in ("python", "pip"):
            assert version == pins()[name], name


def test_installed_versions_are_the_pinned_ones():
    """What the stored outputs were made with is what runs here (local build tags such as +cpu aside)."""
    for name in direct_requirements():
        assert metadata.version(name).partition("+")[0] == pins()[name], name


def test_pins_are_exact_and_sorted():
    lines = (paths.ROOT / "constraints.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert lines == sorted(lines, key=str.lower)


def test_versions_agree():
    assert metadata.version("dp-imbalance-book") == __version__
    assert f"version: {__version__}" in (paths.ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (paths.ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_ruff(command):
    found = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "."], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout
