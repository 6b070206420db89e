"""The Makefile: what it installs for which driver, when it installs again, what it says without a usable Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPU, CUDA_12, CUDA_13 = ".", ".[gpu-cu12]", ".[gpu]"

FAKE_PYTHON = """#!/bin/sh
# Stands for python3 outside and for everything inside .venv: writes down what it was asked for.
echo "$(basename "$0") $*" >> "$MAKE_TEST_LOG"
case "$*" in
  "-c import ensurepip"*) exit "${MAKE_TEST_NO_VENV:-0}" ;;
  "-c import sys"*) exit "${MAKE_TEST_OLD:-0}" ;;
  --version) echo "Python 3.9.2" ;;
  "-m venv .venv")
    mkdir -p .venv/bin
    for name in python spmark basedpyright ruff lint-imports codespell clang-format hadolint shellcheck; do
      cp "$0" ".venv/bin/$name"
    done ;;
esac
"""


class Checkout:
    """A folder with the project's Makefile, and a Python that only writes down what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a checkout"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        self.folder.mkdir()
        (self.folder / "scripts").mkdir()
        for name in ("Makefile", "pyproject.toml", "scripts/build_backend.py"):
            shutil.copy(ROOT / name, self.folder / name)
        self.tool("python3", FAKE_PYTHON)

    def tool(self, name: str, script: str) -> None:
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def make(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run make without the driver of this machine; ``args`` may name another."""
        self.log.write_text("")
        return subprocess.run(
            ["make", "--silent", f"DRIVER_FILE={self.folder / 'no driver'}", *args],
            cwd=self.folder,
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", "MAKE_TEST_LOG": str(self.log), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self, part: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if part in line]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path)
    checkout.tool(
        "nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9\n"
    )
    return checkout


@pytest.mark.parametrize(
    ("driver", "run", "dev"),
    [
        ("580.65.06", CUDA_13, ".[dev,gpu]"),
        ("610.1", CUDA_13, ".[dev,gpu]"),
        ("579.99", CUDA_12, ".[docs,lint,test,gpu-cu12]"),
        ("525.60.13", CUDA_12, ".[docs,lint,test,gpu-cu12]"),
        ("470.256.02", CPU, ".[dev]"),
        ("none", CPU, ".[dev]"),
    ],
)
def test_the_driver_decides_what_is_installed(checkout: Checkout, driver: str, run: str, dev: str) -> None:
    checkout.tool("nvidia-smi", f"#!/bin/sh\necho {driver}\necho {driver}\n")
    said = checkout.make("extras").stdout
    assert f"quickstart installs {run}\n" in said
    assert f"types install {dev}\n" in said
    assert driver in said.splitlines()[0], "the reason names the driver that was found"


@pytest.mark.parametrize(
    ("kernel_module", "run"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023", CUDA_12),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", CUDA_13),
    ],
)
def test_the_kernel_module_is_asked_when_nvidia_smi_does_not_answer(
    checkout: Checkout, tmp_path: Path, kernel_module: str, run: str
) -> None:
    (tmp_path / "version").write_text(kernel_module + "\nGCC version:  gcc version 12.3.0\n")
    assert f"quickstart installs {run}\n" in checkout.make("extras", f"DRIVER_FILE={tmp_path / 'version'}").stdout


def test_quickstart_installs_once_and_again_when_the_requirements_change(checkout: Checkout) -> None:
    first = checkout.make("quickstart")
    assert first.returncode == 0, first.stderr
    assert "CPU only" in first.stdout
    assert checkout.calls("-m pip install") == [
        "python -m pip install --quiet --disable-pip-version-check --no-compile --editable ."
    ], "quickstart installs what running needs, not dev"
    assert checkout.calls("spmark ") == ["spmark quickstart --out out/quickstart"]

    checkout.make("quickstart")
    assert not checkout.calls("pip install")
    assert len(checkout.calls("spmark ")) == 1

    requirements = checkout.folder / "pyproject.toml"
    later = requirements.stat().st_mtime + 10
    os.utime(requirements, (later, later))
    checkout.make("quickstart")
    assert len(checkout.calls("pip install")) == 1


def test_a_new_driver_takes_the_other_cupy_away_first(checkout: Checkout) -> None:
    checkout.make("test", "NVIDIA_DRIVER=535.54.03")
    checkout.make("test", "NVIDIA_DRIVER=580.65.06")
    calls = checkout.calls("pip")
    assert "uninstall" in calls[0]
    assert calls[0].endswith("cupy-cuda12x")
    assert calls[1].endswith(".[dev,gpu]")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"MAKE_TEST_OLD": "1"}, ["expected Python 3.11", "found Python 3.9.2", "PYTHON="]),
        ({"MAKE_TEST_NO_VENV": "1"}, ["venv", "apt install python3-venv"]),
    ],
)
def test_an_unusable_python_is_explained(checkout: Checkout, environment: dict[str, str], words: list[str]) -> None:
    made = checkout.make("quickstart", **environment)
    assert made.returncode != 0
    for word in words:
        assert word in made.stderr
    assert not (checkout.folder / ".venv").exists()


def test_a_missing_python_is_explained(checkout: Checkout) -> None:
    made = checkout.make("quickstart", "PYTHON=no-such-python")
    assert made.returncode != 0
    assert "found none" in made.stderr
