"""The stores of LiteForm's plans: buckets of CELL, or a fixed format; and what its models choose."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.guard import reading
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Forecast, Stores
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.cell import cell_layout
from spmark.impls.formats.stores import held_in_blocks, held_in_buckets, held_in_rows, word_of
from spmark.impls.liteform.absent import seconds_of
from spmark.impls.liteform.compose import BLOCK, StoredAs
from spmark.impls.liteform.composition import expanded
from spmark.impls.liteform.plan import MOST_PARTITIONS, LiteForm
from spmark.impls.liteform.schedule import table_for


class CellStores:
    """Buckets of CELL, rows of CSR, or blocks of BSR."""

    def stores(self, how: LiteForm, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Lay out what a config names; the order of rows changes no store."""
        matrix = problem.matrix
        form = word_of(config, "format", how.name)
        if form in (StoredAs.CSR, "direct"):  # records of before may have CSR by the kernel of `direct`
            return Stores.of(matrix.nnz, [held_in_rows(matrix.nnz)])
        if form == StoredAs.BSR:
            return Stores.of(matrix.nnz, [held_in_blocks(BsrFormat.from_csr(matrix, BLOCK, BLOCK))])
        if {"reads", "dense"} & set(config):
            raise BuildError(
                f"{how.name}: expected buckets, found a config of an earlier version, with rows in dense pieces: "
                "measure the case again"
            )
        widths = word_of(config, "max_widths", how.name)
        with reading(how.name, "widths of buckets such as 32x5,16", BuildError):
            max_widths = expanded(widths, MOST_PARTITIONS)
        thirds = config.get("thirds", False)
        return Stores.of(matrix.nnz, held_in_buckets(cell_layout(matrix, max_widths, how.tail_in_last, thirds=thirds)))

    def forecast(self, how: LiteForm, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Ask the models, and the cost of buckets where buckets are chosen."""
        choice = how.choice(problem)
        config: Config = {"format": str(choice.form)}
        by, predicted_s = "LiteForm's models and its table of the GPU", None
        table = table_for(device.name)
        composition = how.compose(problem, device)
        if composition is not None:
            config |= composition.facts | ({"thirds": True} if how.thirds_of(table) else {})
            predicted_s = seconds_of(composition, problem, device)
            by = "LiteForm's models and its cost of buckets, as the time of a copy of as many bytes"
        return Forecast(config, self.stores(how, problem, device, config), by, predicted_s)
