"""Write docs/notes/twins.md: what the twins of large graphs are like, beside what is published of the graphs.

``python scripts/studies/twin_quality.py`` takes minutes and 6 GB. A graph itself has a column where this machine has
its file (in the cache, or in the folder of its package); nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.fetching import Download, needed
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import Csr
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.hyb import lay_out, partition_columns
from spmark.impls.formats.relational_hyb import RelationalHyb

PAGE = Path(__file__).parents[2] / "docs" / "notes" / "twins.md"
WINDOW = 16
QUANTILES = (0, 0.25, 0.5, 0.75, 0.99, 1)
GRAPHS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "reddit": ("twin/reddit_twin", "dgl/reddit", {"nodes": "232,965", "edges": "114,615,892", "padding": "28.6 %"}),
    "ogbn-proteins": (
        "twin/proteins_twin",
        "ogb/ogbn-proteins",
        {"nodes": "132,534", "edges": "39,561,252", "padding": "21.6 %"},
    ),
    "ogbn-products": ("twin/products_twin", "ogb/ogbn-products", {"nodes": "2,449,029", "edges": "61,859,140"}),
    "AM": (
        "relational_twin/am",
        "dgl/am",
        {"nodes": "1,885,136", "edges": "5,668,682", "relations": "96", "padding": "10.8 %"},
    ),
    "BGS": (
        "relational_twin/bgs",
        "dgl/bgs",
        {"nodes": "94,806", "edges": "672,884", "relations": "96", "padding": "4.3 %"},
    ),
    "ogbl-biokg": (
        "relational_twin/biokg",
        "ogb/ogbl-biokg",
        {"nodes": "93,773", "edges": "4,762,678", "relations": "51", "padding": "4.2 %"},
    ),
}
"""Twin, graph, and what is published: OGB's page (ogbn-products), SparseTIR, tables 1 and 2, and STile, table 4."""
INTRODUCTION = """# Twins of large graphs

`python scripts/studies/twin_quality.py` writes this page. A twin is drawn from a seed where the graph itself has to be
downloaded; it has the graph's nodes and edges, and its other laws are our choice. A column is missing where the machine
that wrote the page had no such file.

- **Row lengths**: quantiles over all rows. A row of a graph of several relations has the edges of all of them.
- **Density of windows**: non-zeros over 16 times the columns that 16 rows in a row use. It is the share of non-zeros in
  blocks of 16 rows whose empty columns are left out.
- **Reuse of columns**: non-zeros for each used column, and the share of them in the 1 % of columns with most.
- **Padding**: of hyb with one partition and SparseTIR's rule for the widest bucket, ceil(log2(nnz / I)), or of 3-D hyb
  with groups of 32. The published number is of SparseTIR's tables 1 and 2, which do not state partitions and widths.
"""


def measured(csr: Csr) -> dict[str, str]:
    """Give the numbers of a matrix. O(nnz log nnz)."""
    (rows, cols), nnz = csr.shape, csr.nnz
    used = 0
    for start in range(0, rows, WINDOW):
        used += np.unique(csr.indices[csr.indptr[start] : csr.indptr[min(start + WINDOW, rows)]]).size
    uses = np.sort(np.bincount(csr.indices))[::-1]
    uses = uses[uses > 0]
    told = {"nodes": f"{rows:,}", "edges": f"{nnz:,}"}
    if cols > rows:
        told["relations"] = str(cols // rows)
        padding = RelationalHyb.of(RelationalCsr.checked(csr, cols // rows), 32).padding
    else:
        widest = 1 << math.ceil(math.log2(nnz / rows))
        padding = lay_out(partition_columns(csr), [widest]).stored / nnz - 1
    quantiles = np.quantile(csr.row_lengths, QUANTILES, method="inverted_cdf")
    return told | {
        "rows: shortest, 25 %, 50 %, 75 %, 99 %, longest": ", ".join(f"{one:,.0f}" for one in quantiles),
        "density of windows": f"{nnz / (WINDOW * used):.1%}",
        "non-zeros for each used column": f"{nnz / uses.size:,.1f}",
        "share of the 1 % of columns with most": f"{uses[: -(-uses.size // 100)].sum() / nnz:.1%}",
        "padding": f"{padding:.1%}",
    }


def loaded(id: str, cache: Cache) -> Csr | None:
    """Give a matrix, or None where it would have to be downloaded."""
    source, _, name = id.partition("/")
    spec = MatrixSpec(source=source, name=name)
    if isinstance(needed([spec], cache)[spec.id], Download):
        return None
    return load_matrix(spec, cache, 0).csr


def sections(cache: Cache) -> Iterator[str]:
    """Give a section with a table for each graph."""
    for graph, (twin, real, published) in GRAPHS.items():
        found = {f"`{id}`": measured(csr) for id in (twin, real) if (csr := loaded(id, cache)) is not None}
        columns = found | {"published": {key: value.replace(" %", "%") for key, value in published.items()}}
        yield f"\n## {graph}\n"
        yield f"| | {' | '.join(columns)} |"
        yield "|---|" + "---|" * len(columns)
        for key in next(iter(found.values())):
            yield f"| {key} | {' | '.join(column.get(key, '') for column in columns.values())} |"


if __name__ == "__main__":
    PAGE.write_text("\n".join([INTRODUCTION.rstrip("\n"), *sections(Cache.default())]) + "\n", encoding="utf-8")
