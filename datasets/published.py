"""Tables of numbers (not matrices) that authors publish beside their papers: measured labels, raw times.

A table comes from the local mirror, folder ``liteform``, or from the public artifact at a fixed commit. A digest checks
the content either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from spmark.datasets.cache import Cache
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.impls.core.errors import DatasetError, none_of
from spmark.impls.core.files import is_file
from spmark.impls.core.untrusted import reading

_ARTIFACT = "https://raw.githubusercontent.com/johnpzh/sparsetir-artifact"
_LABELS = "24acb5a2cf5d0e3bc6bddfc59746abb924868397"
_FIGURES = "3486ce006f7fea697e676524978c15f79598c862"


@dataclass(frozen=True)
class PublishedTable:
    """A CSV file that somebody else measured."""

    name: str
    """``paper/file`` without its ending."""
    what: str
    url: str
    sha256: str
    """Digest of the unpacked CSV."""
    licence: str
    citation: str
    gpu: str
    """The GPU of the measurements."""


@dataclass(frozen=True)
class PublishedText:
    """A published table with its content."""

    about: PublishedTable
    text: str


def _liteform(file: str, path: str, what: str, sha256: str) -> PublishedTable:
    return PublishedTable(
        f"liteform/{file}",
        what,
        f"{_ARTIFACT}/{path}/{file}.csv",
        sha256,
        "MIT, copyright Zhen Peng",
        "Peng, Thomadakis, Pienaar and Kestor, LiteForm, HPDC 2025, doi 10.1145/3731545.3731574",
        "NVIDIA V100",
    )


TABLES: Mapping[str, PublishedTable] = {
    table.name: table
    for table in (
        _liteform(
            "output_2279_total",
            f"{_LABELS}/playground_v4_pipeline/data",
            "best number of partitions and bucket width of 2,279 SuiteSparse matrices at five widths, and their times",
            "81df6098a750d6b27d1a6369f4c8933a41afdbc4db994b9de38360afd01eb520",
        ),
        _liteform(
            "eva_suitesparse_exe_time",
            f"{_FIGURES}/eval_figures/suitesparse_exe_time",
            "times of LiteForm and of tuned SparseTIR on 2,136 SuiteSparse matrices (figure 7)",
            "11830a4481d75ce7c25adc7286cd90e21905dfe87ea7e9e614b1f41af9037a03",
        ),
        _liteform(
            "eva_suitesparse_overhead",
            f"{_FIGURES}/eval_figures/overhead_suitesparse",
            "seconds of tuning and of composing on 2,136 SuiteSparse matrices (figure 9)",
            "dbe1e7e7a4f9bc18412f0b5e08939bbdf1880e65bcebf7e5bb670e3373a33cce",
        ),
    )
}


def read_table(name: str, cache: Cache) -> str:
    """Give the text of a published table.

    Parameters
    ----------
    name : str
        A key of `TABLES`.
    cache : Cache
        Its mirror comes first: ``<name>.csv`` or ``<name>.csv.gz``.

    Raises
    ------
    DatasetError
        The name is unknown, or the table cannot be fetched or is not the published one.
    """
    table = TABLES.get(name)
    if table is None:
        raise DatasetError(none_of("a table", name, TABLES))
    mirrored = [] if cache.mirror is None else [cache.mirror / f"{name}.csv{packed}" for packed in ("", ".gz")]
    path = next(filter(is_file, mirrored), None) or cache.fetch(table.url, f"published/{name}.csv", table.sha256)
    with unpacked(path, remedy=FETCH_AGAIN) if path.suffix == ".gz" else nullcontext(path) as file:
        with reading(path, "a CSV file"):
            content = file.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != table.sha256:
        raise DatasetError(
            f"{path}: expected the table of {table.url} with sha256 {table.sha256}, found {digest}; delete the file "
            "to fetch it again"
        )
    return content.decode()
