"""The stores of STile's plans: block tiles, ELL rows and runs; and what its search predicts.

A record does not hold the tiles, which are searched again: the search is deterministic without a budget of time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Forecast, Stores
from spmark.impls.formats.stores import held_in_rows, held_in_tiles
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.direct_spmm import is_direct
from spmark.impls.stile.cost_models import form_of
from spmark.impls.stile.forms import Tiling
from spmark.impls.stile.plan import Stile


class TileStores:
    """Tiles of the form that a config names, or rows where CSR was faster."""

    def stores(self, how: Stile, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Search the tiles of a config again and lay them out; takes as long as the search."""
        if is_direct(config):
            return Stores.of(problem.matrix.nnz, [held_in_rows(problem.matrix.nnz)])
        calibration, _ = how.priced_by(problem, device)
        # What was measured also had wider rows and other orders among its forms; what was not measured is the first.
        for measured in (False, True):
            for form in how.forms(problem, calibration, measured):
                if form_of(form.facts) == form_of(config):
                    return _stores(how, problem, form)
        raise BuildError(
            f"expected the search to find the recorded tiles {form_of(config)} again, found others: the search or its "
            "calibration has changed, so record the case anew"
        )

    def forecast(self, how: Stile, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Search, and take the tiles that are predicted fastest.

        Raises
        ------
        DeviceError
            There is no calibration for the operator and the dtype.
        """
        calibration, label = how.priced_by(problem, device)
        form = replace(how, budget_s=how.budget_s or budget_s).forms(problem, calibration, measured=False)[0]
        by = f"STile's search, prices of {label}"
        return Forecast(form.facts, _stores(how, problem, form), by, form.found.predicted_ms * 1e-3)


def _stores(how: Stile, problem: Problem, form: Tiling) -> Stores:
    """Lay out tiles; each shares its predicted time evenly among its non-zeros."""
    selection, nnz = form.found.selection, problem.matrix.nnz
    tiles = TileFormat.from_csr(problem.matrix, selection, thirds=how.thirds)
    counts = np.bincount(selection.owner, minlength=selection.kind.size)
    each_s = form.found.tile_ms * 1e-3 / np.maximum(counts, 1)
    return Stores.of(nnz, held_in_tiles(tiles), each_s[selection.owner])
