"""The fake implementation and bench of `suite_fakes`, for this process and for the children it starts."""

from __future__ import annotations

import os
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
