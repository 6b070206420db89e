"""What the container installs is what the project needs; scripts/build_container.sh shows that it builds."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

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


def test_the_pins_are_those_of_pyproject():
    """Every requirement is there, in a version that its lower and upper bounds allow."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_gpu = [one for extra in ("gpu", "dash", "dgl", "nvcc", "ogb", "triton") for one in extras[extra]]
    wanted = {"cpu": [], "gpu": of_gpu, "test": extras["test"]}
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
