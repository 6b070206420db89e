"""rgms_hyb: which schedules its search times, with made-up times, and which of them it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from races import made_up_race
from relational import relational_problems

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.interfaces import Built, Config
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.table import create
from spmark.impls.tuning import tune as tuning
from spmark.impls.tuning.race import Race

PROBLEMS = relational_problems((64, 128), (128, 128))
HOST = find("host-simt")
GPU = HOST.model_copy(update={"kind": DeviceKind.CUDA, "name": "made-up"})
Searched = Callable[..., Any]


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Searched:
    """Build with made-up times, in which the more a config has of ``fast`` the faster it is."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "open_target", lambda device: open_target(HOST))

    def build(name: str, fast: Config, arch: str = "sm_90") -> Any:
        def cost(config: Config) -> float:
            return 50.0 - 5.0 * len(fast.items() & config.items())

        def open_race(*_: object) -> Race[Built]:
            return made_up_race(cost)[0]

        monkeypatch.setattr(tuning, "open_race", open_race)
        return create("rgms_hyb").build(PROBLEMS[name], GPU.model_copy(update={"arch": arch}))

    return build


@pytest.mark.parametrize(
    ("dtype", "fast", "candidates"),
    [
        ("float16", {"slots": 64, "widest": 4, "depth": 32, "ordered": True, "tile": 128}, 34),
        ("float16", {"longest": 8, "tile": 128, "ordered": True}, 34),
        ("float16", {"apart": True, "piece": 128, "warps": 4, "tile": 64}, 34),
        ("bfloat16", {"longest": 32, "tile": 128, "ordered": False}, 18),
        ("float32", {"slots": 64, "widest": 4, "ordered": True}, 7),
    ],
)
def test_relations_race_in_groups_then_over_one_tunable_after_the_other(
    dtype: str, fast: Config, candidates: int, searched: Searched
) -> None:
    name = f"hub-64-128-{dtype}"
    plan = searched(name, fast)
    seen = [one.config for one in plan.search.seen]
    assert plan.config == fast
    assert len(seen) == candidates
    assert {one["widest"] for one in seen if "slots" in one} == {1, 2, 4, 8, 16}
    assert not any("rows" in one for one in seen), "a relation reaches a row more than once"
    assert create("rgms_hyb", {"tuned": False}).build(PROBLEMS[name], HOST).config == seen[0]


@pytest.mark.parametrize(
    ("arch", "fast"),
    [
        ("sm_80", {"rows": 64, "splits": 2, "tile": 128, "depth": 64}),
        ("sm_90", {"rows": 256, "splits": 2, "tile": 128, "stages": 4}),
    ],
)
def test_maps_race_with_rows_that_thread_blocks_own(arch: str, fast: Config, searched: Searched) -> None:
    plan = searched("kernel_map-64-128-float16", fast, arch)
    assert plan.config == fast
    assert {one.config["widest"] for one in plan.search.seen if "slots" in one.config} == {1}, "wider ones have no rows"


@pytest.mark.parametrize(("arch", "together"), [("sm_80", False), ("sm_90", True)])
def test_warpgroups_race_where_there_are_any(arch: str, together: bool, searched: Searched) -> None:
    fast = {"apart": True, "piece": 128, "warps": 4, "tile": 128, "together": True}
    plan = searched("hub-128-128-float16", fast, arch)
    assert plan.config == {name: value for name, value in fast.items() if together or name != "together"}


def test_the_published_groups_of_maps_are_half_as_large() -> None:
    published = create("rgms_hyb", {"tuned": False})
    kept = {"tile": 32, "depth": 64, "ordered": False}
    assert published.build(PROBLEMS["hub-64-128-float16"], HOST).config == {"slots": 256, "widest": 16, **kept}
    assert published.build(PROBLEMS["kernel_map-64-128-float16"], HOST).config == {"slots": 128, "widest": 1, **kept}
