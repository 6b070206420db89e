"""The stores of SparseTIR's plans: buckets of hyb(c, k), and blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.stores import Forecast, Stores
from spmark.impls.formats.hyb import lay_out, widths_up_to
from spmark.impls.formats.pieces import partition_columns
from spmark.impls.formats.stores import BsrStores, held_in_blocks, held_in_buckets, held_in_rows, word_of
from spmark.impls.kernels.direct_spmm import is_direct
from spmark.impls.kernels.hyb_spmm import rule_width

if TYPE_CHECKING:
    from spmark.impls.sparsetir.blocks import TunedBlocks
    from spmark.impls.sparsetir.plan import SparseTir


class HybStores:
    """Of `SparseTir`: buckets, or rows where CSR was faster and for SDDMM."""

    def stores(self, how: SparseTir, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Lay out the buckets of a config; their elements are not filled in. The order of rows changes no store."""
        matrix = problem.matrix
        if problem.op is Op.SDDMM or is_direct(config):
            return Stores.of(matrix.nnz, [held_in_rows(matrix.nnz)])
        partitions, widest = (word_of(config, name, how.name) for name in ("c", "max_width"))
        if not 1 <= partitions <= matrix.num_cols:
            raise BuildError(f"{how.name}: expected c of 1 to {matrix.num_cols:,} columns, found {partitions}")
        ladders = [widths_up_to(widest, config.get("thirds", False))] * partitions
        pieces = partition_columns(matrix, partitions)
        return Stores.of(matrix.nnz, held_in_buckets(lay_out(pieces, ladders, config.get("tail_in_last", False))))

    def forecast(self, how: SparseTir, problem: Problem, device: DeviceSpec, budget_s: float) -> Forecast:
        """Take the paper's rule for k, and one column partition where c is not pinned: c has no rule.

        Raises
        ------
        UnsupportedError
            The operator is SDDMM, for which the paper has no rule.
        """
        if problem.op is not Op.SPMM:
            raise UnsupportedError(f"expected spmm, for which the paper has a rule, found {problem.op}: measure it")
        config = {"c": how.c or 1, "max_width": rule_width(problem)}
        return Forecast(config, self.stores(how, problem, device, config), "the paper's rule k = ceil(log2(nnz / I))")


class TunedBlockStores:
    """Of `SparseTirBsr`, `SparseTirDbsr` and `SparseTirSrBcrs`: one store of blocks."""

    def stores(self, how: TunedBlocks, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
        """Convert as a plan does."""
        if problem.op is Op.SDDMM:
            return BsrStores().stores(how, problem, device, config)
        return Stores.of(problem.matrix.nnz, [held_in_blocks(how.convert(problem, config))])
