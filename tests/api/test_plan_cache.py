"""Results of races on disk: a second compilation takes no search, and only where everything asked is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.auto import race
from spmark.impls.core.errors import BuildError
from spmark.impls.operator import choose
from spmark.impls.tuning import cache, timer
from spmark.impls.tuning.timer import PlanTimer

NAMES = ["scipy_cpu", "blas_cpu"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    return tmp_path / "plans" / "auto"


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give the problems of all races so far."""
    seen: list[Any] = []

    def timed(problem: Any, device: Any) -> PlanTimer:
        seen.append(problem)
        return PlanTimer(problem, device)

    monkeypatch.setattr(timer, "PlanTimer", timed)
    return seen


def compiled(a: Any, **how: Any) -> Any:
    return spmark.compile(a, **{"width": 6, "use": NAMES, "device": "cpu", **how})


def test_a_second_compilation_takes_no_search(a: Any, b: np.ndarray, races: list[Any], close: Any) -> None:
    first = compiled(a)
    again = compiled(a * 2)
    assert len(races) == 1
    assert again.explain().splitlines()[1] == first.explain().splitlines()[1]
    assert [line for line in again.explain().splitlines() if " us" in line] == [
        line for line in first.explain().splitlines() if " us" in line
    ]
    close(again(b), (2 * a).astype(np.float64) @ b)


@pytest.mark.full
@pytest.mark.parametrize(
    "how",
    [
        {"width": 7},
        {"dtype": "float16"},
        {"op": "sddmm", "use": ["scipy_cpu", "numba_cpu"]},
        {"use": NAMES[::-1]},
        {"budget_s": 60},
    ],
)
def test_what_was_asked_counts(how: Any, a: Any, races: list[Any]) -> None:
    compiled(a)
    compiled(a, **how)
    assert len(races) == 2


@pytest.mark.full
def test_pattern_device_driver_and_code_count(a: Any, races: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(a)
    compiled(sparse.csr_array(a[::-1]))
    assert len(races) == 2
    spec = choose.device_of("cpu")
    for facts in ({"name": "another"}, {"arch": "another"}, {"num_sms": 999}):
        compiled(a, device=spec.model_copy(update=facts))
    assert len(races) == 5
    for owner, name in ((cache, "versions"), (race, "implementation_version")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda given: "another")
            compiled(a)
    assert len(races) == 7
    compiled(a)
    assert len(races) == 7


def test_values_and_other_widths_are_found_again(a: Any, races: list[Any]) -> None:
    compiled(a, values="constant", width=[6, 8])
    op = compiled(a, width=6)
    op.plan(8)
    assert len(races) == 2


@pytest.mark.full
def test_without_the_cache_every_compilation_searches_and_keeps_nothing(
    a: Any, races: list[Any], own_cache: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        compiled(a, cache=False)
    assert len(races) == 2
    assert not own_cache.exists()
    compiled(a)
    op = compiled(a, cache=False)
    assert len(races) == 4
    op.plan(7)
    op.save(tmp_path / "op")
    spmark.load(tmp_path / "op").plan(8)
    compiled(a, width=[7, 8])
    assert len(races) == 8, "other widths of the operator are not kept either"


@pytest.mark.full
@pytest.mark.parametrize("damage", ["byte", "end", "foreign", "folder"])
def test_damaged_and_foreign_files_count_as_absent(damage: str, a: Any, races: list[Any], own_cache: Path) -> None:
    compiled(a)
    (path,) = own_cache.iterdir()
    content = path.read_bytes()
    if damage == "byte":
        path.write_bytes(content.replace(b'"candidates": 2', b'"candidates": 3'))
    elif damage == "end":
        path.write_bytes(content[:-1])
    elif damage == "foreign":
        compiled(a, width=7)
        (other,) = set(own_cache.iterdir()) - {path}
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
        path.mkdir()
    before = len(races)
    assert compiled(a).widths == (6,)
    assert len(races) == before + 1


def test_a_winner_that_cannot_be_built_any_more_makes_room(
    a: Any, b: np.ndarray, races: list[Any], close: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = compiled(a).explain().splitlines()[1].split(": ")[1].split(" ")[0]
    build = race.built

    def short_of_memory(problem: Any, device: Any, choice: Any, held: Any = None) -> Any:
        if choice.name == winner:
            raise MemoryError("no memory")
        return build(problem, device, choice, held)

    monkeypatch.setattr(race, "built", short_of_memory)
    op = compiled(a)
    assert len(races) == 2
    assert f"{winner}: not measured: " in op.explain()
    close(op(b), a.astype(np.float64) @ b)


@pytest.mark.full
def test_the_least_recently_used_results_make_room(
    a: Any, races: list[Any], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(a, width=[1, 2, 3])
    paths = sorted(own_cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    size = max(path.stat().st_size for path in paths)
    for number, path in enumerate(paths):
        os.utime(path, ns=(number, number))
    compiled(a, width=1)  # the oldest is used
    monkeypatch.setenv(cache.VARIABLE, str(3.5 * size / (1 << 20)))
    compiled(a, width=4)
    assert len(races) == 4
    assert len(list(own_cache.iterdir())) == 3
    compiled(a, width=[1, 3, 4])
    assert len(races) == 4
    compiled(a, width=2)
    assert len(races) == 5


def test_a_wrong_limit_is_an_error_before_the_search(a: Any, races: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "much")
    with pytest.raises(BuildError, match="SPMARK_MAX_PLANS_MIB: expected a positive number of MiB, found 'much'"):
        compiled(a)
    assert not races


TWICE = """
import sys
import numpy as np
from scipy import sparse
import spmark
a = sparse.csr_array(np.eye(30, dtype=np.float32))
print("ready", flush=True)
sys.stdin.readline()
for width in range(1, 9):
    op = spmark.compile(a, width=width, use=["scipy_cpu", "blas_cpu"], device="cpu")
    assert (op(np.ones((30, width), np.float32)) == 1).all()
"""


@pytest.mark.full
def test_two_processes_share_the_cache(races: list[Any], own_cache: Path) -> None:
    """With room for a few results, so that each process removes what the other has just read or written."""
    environment = {**os.environ, cache.VARIABLE: str(3000 / (1 << 20))}
    command = [sys.executable, "-c", TWICE]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        one.communicate("go\n")
    assert [one.returncode for one in running] == [0, 0]
    left = list(own_cache.iterdir())
    assert left
    assert sum(path.stat().st_size for path in left) <= 3000
    assert all(path.suffix == ".json" for path in left), "no partial file stays"
