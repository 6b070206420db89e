"""``list`` and ``doctor``: what they say, and that they do not make a user wait."""

from __future__ import annotations

import json
import os
import sys

import pytest
from machine_speed import usual_seconds

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.cli import cards, doctor, usable
from spmark.suite.cli.cards import read_card
from spmark.suite.cli.doctor import Check


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_card_says_what_the_class_says(name, monkeypatch):
    made = create(name)
    monkeypatch.setattr(cards, "make", lambda name, config: pytest.fail(f"{name} had to be imported"))
    card = read_card(name)
    assert card.ops == sorted(made.ops)
    assert card.devices == sorted(made.devices)
    assert card.about == (type(made).__doc__ or "").partition("\n")[0]


def test_what_a_source_does_not_state_is_imported(fakes):
    assert read_card("fake").devices == [DeviceKind.CPU]
    lacking = "needs the package dgl, which is not installed: pip install -e '.[dgl]' in a checkout"
    assert read_card("fake_missing").about == lacking


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
def test_the_first_examination_compiles_no_loop_and_takes_five_seconds(tmp_path):
    """With empty caches, as in a fresh clone: compiling every loop takes half a minute."""
    caches = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "SPMARK_CACHE": str(tmp_path / "cache")}
    script = "from spmark.suite.cli.main import main; main()"
    seconds, ended = usual_seconds([sys.executable, "-c", script, "doctor", "--json"], env=os.environ | caches)
    assert ended.returncode == 0, ended.stderr
    assert not list((tmp_path / "numba").rglob("*.nb?"))
    assert seconds < 7.0, "of computing, on two cores and more"
    checks = {check["what"]: check["found"] for check in json.loads(ended.stdout)["checks"]}
    assert checks["implementation liteform"].startswith("usable on")


def test_an_implementation_that_ends_the_process_is_named(monkeypatch, tmp_path):
    """A library may crash when it is imported: what was asked before has its answer, and the rest is told why not."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nfrom importlib.abc import MetaPathFinder\n"
        "class Crash(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'spmark.impls.dgl.plan':\n"
        "            sys.stderr.write('free(): invalid pointer\\n'); sys.stderr.flush(); os._exit(134)\n"
        "sys.meta_path.insert(0, Crash())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    answers = usable.Asking([find("cpu")]).answers()
    assert list(answers) == list(IMPLEMENTATIONS)
    assert answers["cublas"] == ([], "runs on cuda, and no such device is here")
    assert answers["dgl"][1].endswith("the process that asks ended with code 134: free(): invalid pointer")


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
    monkeypatch.setattr(doctor, "_checks", lambda: iter(checks))
    out = invoke("doctor")[1]
    assert out.strip().splitlines()[-1] == ending
    assert json.loads(invoke("doctor", "--json")[1])["gpu_runs"] is ending.startswith("Runs on the GPU")
