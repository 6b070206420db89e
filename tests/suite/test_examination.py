"""``list`` and ``doctor``: what they say, and that they do not make a user wait."""

from __future__ import annotations

import json
import os
import sys

import pytest
from machine_speed import usual_seconds

from spmark.impls.core import errors
from spmark.impls.core.enums import DeviceKind
from spmark.suite.cli import machine
from spmark.suite.cli.machine import Check


@pytest.mark.full
@pytest.mark.parametrize("what", ["implementations", "sweeps", "devices", "datasets"])
def test_a_list_answers_within_a_second_and_imports_nothing_heavy(what):
    heavy = {"numba", "scipy", "matplotlib", "pandas", "cupy", "torch"} - ({"scipy"} if what == "datasets" else set())
    script = (
        "import sys\nfrom spmark.suite.cli.main import main\ntry:\n    main()\nexcept SystemExit as ended:\n"
        f"    imported = {heavy!r} & set(sys.modules)\n"
        "    sys.exit(f'imported {imported}' if imported else ended.code)\n"
    )
    seconds = []
    for _ in range(3):
        computed, ended = usual_seconds([sys.executable, "-c", script, "list", what])
        seconds.append(computed)
        assert ended.returncode == 0, ended.stderr
    assert min(seconds) < 1.0


@pytest.mark.full
def test_the_first_examination_compiles_no_loop_and_takes_three_seconds(tmp_path):
    """With empty caches, as in a fresh clone: compiling every loop takes half a minute."""
    caches = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "SPMARK_CACHE": str(tmp_path / "cache")}
    script = "from spmark.suite.cli.main import main; main()"
    seconds, ended = usual_seconds([sys.executable, "-c", script, "doctor", "--json"], env=os.environ | caches)
    assert ended.returncode == 0, ended.stderr
    assert not list((tmp_path / "numba").rglob("*.nb?"))
    assert seconds < 5.0, "of computing, on two cores and more"


@pytest.mark.parametrize(
    ("name", "here", "state", "found"),
    [
        ("gespmm", {"cuda", "cpu"}, "ok", "for cuda"),
        ("gespmm", {"cpu"}, "absent", "runs on cuda and host-simt"),
        ("scipy_cpu", set(), "missing", "runs on cpu"),
        ("dgl", {"cpu"}, "absent", "dgl is not installed: pip install -e '.[dgl]' in a checkout"),
        ("dash", {"cpu", "cuda"}, "ok", "for cpu and cuda"),
    ],
)
def test_an_implementation_is_told_by_the_table(monkeypatch, name, here, state, found):
    monkeypatch.setattr(errors, "find_spec", lambda module: None if module == "dgl" else module)
    kinds = {DeviceKind(kind) for kind in here}
    assert machine._implementation(name, kinds) == Check(f"implementation {name}", state, found)


@pytest.mark.parametrize(
    ("gpu", "cupy", "numpy", "ending"),
    [
        ("ok", "ok", "ok", "Runs on the GPU and on the CPU are possible."),
        ("ok", "absent", "ok", "A run on the CPU is possible."),
        ("absent", "ok", "ok", "A run on the CPU is possible."),
        ("ok", "ok", "missing", "Something that every run needs is missing."),
    ],
)
def test_the_last_line_says_what_can_run(invoke, monkeypatch, gpu, cupy, numpy, ending):
    checks = [Check("numpy", numpy, ""), Check("GPU", gpu, "nvidia-h200"), Check("cupy", cupy, "")]
    monkeypatch.setattr(machine, "_checks", lambda: iter(checks))
    out = invoke("doctor")[1]
    assert out.strip().splitlines()[-1] == ending
    assert json.loads(invoke("doctor", "--json")[1])["gpu_runs"] is ending.startswith("Runs on the GPU")
