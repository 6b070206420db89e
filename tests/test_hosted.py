"""What GitHub reads: workflows that run what `.ci/run` does, templates, the citation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOSTED = ROOT / ".github"
WORKFLOWS = sorted((HOSTED / "workflows").iterdir())
FORMS = sorted(path for path in (HOSTED / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MADE = re.compile(r"\bmake ((?:--?[\w-]+ )*)(\w+)")


def workflow(path: Path) -> dict[Any, Any]:
    # `on` is true in YAML 1.1, which PyYAML reads.
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


def commands() -> list[str]:
    return [line for path in WORKFLOWS for step in steps(path) for line in step.get("run", "").splitlines()]


def targets() -> set[str]:
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    return set(phony.split()[1:])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_whole_and_bounded(path: Path) -> None:
    held = workflow(path)
    assert {"name", True, "permissions", "jobs"} <= held.keys()
    assert held["permissions"] == {"contents": "read"}, "nothing is written or published from a workflow"
    for name, job in held["jobs"].items():
        assert job["runs-on"] == "ubuntu-latest", name
        assert job["timeout-minutes"] <= 90, name
        assert all(("run" in step) != ("uses" in step) for step in job["steps"]), name


def test_actions_are_pinned_by_versions() -> None:
    used = [step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@v\d+|docker://[\w./-]+:\d[\d.]*", name)] == []


def test_the_systems_and_the_container_and_the_wheel_are_there() -> None:
    ci, wheel = (workflow(HOSTED / "workflows" / name) for name in ("ci.yml", "wheel.yml"))
    runs = {name: [step.get("run") for step in job["steps"]] for name, job in ci["jobs"].items()}
    assert ".ci/run" in runs["ubuntu"]
    assert ".ci/run" in runs["debian"]
    assert ci["jobs"]["debian"]["container"].startswith("debian:")
    assert any(str(command).startswith("docker build --target cpu") for command in runs["container"])
    assert wheel[True] == {"push": {"tags": ["v*"]}}
    assert "make wheel" in commands()


def test_what_workflows_and_the_script_run_is_there() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    asked = [match[2] for text in (*commands(), *script.read_text().splitlines()) for match in MADE.finditer(text)]
    asked = [name for name in asked if name != "step"]
    assert {"wheel", "test", "lint", "types", "quickstart", "browser"} <= set(asked) <= targets()
    files = [word for command in commands() for word in re.findall(r"PYTEST_ARGS=(\S+)", command)]
    assert files
    assert all((ROOT / file).exists() for file in files)
    stages = re.findall(r"^FROM .* AS (\S+)", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    wanted = [name for command in commands() for name in re.findall(r"--target (\S+)", command)]
    assert wanted
    assert set(wanted) <= set(stages)


def test_make_wheel_builds_into_dist(tmp_path: Path) -> None:
    said = subprocess.run(["make", "--dry-run", "wheel"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pip wheel" in said
    assert "--wheel-dir dist ." in said


def test_actionlint_finds_nothing() -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("no actionlint on the path: the job `workflows` of ci.yml runs it")
    done = subprocess.run([actionlint, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_is_one_that_github_shows(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert all(isinstance(form[key], str) and form[key] for key in ("name", "description"))
    shown = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in shown} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in shown)
    ids = [field["id"] for field in shown]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in shown)
    for field in shown:
        options = field["attributes"].get("options", [])
        assert bool(options) == (field["type"] in ("dropdown", "checkboxes"))
        kind = dict if field["type"] == "checkboxes" else str
        assert all(isinstance(option, kind) for option in options)


def test_there_is_a_form_for_each_kind_and_a_list_for_changes() -> None:
    assert [path.stem for path in FORMS] == ["bug", "new_implementation", "wrong_result"]
    text = (HOSTED / "pull_request_template.md").read_text()
    assert text.count("- [ ] ") >= 5
    named = re.findall(r"`([\w./]+/[\w./]+)`", text)
    assert named
    assert all((ROOT / name).exists() for name in named)


def test_no_address_is_invented() -> None:
    files = [ROOT / "CITATION.cff", *(path for path in HOSTED.rglob("*") if path.is_file())]
    address = re.compile(r"https?://|[\w.]+@[\w-]+\.\w+")
    assert [str(path) for path in files if address.search(path.read_text(encoding="utf-8"))] == []


def test_the_citation_is_that_of_the_package_and_of_the_papers() -> None:
    held = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert held["cff-version"] == "1.2.0"
    assert all(held[key] for key in ("message", "title", "type"))
    assert (held["version"], held["license"]) == (PROJECT["version"], PROJECT["license"])
    assert held["authors"] == PROJECT["authors"]
    claims = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "report" / "claims").glob("*.yaml")]
    references = {reference["title"]: reference for reference in held["references"]}
    assert references.keys() == {claim["title"] for claim in claims}
    for claim in claims:
        reference = references[claim["title"]]
        assert reference["type"] in ("article", "conference-paper", "unpublished")
        assert str(reference["year"]) in claim["citation"]
        assert reference.get("doi", "") in claim["citation"]
        people = [person["family-names"] for person in reference["authors"] if "family-names" in person]
        assert all(name in claim["citation"] for name in people)
        assert people or reference["authors"] == [{"name": "Anonymous authors"}]
