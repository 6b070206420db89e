"""The stores of LiteForm's plans: buckets of CELL, dense pieces, or a fixed format; and what its models choose."""

from __future__ import annotations

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.guard import reading
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.core.stores import Forecast, Stores
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.cell import cell_layout
from spmark.impls.formats.stores import held_in_blocks, held_in_buckets, held_in_rows, held_in_tiles, word_of
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.liteform.absent import seconds_of
from spmark.impls.liteform.compose import BLOCK, StoredAs
from spmark.impls.liteform.composition import expanded
from spmark.impls.liteform.dense import Dense, DensePieces, dense_pieces, dense_selection, rest_of
from spmark.impls.liteform.dense_plan import fullest
from spmark.impls.liteform.plan import MOST_PARTITIONS, LiteForm
from spmark.impls.liteform.schedule import table_for


class CellStores:
    """Buckets of CELL, with or without dense pieces, or rows of CSR, or blocks of BSR."""

    def stores(self, how: LiteForm, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Lay out what a config names; the order of rows changes no store."""
        matrix = problem.matrix
        form = word_of(config, "format", how.name)
        if form in (StoredAs.CSR, StoredAs.DIRECT):
            return Stores.of(matrix.nnz, [held_in_rows(matrix.nnz)])
        if form == StoredAs.BSR:
            return Stores.of(matrix.nnz, [held_in_blocks(BsrFormat.from_csr(matrix, BLOCK, BLOCK))])
        widths = word_of(config, "max_widths", how.name)
        with reading(how.name, "widths of buckets such as 32x5,16", BuildError):
            max_widths = expanded(widths, MOST_PARTITIONS)
        if "dense" in config:
            return _with_pieces(how, problem, _pieces(how, problem), max_widths[0])
        thirds = config.get("thirds", False)
        return Stores.of(matrix.nnz, held_in_buckets(cell_layout(matrix, max_widths, how.tail_in_last, thirds=thirds)))

    def forecast(self, how: LiteForm, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Ask the models, and the cost of buckets where buckets are chosen."""
        choice = how.choice(problem, device)
        config: Config = {"format": str(choice.form)}
        by, predicted_s = "LiteForm's models and its table of the GPU", None
        table = table_for(device.name)
        if choice.form is StoredAs.CELL and (choice.pieces or how.dense == Dense.ALWAYS):
            pieces = _pieces(how, problem)
            widest = how.widest_of(problem.width, table, rest_of(problem.matrix, pieces))
            config |= {"max_widths": str(widest), "dense": round(pieces.share, 4)}
            return Forecast(config, _with_pieces(how, problem, pieces, widest), by)
        composition = how.compose(problem, device)
        if composition is not None:
            config |= composition.facts | ({"thirds": True} if how.thirds_of(table) else {})
            predicted_s = seconds_of(composition, problem, device)
            by = "LiteForm's models and its cost of buckets, as the time of a copy of as many bytes"
        return Forecast(config, self.stores(how, problem, device, config), by, predicted_s)


def _pieces(how: LiteForm, problem: Problem) -> DensePieces:
    """Find dense pieces, in A's order of rows where a sample of it predicted them."""
    return dense_pieces(problem.matrix) if how.dense == Dense.PREDICTED else fullest(problem.matrix)


def _with_pieces(how: LiteForm, problem: Problem, pieces: DensePieces, widest: int) -> Stores:
    selection = dense_selection(problem.matrix, pieces, widest, how.tail_in_last)
    return Stores.of(problem.matrix.nnz, held_in_tiles(TileFormat.from_csr(problem.matrix, selection)))
