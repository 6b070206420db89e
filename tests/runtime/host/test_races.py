"""Accesses that nothing orders, between threads, blocks and grids; and the orders in which the ring runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from host_races import watched_launch

from spmark.impls.core.errors import KernelFault
from spmark.impls.runtime.host.ring import launch_host

ORDERS = ("0", "2", "5")
VALUES = np.linspace(1, 2, 256, dtype=np.float32)


def out(size: int = 64) -> np.ndarray:
    return np.full(size, -1, np.float32)


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SPMARK_HOST_ORDER", request.param)
    return request.param


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kernel", "args", "block", "what"),
    [
        ("missing_barrier", [out(), np.int32(1)], 32, "no barrier between"),
        ("missing_barrier", [out(), np.int32(-1)], 32, "no barrier between"),
        (
            "missing_second_barrier<false>",
            [VALUES, out(), np.int32(2)],
            64,
            "of the same thread block before it, with no barrier between",
        ),
        (
            "missing_syncwarp<1>",
            [VALUES, out(), np.int32(2)],
            32,
            "of the same thread block before it, with no barrier between",
        ),
        (
            "missing_syncwarp<2>",
            [VALUES, out(), np.int32(2)],
            32,
            "of the same thread block before it, with no barrier between",
        ),
        ("changes_in_place<false>", [out()], 64, "shared variable sums"),
        (
            "copies_over_what_is_read<false>",
            [VALUES, out()],
            32,
            "of the same thread block before it, with no barrier between",
        ),
        ("blocks_write_the_same", [out()], 32, "of thread block (0, 0, 0) before it"),
        ("atomic_and_plain", [np.zeros(1, np.float32)], 2, "inside of argument 0"),
    ],
)
def test_what_nothing_orders(races, order, kernel, args, block, what):
    with pytest.raises(KernelFault, match="race: ") as caught:
        races(kernel, args, block=block, grid=2)
    if order < "2":  # the other way round block 1 comes first
        assert what in str(caught.value)
    assert "races.cu:" in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "args", "block", "expected"),
    [
        ("missing_second_barrier<true>", [VALUES, out(), np.int32(2)], 64, VALUES[63::-1] + VALUES[127:63:-1]),
        ("missing_second_barrier<false>", [VALUES, out(), np.int32(1)], 64, VALUES[63::-1]),
        ("missing_syncwarp<0>", [VALUES, out(32), np.int32(1)], 32, VALUES[np.arange(32) ^ 7]),
        ("changes_in_place<true>", [out(1)], 64, [64]),
        ("copies_over_what_is_read<true>", [VALUES, out(32)], 32, VALUES[255:127:-4]),
    ],
)
def test_what_is_ordered_runs_in_every_order(races, order, kernel, args, block, expected):
    result = args[0] if kernel.startswith("changes") else args[1]
    result[:] = -1
    races(kernel, args, block=block)
    np.testing.assert_array_equal(result, np.asarray(expected, np.float32))


def test_the_last_block_sees_what_all_have_written(races, order):
    parts, counter, result = np.full(5 * 64, np.nan, np.float32), np.zeros(1, np.int32), out()
    races("last_adds_up<0>", [parts, counter, result], block=64, grid=5)
    assert (result == 5).all()
    assert counter[0] == 0


@pytest.mark.one_in(6)
@pytest.mark.parametrize("left_out", [1, 2, 3, 4, 5, 6])
def test_an_arrival_without_all_that_it_needs(races, order, left_out):
    parts, counter, result = np.full(5 * 64, np.nan, np.float32), np.zeros(1, np.int32), out()
    with pytest.raises(KernelFault, match="race: "):
        races(f"last_adds_up<{left_out}>", [parts, counter, result], block=64, grid=5)


def test_the_last_warp_sees_what_all_have_written(races, order):
    parts, counter, result = np.full(5 * 32, np.nan, np.float32), np.zeros(1, np.int32), out(32)
    races("last_warp_adds_up<0>", [parts, counter, result], block=32, grid=5)
    assert (result == 5).all()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("left_out", [1, 2, 3, 4])
def test_an_arrival_of_a_warp_without_all_that_it_needs(races, order, left_out):
    parts, counter, result = np.full(5 * 32, np.nan, np.float32), np.zeros(1, np.int32), out(32)
    with pytest.raises(KernelFault, match="race: "):
        races(f"last_warp_adds_up<{left_out}>", [parts, counter, result], block=32, grid=5)


@pytest.mark.parametrize(("way", "races_with"), [(0, False), (1, True), (2, True), (3, False), (4, True)])
def test_a_grid_that_overlaps_waits_for_what_the_one_before_clears(races_executable, order, way, races_with):
    width = 32
    sums = np.ones((4, width), np.float32)
    cleared = np.array([1, 2], np.int32)
    sizes = (np.int32(width),)
    accesses, waited = watched_launch(
        races_executable, "clear_rows", (2, 1, 1), (width, 1, 1), 0, [*sizes, cleared, sums]
    )
    assert [pieces.written for pieces in accesses] == [(), ((width * 4, 2 * width * 4),)]
    assert not waited

    def add(first: int, rows: int) -> bool:
        kernel = f"add_to_rows<{way}>"
        part = sums[first : first + rows]
        return watched_launch(
            races_executable, kernel, (rows, 1, 1), (width, 1, 1), 0, [*sizes, part], before=accesses
        )[1]

    assert add(3, 1) == (way != 1), "what the grid before has not touched"
    if races_with:
        with pytest.raises(KernelFault, match="without a wait for the grid before, which writes it"):
            add(0, 4)
    else:
        add(0, 4)
        assert (sums == np.array([2, 1, 1, 3])[:, None]).all()


def places(executable: object, blocks: int, threads: int) -> list[int]:
    counter, place = np.zeros(1, np.int32), np.zeros(blocks * threads, np.int32)
    launch_host(executable, "order_of_arrival", (blocks, 1, 1), (threads, 1, 1), 0, [counter, place])
    return np.argsort(place).tolist()


def test_orders_are_those_that_their_numbers_say(races_executable, monkeypatch):
    def run(order: str) -> list[int]:
        monkeypatch.setenv("SPMARK_HOST_ORDER", order)
        return places(races_executable, 2, 64)

    def of(blocks: Sequence[int], warps: Sequence[int], lanes: Sequence[int]) -> list[int]:
        return [64 * block + 32 * warp + lane for block in blocks for warp in warps for lane in lanes]

    up, down, lanes = [0, 1], [1, 0], list(range(32))
    assert run("1") == of(up, up, lanes)
    assert run("2") == of(down, down, lanes[::-1])
    first, again, second = run("5"), run("5"), run("6")
    assert first == again
    assert sorted(first) == list(range(128))
    assert len({tuple(run(order)) for order in "01256"}) == 5
    assert first != second
    warps = [place % 64 // 32 for place in first[:64]]
    assert warps not in (sorted(warps), sorted(warps)[::-1]), "warps take turns"
