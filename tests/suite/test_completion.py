"""What a shell offers after the tabulator key."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from outside_code import MINE, nothing_loaded, write_distribution

from spmark.suite.cli import options

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)
SCRIPT = """
import sys
from spmark.suite.cli.main import main
try:
    main()
except SystemExit as ended:
    heavy = {'numpy', 'yaml', 'pandas', 'matplotlib', 'numba', 'scipy', 'cupy', 'torch'} & set(sys.modules)
    sys.exit(f'imported {heavy}' if heavy else ended.code)
"""


def completed(*words):
    """Ask as bash asks; gives what is offered for the last word."""
    asked = {
        "_SPMARK_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("spmark", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=os.environ | asked, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in ("own.yaml", "mine.mtx", "mine.mtx.gz", "notes.txt", "folder/deep.npz", ".hidden/deep.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("quick", ["quickstart"]),
        ("ow", ["own.yaml"]),
        ("./ow", ["./own.yaml"]),
        ("~nobody-of-this-name/", []),
        ("none/", []),
    ],
)
def test_what_begins_with_what_is_typed(typed, offered):
    assert options.sweeps(typed) == offered


def test_folders_are_looked_into(here, monkeypatch):
    assert options.matrices("folder/") == ["folder/deep.npz"]
    assert options.matrices(f"{here}/fo") == [f"{here}/folder/"]
    monkeypatch.setenv("HOME", str(here))
    assert options.matrices("~/mine.mtx") == ["~/mine.mtx", "~/mine.mtx.gz"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "quick"), ["quickstart"]),
        (("fetch", "quick"), ["quickstart"]),
        (("fetch", "cand"), ["candidates"]),
        (("reproduce", "spars"), ["sparsetir"]),
        (("run", "--matrix", "plan"), ["planetoid/"]),
        (("show", "planet"), ["planetoid/"]),
        (("run", "--implementation", "scipy"), ["scipy_cpu"]),
        (("check", "scipy"), ["scipy_cpu"]),
        (("run", "--device", ""), ["auto", "cuda", "cpu", "host-simt"]),
        (("run", "--op", "sd"), ["sddmm", "sddmm_scaled"]),
        (("ch",), ["check"]),
    ],
)
def test_a_shell_is_answered_without_heavy_imports(words, offered):
    assert completed(*words) == offered


def test_an_installed_distribution_is_offered_and_not_imported(here, monkeypatch):
    write_distribution(here / "site", "demo", {"spmark.implementations": "own_kernel = demo_kernels:Mine"},
                       demo_kernels="raise SystemExit('imported')" + MINE)  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(here / "site"), prepend=":")
    assert completed("check", "own_k") == ["own_kernel"]
