"""Every source of matrices by name: a new source needs one line here. Classes are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import DatasetError

if TYPE_CHECKING:
    from spmark.datasets.source import Source

SOURCES: Mapping[str, str] = {
    "planetoid": "spmark.datasets.sources.graphs:Planetoid",
    "ogb": "spmark.datasets.sources.graphs:Ogb",
    "dgl": "spmark.datasets.sources.graphs:DglGraphs",
    "snap": "spmark.datasets.sources.graphs:Snap",
    "suitesparse": "spmark.datasets.sources.graphs:SuiteSparse",
    "mirror": "spmark.datasets.sources.files:Mirror",
    "matrix_market": "spmark.datasets.sources.files:MatrixMarket",
    "smtx": "spmark.datasets.sources.files:Smtx",
    "npz": "spmark.datasets.sources.files:Npz",
    "patterns": "spmark.datasets.sources.patterns:Patterns",
    "dnn_layers": "spmark.datasets.sources.dnn_layers:DnnLayers",
    "pruned_bert": "spmark.datasets.sources.pruned_bert:PrunedBert",
    "rmat": "spmark.datasets.sources.rmat:Rmat",
    "twin": "spmark.datasets.sources.twin:Twin",
    "seeded": "spmark.datasets.sources.seeded:Seeded",
}


def find_source(name: str) -> Source:
    """Make the source called ``name``.

    Raises
    ------
    DatasetError
        The name is unknown; lists all sources.
    """
    entry = SOURCES.get(name)
    if entry is None:
        raise DatasetError(none_of("a source", name, SOURCES))
    module, _, label = entry.partition(":")
    return cast("Source", getattr(import_module(module), label)())
