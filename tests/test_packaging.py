"""pyproject.toml, constraints.txt and environment.yml describe one environment."""

import re
import shutil
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
        for requirement in map(Requirement, extra):
            [exact] = [part for part in requirement.specifier if part.operator == "=="] or [None]
            assert exact or canonicalize_name(requirement.name) in pins()


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


# ------------------------------------------------------------------------------------------ what CI may do


def locked() -> dict[str, str]:
    """Versions by name in requirements.lock."""
    text = (paths.ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^([\w.-]+)==([\w.]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    assert len(entries) == text.count("==")
    return {canonicalize_name(name): version for name, version, _ in entries}


def test_the_lock_has_the_pins_and_a_hash_for_every_file():
    found = locked()
    assert found.pop("setuptools"), "builds the project itself"
    assert found == {name: version for name, version in pins().items() if name != "torch"}


WORKFLOWS = sorted((paths.ROOT / ".github" / "workflows").glob("*.yml"))


def jobs():
    for file in WORKFLOWS:
        workflow = yaml.safe_load(file.read_text())
        for name, job in workflow["jobs"].items():
            yield pytest.param(
                job | {"permissions": job.get("permissions", workflow["permissions"])}, id=f"{file.stem}-{name}"
            )


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit(file):
    for action in re.findall(r"uses: *(.+)", file.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("job", list(jobs()))
def test_what_runs_the_project_may_write_nothing_and_what_may_write_runs_nothing_of_it(job):
    steps = " ".join(str(step.get("uses", "")) + str(step.get("run", "")) for step in job["steps"])
    runs_the_project = any(word in steps for word in ("checkout", "setup-python", "make", ".ci/run", "pip", "dpbook"))
    may_write = "write" in job["permissions"].values()
    assert runs_the_project != may_write
    if "checkout" in steps:
        [checkout] = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
        assert checkout["with"]["persist-credentials"] is False
        assert "make locked" in steps


def test_the_lock_of_the_extras_has_their_pins():
    text = (paths.ROOT / ".ci" / "extras.lock").read_text()
    wanted = {
        str(r) for name in ("cluster", "parquet") for r in map(Requirement, project()["optional-dependencies"][name])
    }
    assert set(re.findall(r"^[\w.-]+==[\w.]+", text, re.MULTILINE)) == {text for text in wanted if "==" in text}
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) == 2  # of the two Pythons that CI has


@pytest.mark.parametrize(
    ("chromium", "said", "of_extras", "passes"),
    [
        (True, "12 passed", "9 passed", True),
        (True, "11 passed, 1 skipped", "9 passed", False),
        (True, "12 passed", "8 passed, 1 skipped", False),
        (False, "12 passed", "9 passed", False),
    ],
)
def test_ci_fails_unless_every_test_of_browser_and_extras_ran(tmp_path, chromium, said, of_extras, passes):
    tools, python = tmp_path / "tools", tmp_path / ".venv" / "bin" / "python"
    speak = f'case "$*" in *browser*) echo "{said}";; *) echo "{of_extras}";; esac'
    stubs = {tools / "make": "", tools / "apt-get": "exit 1", tools / "sudo": "exit 1", python: speak}
    if chromium:
        stubs[tools / "chromium"] = ""
    for file, body in stubs.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
    for name in ("bash", "sh", "dirname", "mktemp", "tee", "grep", "id"):
        (tools / name).symlink_to(shutil.which(name))
    (tmp_path / ".ci").mkdir()
    shutil.copy(paths.ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    command = [shutil.which("bash"), str(tmp_path / ".ci" / "run")]
    finished = subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
    assert (finished.returncode == 0) == passes, finished.stdout + finished.stderr
