"""The fake implementation and bench of `suite_fakes`, the command line on them, and a repository of one commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import suite_fakes

from spmark.impls.runtime import device
from spmark.suite.cli import main as cli
from spmark.suite.run import execute


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Register the fake implementation here and make its bench importable by children."""
    suite_fakes.install(monkeypatch, tmp_path / "measured.log")
    return suite_fakes


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "checkout"
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "core: begin"], check=True)
    return folder


@pytest.fixture
def commit(repository) -> str:
    answer = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True)
    return answer.stdout.strip()


@pytest.fixture
def sweep(fakes, monkeypatch, tmp_path):
    """Give a sweep file that runs on the fake device."""
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(execute, "calibrated", lambda spec: spec)
    path = tmp_path / "tiny.yaml"
    path.write_text(suite_fakes.SWEEP)
    return path


@pytest.fixture
def invoke(monkeypatch, capfd, tmp_path):
    """Run the console's entry point in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["spmark", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return invoke
