"""Tables of numbers (not matrices) that authors publish beside their papers: measured labels, raw times.

A table comes from the local mirror, folder ``liteform``, or from the public artifact at a fixed commit. A digest checks
the content either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.impls.core.choices import none_of
from spmark.impls.core.contracts import PublishedTable
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading

_ARTIFACT = "https://raw.githubusercontent.com/johnpzh/sparsetir-artifact"
_LABELS = "24acb5a2cf5d0e3bc6bddfc59746abb924868397"
_FIGURES = "3486ce006f7fea697e676524978c15f79598c862"


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
    for path in _mirrored(table, cache.mirror):
        if path.is_file():
            return _checked(_unpacked(path), table, str(path))
    path = cache.fetch(table.url, f"published/{name}.csv", table.sha256)
    return _checked(_unpacked(path), table, str(path))


def _mirrored(table: PublishedTable, mirror: Path | None) -> tuple[Path, ...]:
    return () if mirror is None else (mirror / f"{table.name}.csv", mirror / f"{table.name}.csv.gz")


def _unpacked(path: Path) -> bytes:
    if path.suffix == ".gz":
        with unpacked(path, remedy=FETCH_AGAIN) as file:
            return file.read_bytes()
    with reading(path, "a CSV file"):
        return path.read_bytes()


def _checked(content: bytes, table: PublishedTable, where: str) -> str:
    digest = hashlib.sha256(content).hexdigest()
    if digest != table.sha256:
        raise DatasetError(
            f"{where}: expected the table of {table.url} with sha256 {table.sha256}, found {digest}; delete the file "
            "to fetch it again"
        )
    return content.decode()
