"""Fused grids: every block of every body runs once as itself, and what does not fit the kernel is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compilers import needs_compilers

from spmark.impls.core.errors import BuildError
from spmark.impls.runtime.compile import compile_kernel
from spmark.impls.runtime.device import find
from spmark.impls.runtime.fusion import Body, FusedLaunch, FusedTemplate, Share
from spmark.impls.runtime.target import Target, open_target

SOURCE = Path(__file__).parent / "kernels" / "fused.cu"
BODIES = (Body("first", ("int32",)), Body("second", ("int32",)), Body("third", ("float32",)))
MARK = FusedTemplate(SOURCE, "mark", {"threads": (32,)}, bodies=BODIES)
INSTANCE = MARK.instance(threads=32)


@pytest.fixture(scope="module")
def target() -> Target:
    return open_target(find("host-simt"))


def share(items: int, tiles: int, dtype: str = "int32") -> Share:
    return Share(items, tiles, (np.zeros(max(items * tiles, 1), dtype),))


def run(target: Target, shares: dict[str, Share]) -> np.ndarray:
    last = np.full(1, -1, np.int32)
    FusedLaunch(target, INSTANCE, shares).enqueue((np.int32(100),), (last,))
    return last


def test_every_block_runs_once_as_its_body(target: Target) -> None:
    shares = {"third": share(5, 2, "float32"), "first": share(3, 4), "second": share(7, 1)}
    last = run(target, shares)
    assert shares["first"].arrays[0].tolist() == [100 + 31] * 12
    assert shares["second"].arrays[0].tolist() == [62] * 7
    assert shares["third"].arrays[0].tolist() == [2.0] * 5 + [0.0] * 5
    assert last.tolist() == [12 + 7 + 10 - 1]


def test_a_share_of_nothing_launches_nothing(target: Target) -> None:
    shares = {"first": share(0, 4), "second": share(3, 0)}
    assert run(target, shares).tolist() == [-1]
    assert not shares["second"].arrays[0].any()


@needs_compilers
def test_a_fused_kernel_compiles_like_any_other() -> None:
    binary = compile_kernel(SOURCE, INSTANCE.expression, "sm_90")
    assert binary.shared_bytes == 64 * 8, "as much as the greediest body"


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"fourth": share(1, 1)}, "bodies out of first, second, third, found fourth"),
        ({"first": share(1, 1, "float32")}, r"arrays \('int32',\) for first, found \('float32',\)"),
        ({"first": Share(1, 1, ())}, r"for first, found \(\)"),
        ({"first": Share(1 << 16, 1 << 15, (np.zeros(1, np.int32),))}, "at most 2,147,483,647 thread blocks"),
    ],
)
def test_what_does_not_fit_is_refused(shares: dict[str, Share], words: str, target: Target) -> None:
    with pytest.raises(BuildError, match=words):
        FusedLaunch(target, INSTANCE, shares)
