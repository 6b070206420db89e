"""The search: every non-zero one tile, the picks of a literal algorithm 2, withdrawing, levels, budgets, fall-backs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, matrices, random_csr
from stile_calibrations import SDDMM, SPMM, TWO_HEIGHTS, search
from stile_recount import Watched
from stile_reference import Slow, labels
from way_back import csr_of

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.problem import Csr, DType, Op
from spmark.impls.formats.tiles import BLOCK, ELL, RUN, TileFormat
from spmark.impls.stile.calibration import Calibration, published_a100
from spmark.impls.stile.mixture import Mixture
from spmark.impls.stile.search import Tiling, forms_of
from spmark.impls.stile.space import Formats, Rules, SearchMode, shapes_of
from spmark.impls.stile.windows import Tiled


def mixed_matrix(rng: np.random.Generator, num_rows: int, num_cols: int) -> Csr:
    """Draw dense windows, hubs and scattered non-zeros, so that every kind of tile has something to win."""
    lengths = np.minimum(rng.zipf(1.5, num_rows), num_cols)
    pattern = np.zeros((num_rows, num_cols), np.bool_)
    for row, length in enumerate(lengths):
        pattern[row, rng.choice(num_cols, length, replace=False)] = True
    for _ in range(rng.integers(0, 4)):
        top = rng.integers(0, num_rows)
        dense = rng.choice(num_cols, min(num_cols, 16), replace=False)
        pattern[top : top + 16, dense] |= rng.random((min(16, num_rows - top), dense.size)) < 0.7
    rows, cols = np.nonzero(pattern)
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))])
    return Csr.checked((num_rows, num_cols), indptr, cols, rng.uniform(0.5, 1, rows.size))


@st.composite
def problems(draw: st.DrawFn) -> Csr:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return mixed_matrix(rng, draw(st.integers(1, 70)), draw(st.integers(1, 90)))


rules = st.builds(
    Rules,
    mode=st.sampled_from(SearchMode),
    formats=st.sampled_from(Formats),
    local_search=st.sampled_from([0.0, 0.2, 3.0]),
    withdraw=st.booleans(),
    levels=st.sampled_from([0, 1, 2]),
)


def check(matrix: Csr, found: Tiling, ell: bool) -> None:
    """Hold the invariants of a plan."""
    selection = found.selection
    held = TileFormat.from_csr(matrix, selection)
    given_back = csr_of(held)
    assert_same(given_back, matrix)
    assert set(np.unique(selection.owner)) == set(range(selection.kind.size))
    assert set(selection.kind) <= {BLOCK, ELL if ell else RUN}
    assert found.predicted_ms >= 0


@given(problems(), rules, st.sampled_from([SPMM, TWO_HEIGHTS, SDDMM]), st.sampled_from([1, 32, 100]))
def test_every_nonzero_has_one_tile(matrix: Csr, how: Rules, calibration: Calibration, width: int) -> None:
    check(matrix, search(matrix, calibration, width, how), calibration.op is Op.SPMM)


@pytest.mark.parametrize("calibration", [SPMM, TWO_HEIGHTS], ids=["one_height", "two_heights"])
@pytest.mark.parametrize("withdraw", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_a_literal_algorithm_2(seed: int, withdraw: bool, calibration: Calibration) -> None:
    matrix = mixed_matrix(np.random.default_rng(seed), 40, 60)
    shapes = shapes_of(calibration, 32, 32, matrix.nnz, SearchMode.PAPER)
    how = Rules(SearchMode.PAPER, local_search=0.0, withdraw=withdraw)
    run = Watched(Tiled.of(matrix), shapes, how)
    picked = run.run()
    slow = Slow(matrix, shapes, picked.order.tolist(), withdraw)
    assert picked.spent_ms == pytest.approx(slow.run(), rel=1e-9)
    assert [step.average_ms for step in run.trace] == pytest.approx(slow.averages, rel=1e-9)
    expected = np.array([slow.owner[at] for at in range(matrix.nnz)])
    np.testing.assert_array_equal(labels(picked.owner), labels(expected))


def test_levels_have_the_limit_that_is_asked_for_and_none_by_default() -> None:
    matrix = mixed_matrix(np.random.default_rng(2), 6000, 400)
    one_a_round = Rules(SearchMode.PAPER, local_search=0.0, withdraw=False, keep_mixture=True)
    assert search(matrix, SPMM, 32, replace(one_a_round, levels=100)).levels == 100
    assert search(matrix, SPMM, 32, one_a_round).levels > 100


def test_a_window_replaces_what_was_picked_in_it() -> None:
    rng = np.random.default_rng(3)
    pattern = rng.random((64, 512)) < np.where(np.arange(512) < 16, 0.9, 0.08)
    rows, cols = np.nonzero(pattern)
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))])
    matrix = Csr.checked(pattern.shape, indptr, cols, rng.uniform(0.5, 1, rows.size))
    how = Rules(formats=Formats.BLOCKS)
    found, without = search(matrix, SPMM, 32, how), search(matrix, SPMM, 32, replace(how, withdraw=False))
    assert found.withdrawn > 0
    assert without.withdrawn == 0
    assert found.predicted_ms < without.predicted_ms


def test_blocks_that_were_not_measured_are_no_candidates() -> None:
    single = Calibration.of(published_a100(), Op.SPMM, DType.FLOAT32)
    matrix = matrices()["empty_rows"]
    assert search(matrix, single, 32).formats is Formats.OTHER
    with pytest.raises(UnsupportedError, match="expected costs of block tiles"):
        search(matrix, single, 32, Rules(formats=Formats.BLOCKS))


@pytest.mark.parametrize("calibration", [SPMM, SDDMM], ids=["spmm", "sddmm"])
@pytest.mark.parametrize("threads", [False, True])
def test_searches_together_find_what_each_finds_alone(
    calibration: Calibration, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = mixed_matrix(np.random.default_rng(11), 400, 500)
    monkeypatch.setattr("spmark.impls.stile.search.SHARE", 0 if threads else 10**9)
    monkeypatch.setattr("spmark.impls.formats.threads.cores", lambda: 3)
    asked = [(Rules(), 0), (Rules(formats=Formats.OTHER), 128), (Rules(SearchMode.PAPER), 0), (Rules(), 64)]
    expected: dict[object, Tiling] = {}
    for one in asked:
        alone = forms_of(matrix, [one], calibration, 64)
        assert [form.predicted_ms for form in alone] == sorted(form.predicted_ms for form in alone)
        for form in alone:
            expected.setdefault((form.formats, form.widest), form)
    together = forms_of(matrix, asked, calibration, 64)
    assert [(form.formats, form.widest) for form in together] == list(expected)
    for form, alone_form in zip(together, expected.values(), strict=True):
        np.testing.assert_array_equal(form.selection.owner, alone_form.selection.owner)
        np.testing.assert_array_equal(form.selection.window_rows, alone_form.selection.window_rows)
        assert (form.predicted_ms, form.levels) == (alone_form.predicted_ms, alone_form.levels)


def test_what_would_be_found_again_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    pieces = Mixture.pieces
    monkeypatch.setattr(Mixture, "pieces", lambda self, n: searched.append(self.rules.formats) or pieces(self, n))
    matrix = random_csr(300, 400, np.random.default_rng(3).integers(1, 30, 300).tolist())
    forms_of(matrix, [(Rules(), 32), (Rules(), 128), (Rules(formats=Formats.OTHER), 512)], SPMM, 64)
    # No row is longer than 32, and blocks know of no widths.
    assert sorted(searched) == sorted([*Formats, Formats.MIXED])
