"""The container's files agree with each other and with the tree; scripts/build_container.sh shows that they build.

Nothing here needs a container engine; hadolint and shellcheck (extra lint) are used where they are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from spmark.datasets.sources.table import SOURCES, find_source
from spmark.suite import cli, environment, reproduce

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ("build", "cpu", "gpu", "test")
PIN = re.compile(r"^([a-z0-9][a-z0-9_.-]*)==([^ \\]+)", re.MULTILINE)
PAGE = ROOT / "REPRODUCING.md"


@cache
def stages() -> dict[str, list[tuple[str, str]]]:
    """Give the instructions of every stage of the Dockerfile, comments left out; what precedes the first is ``""``."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: dict[str, list[tuple[str, str]]] = {"": []}
    name = ""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = [("FROM", base)]
        elif word:
            found[name].append((word, rest))
    return found


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


def test_the_two_targets_differ_in_nothing_but_what_a_gpu_needs():
    both = [
        [(word, re.sub(rf"\b{name}\b", "TARGET", rest)) for word, rest in stages()[name] if "NVIDIA_" not in rest]
        for name in ("cpu", "gpu")
    ]
    assert both[0] == both[1]
    for stage in ("base", "build"):
        both = [
            [(word, re.sub(rf"\b{name}\b", "TARGET", rest)) for word, rest in stages()[f"{stage}-{name}"]]
            for name in ("cpu", "gpu")
        ]
        assert both[0][1:] == both[1][1:], "but for what they are built on"


def test_the_base_of_every_stage_can_be_replaced():
    assert ("ARG", 'BASE_IMAGE=""') in stages()[""]
    for name, found in stages().items():
        if name:
            base = found[0][1]
            assert base in stages() or base.startswith("${BASE_IMAGE:-"), f"{name} is built on {base}"
    assert re.search(r"cuda:13\.\d+\.\d+-devel", stages()["base-gpu"][0][1])
    assert list(stages())[-1] == "default"
    assert stages()["default"] == [("FROM", "cpu")]


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_forwards_to_spmark_as_a_user_and_knows_its_commit(target, monkeypatch, tmp_path):
    found = stages()[target]
    assert ("ENTRYPOINT", '["spmark"]') in found
    assert [rest for word, rest in found if word == "USER"][-1] == "10001"
    assert ("ARG", 'COMMIT=""') in found
    variable = next(rest for word, rest in found if word == "ENV" and rest.endswith("=$COMMIT")).partition("=")[0]
    monkeypatch.setenv(variable, "0123abc")
    assert environment._commit(tmp_path) == "0123abc", "what the image sets is what records read"
    (labels,) = [rest for word, rest in found if word == "LABEL"]
    assert {"title", "description", "licenses", "revision"} == set(re.findall(r"opencontainers\.image\.(\w+)=", labels))


def test_every_package_is_pinned_by_hash():
    for name in REQUIREMENTS:
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        entries = [entry for entry in re.split(r"\n(?=\S)", text) if entry.strip() and not entry.startswith("#")]
        assert entries
        for entry in entries:
            assert PIN.match(entry), f"{name}.txt: {entry.splitlines()[0]} has no exact version"
            assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), f"{name}.txt: {entry.splitlines()[0]} has no hash"
        assert "://" not in text, f"{name}.txt names a host"
        assert "--index" not in text
    for found in stages().values():
        for word, rest in found:
            for command in rest.split("&&"):
                if word == "RUN" and "/pip install" in command:
                    assert "--require-hashes" in command or "--no-index" in command, command


def test_what_two_images_share_has_one_version():
    cpu = pins("cpu")
    for name in ("gpu", "test"):
        other = pins(name)
        assert {package: other.get(package) for package in cpu} == cpu, (
            f"{name}.txt lacks or changes a package of cpu.txt"
        )


def test_the_pins_are_those_of_pyproject():
    """Every requirement is there, in a version that its lower and upper bounds allow."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {"cpu": [], "gpu": extras["gpu"], "test": extras["test"]}
    for name, more in wanted.items():
        pinned = pins(name)
        for requirement in map(Requirement, [*project["dependencies"], *more]):
            package = requirement.name.lower().replace("_", "-")
            assert package in pinned, f"{name}.txt lacks {requirement}: run scripts/pin_requirements.sh"
            assert requirement.specifier.contains(pinned[package]), f"{name}.txt has {package} {pinned[package]}"


def test_what_is_copied_reaches_the_build():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    kept = [line[1:] for line in lines if line.startswith("!")]
    assert lines[0] == "*", "what is not named stays out: .git, results, environments"
    assert not [name for name in kept if not (ROOT / name).exists()]
    for found in stages().values():
        for word, rest in found:
            if word == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert source == "." or any(fnmatch(source.rstrip("/"), f"{name}*") for name in kept), source
                    assert (ROOT / source).exists()


def test_every_folder_of_the_wheel_is_copied():
    from test_wheel import LINKED

    sources = {source.rstrip("/") for word, rest in stages()["wheel"] if word == "COPY" for source in rest.split()[:-1]}
    files = {"pyproject.toml", "MANIFEST.in", "scripts/build_backend.py", "README.md", "LICENSE"}
    assert {"spmark", *LINKED, *files} <= sources


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_executable_and_parses(path):
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_a_wrong_target_is_told():
    ended = subprocess.run([ROOT / "scripts" / "build_container.sh", "tpu"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "expected cpu or gpu, found 'tpu'" in ended.stderr


@pytest.mark.parametrize(("tool", "pattern"), [("hadolint", "Dockerfile"), ("shellcheck", "scripts/*.sh")])
def test_linters_find_nothing(tool, pattern):
    program = shutil.which(tool, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip(f"{tool} is not installed (extra lint)")
    ended = subprocess.run([program, *map(str, ROOT.glob(pattern))], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_the_page_says_what_there_is():
    page = PAGE.read_text()
    for name in SOURCES:
        source = find_source(name)
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert row.endswith(f"| {source.licence} |"), f"REPRODUCING.md: a row for the source {name}: {source.licence}"
    for name in reproduce.packaged_papers():
        assert f"| `spmark reproduce {name}` |" in page, f"REPRODUCING.md: a row for the paper {name}"


def test_the_commands_of_the_page_and_of_the_dockerfile_exist():
    known = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    for text in (shell, (ROOT / "Dockerfile").read_text()):
        used = set(re.findall(r"(?:^spmark|spmark:[cg]pu) ([a-z]+)", text, re.MULTILINE))
        assert {"quickstart", "reproduce"} <= used <= known


def test_the_build_mounts_nothing_that_a_package_unpacks_over():
    """A folder of a package that is mounted read-only cannot be unpacked: ca-certificates owns this one."""
    script = (ROOT / "scripts" / "build_container.sh").read_text()
    mounted = re.findall(r'--volume "[^:"]+:([^:"]+):ro"', script)
    assert mounted == ["/run/trust", "/etc/pip.conf"]
