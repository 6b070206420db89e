"""Every source of matrices by name: a new source needs one line here. Classes are imported on use.

Installed distributions add sources by entry points of the group ``spmark.sources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from spmark.impls.core.errors import DatasetError, none_of
from spmark.impls.core.files import at_home
from spmark.impls.core.outside import SOURCE_GROUP, Offer, find_offer, offers

if TYPE_CHECKING:
    from spmark.datasets.source import Source
    from spmark.records.schema import MatrixSource

SOURCES: Mapping[str, str] = {
    "planetoid": "spmark.datasets.sources.graphs:Planetoid",
    "ogb": "spmark.datasets.sources.graphs:Ogb",
    "dgl": "spmark.datasets.sources.graphs:DglGraphs",
    "snap": "spmark.datasets.sources.graphs:Snap",
    "suitesparse": "spmark.datasets.sources.graphs:SuiteSparse",
    "dlmc": "spmark.datasets.sources.dlmc:Dlmc",
    "heterophilous": "spmark.datasets.sources.repositories:Heterophilous",
    "musae": "spmark.datasets.sources.repositories:Musae",
    "bionev": "spmark.datasets.sources.repositories:BioNev",
    "github": "spmark.datasets.sources.repositories:Github",
    "netlib_lp": "spmark.datasets.sources.programs:NetlibLp",
    "maros_meszaros": "spmark.datasets.sources.programs:MarosMeszaros",
    "matpower": "spmark.datasets.sources.programs:Matpower",
    "mirror": "spmark.datasets.mirror:Mirror",
    "matrix_market": "spmark.datasets.sources.files:MatrixMarket",
    "smtx": "spmark.datasets.sources.files:Smtx",
    "npz": "spmark.datasets.sources.files:Npz",
    "patterns": "spmark.datasets.sources.patterns:Patterns",
    "dnn_layers": "spmark.datasets.sources.pruned_layers:DnnLayers",
    "pruned_bert": "spmark.datasets.sources.pruned_layers:PrunedBert",
    "pruned_networks": "spmark.datasets.sources.pruned_layers:PrunedNetworks",
    "rmat": "spmark.datasets.sources.rmat:Rmat",
    "twin": "spmark.datasets.sources.twin:Twin",
    "seeded": "spmark.datasets.sources.seeded:Seeded",
    "seeded_small": "spmark.datasets.sources.seeded:SeededSmall",
    "hetero": "spmark.datasets.sources.relational:Hetero",
    "pointcloud": "spmark.datasets.sources.relational:PointCloud",
    "minkunet": "spmark.datasets.sources.minkunet:MinkUNet",
    "relational_twin": "spmark.datasets.sources.relational_twin:RelationalTwin",
}

FILES: Mapping[str, str] = {
    ".npz": "npz",
    ".smtx": "smtx",
    ".mtx": "matrix_market",
    ".mtx.gz": "matrix_market",
    ".tar.gz": "matrix_market",
    ".tgz": "matrix_market",
    ".tar": "matrix_market",
    ".zip": "matrix_market",
}
"""Sources whose matrices are files of the user's own, by ending."""


def file_ending(name: str) -> str:
    """Give the key of `FILES` that a file's name ends in, in capitals or not; empty for another ending."""
    return next((ending for ending in FILES if name.lower().endswith(ending)), "")


def own_file(matrix: MatrixSource) -> Path | None:
    """Give the file that a matrix is read from, where its source is one of the user's own files."""
    if matrix.source not in FILES.values():
        return None
    return Path(matrix.folder) / at_home(str(matrix.args.get("path", matrix.name)))


def source_names() -> list[str]:
    """List the names of all sources, those of installed distributions last; imports none."""
    return list(dict.fromkeys((*SOURCES, *offers(SOURCE_GROUP))))


def find_source(name: str) -> Source:
    """Make the source called ``name``.

    Raises
    ------
    DatasetError
        The name is unknown, and the message lists all sources; or it has two owners, or its distribution is broken.
    """
    offer = find_offer(SOURCE_GROUP, name, SOURCES, DatasetError)
    if offer is not None:
        return _made(offer)
    entry = SOURCES.get(name)
    if entry is None:
        raise DatasetError(none_of("a source", name, source_names()))
    module, _, label = entry.partition(":")
    return cast("Source", getattr(import_module(module), label)())


def _made(offer: Offer) -> Source:
    """Make a source that a distribution offers."""
    from spmark.datasets.source import Source

    kind = offer.load(DatasetError)
    if not (isinstance(kind, type) and issubclass(kind, Source) and getattr(kind, "name", None) == offer.name):
        raise DatasetError(
            f"{offer.name}: expected {offer.owner} to hold a Source with this name (spmark.datasets.source) at "
            f"{offer.entry}, found {kind!r} with the name {getattr(kind, 'name', None)!r}; mend that distribution"
        )
    return kind()
