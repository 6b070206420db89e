"""Tells the stores of a plan by the format that holds A: `spmark.impls.core.stores` says what a store is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, Problem, numbered
from spmark.impls.core.stores import Held, StoreKind, Stores
from spmark.impls.formats.bsr import DenseBlocks
from spmark.impls.formats.hyb import HybLayout
from spmark.impls.formats.tiles import TileFormat


def stores_of(how: Any, problem: Problem, device: DeviceSpec, config: Config) -> Stores:
    """Convert as a plan of ``config`` does, on the host, and tell the stores.

    Parameters
    ----------
    how : Implementation
        With the tunables that were pinned. Its ``stored_as`` converts; without one, plans take CSR as it comes.
    problem : Problem
    device : DeviceSpec
        What the plan was built for; the machine may lack it.
    config : mapping
        What the plan chose (`spmark.impls.core.interfaces.Plan.config`).

    Raises
    ------
    BuildError
        The config is of no plan of the implementation today; says what is missing.
    """
    convert = getattr(how, "stored_as", None)
    form = convert(problem, device, _Chosen(how.name, config)) if convert else problem.matrix
    return Stores.of(problem.matrix.nnz, held(form))


class _Chosen(dict[str, Any]):
    """A recorded config, which says what it lacks."""

    def __init__(self, who: str, config: Config) -> None:
        super().__init__(config)
        self._who = who

    def __missing__(self, key: str) -> Any:
        raise BuildError(
            f"{self._who}: expected {key} in the config that a plan chose, found {', '.join(self) or 'nothing'}: "
            "record the case anew"
        )


def held(form: Any) -> Iterator[Held]:
    """Give what a format holds of A: blocks, buckets by width, runs, rows; what is no format is a list of answers.

    Parameters
    ----------
    form : Csr, DenseBlocks, HybLayout, TileFormat or iterable of Held
    """
    if isinstance(form, Csr):
        yield Held(StoreKind.ROW, "rows of CSR", form.nnz)
    elif isinstance(form, DenseBlocks):
        rows, cols = form.block_shape
        yield Held(StoreKind.BLOCK, f"blocks of {rows} x {cols}", form.stored)
    elif isinstance(form, HybLayout):
        # Narrow before wide; buckets of one width in several partitions have one name.
        for bucket in sorted(form.buckets, key=lambda bucket: bucket.width):
            span = slice(bucket.first, bucket.first + bucket.count)
            row, number = numbered(form.lengths[span])
            places = form.starts[span][row] + number
            yield Held(StoreKind.BUCKET, f"bucket of {bucket.width}", bucket.count * bucket.width, places)
    elif isinstance(form, TileFormat):
        for height, blocks in form.blocks.items():
            yield Held(StoreKind.BLOCK, f"blocks of {height} rows", blocks.values.size, blocks.held)
        if form.ell and form.ell_held is not None:
            yield from (one._replace(places=form.ell_held[one.places]) for one in held(form.ell))
        if form.runs:
            yield Held(StoreKind.ROW, "runs of non-zeros", form.runs.values.size, form.runs.held)
    else:
        yield from form
