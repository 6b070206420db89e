"""Environments of commits: dependencies are borrowed, the checkout is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy
import pytest

pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")

from asv.config import Config  # type: ignore[import-untyped]

from spmark.suite.asv.environment import WheelEnvironment

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asv.conf.json").write_text('{"version": 1, "project": "spmark", "repo": "."}')
    configuration = Config.load(str(tmp_path / "asv.conf.json"))
    configuration.env_dir = str(tmp_path / "env")
    environment = WheelEnvironment(configuration, HERE, {}, {})
    assert not environment.check_presence()
    environment.create()
    return environment


def test_dependencies_are_there_and_the_checkout_is_not(made):
    assert made.check_presence()
    assert made.name == f"wheel-py{HERE}"
    assert made.run(["-c", "import numpy; print(numpy.__file__)"]).strip() == numpy.__file__
    program = "import importlib.util as u; print([u.find_spec(n) for n in ('spmark', 'suite', 'datasets', 'report')])"
    found = made.run(["-c", program], cwd=str(ROOT)).strip()
    assert found == "[None, None, None, None]", "the commit's wheel would not be what is measured"


@pytest.mark.full
def test_a_commit_leaves_no_machine_code_to_the_next(made):
    (site,) = Path(made._path).glob("lib/python*/site-packages")
    kept = site / "spmark" / "impls" / "stile" / "__pycache__" / "level_loops.pick_light-1.py311.1.nbc"
    kept.parent.mkdir(parents=True)
    kept.touch()
    made._uninstall_project()
    assert not kept.exists()
    assert made.check_presence()


def test_only_this_python_can_lend():
    assert WheelEnvironment.matches(HERE)
    assert not WheelEnvironment.matches("2.7")


def test_the_configuration_names_the_suite_and_the_plugin():
    text = "\n".join(line for line in (ROOT / "asv.conf.json").read_text().splitlines() if "//" not in line)
    held = json.loads(text)
    assert (ROOT / held["benchmark_dir"] / "tracked.py").is_file()
    assert held["environment_type"] == WheelEnvironment.tool_name
    assert held["plugins"] == [".spmark.suite.asv.plugin"]
    assert all("--no-deps" in held[name][0] for name in ("build_command", "install_command"))
