"""CELL as its paper has it: what the cost of LiteForm and its layouts are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import HybFormat, cell_layout


@dataclass(frozen=True, eq=False)
class CellFormat:
    """Partitions of columns, each cut into buckets of ELL rows, each cut into blocks."""

    held: HybFormat
    partitions: int

    @classmethod
    def from_csr(
        cls,
        matrix: Csr,
        max_widths: Sequence[int],
        tail_in_last: bool = True,
        *,
        thirds: bool = False,
    ) -> CellFormat:
        layout = cell_layout(matrix, max_widths, tail_in_last, thirds=thirds)
        return cls(HybFormat.from_layout(matrix, layout), len(max_widths))

    @property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """For each partition the widths of the buckets that it has, rising; none in an empty partition."""
        widths: list[set[int]] = [set() for _ in range(self.partitions)]
        for bucket in self.held.buckets:
            widths[bucket.partition].add(bucket.width)
        return tuple(tuple(sorted(some)) for some in widths)

    @property
    def block_elements(self) -> tuple[int, ...]:
        """For each partition the elements of a block, a row of its widest bucket; 0 in an empty one."""
        return tuple(widths[-1] if widths else 0 for widths in self.widths)
