"""The fake implementation and bench of `suite_fakes`, for this process and its children; a repository of one commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import suite_fakes


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Register the fake implementation here and make its bench importable by children."""
    for name, entry in suite_fakes.TABLE.items():
        monkeypatch.setitem(suite_fakes.IMPLEMENTATIONS, name, entry)
    for name, module in suite_fakes.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(suite_fakes.resume, "implementation_version", suite_fakes.version)
    monkeypatch.setattr(suite_fakes.rows, "implementation_version", suite_fakes.version)
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "measured.log"))
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
