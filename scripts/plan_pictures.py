"""Draw what plans of published records store where, for the pages about the five systems.

    python scripts/plan_pictures.py

It makes the matrices and the formats again, without a GPU, as `spmark explain` does, and writes ``docs/images``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from spmark.report.figures.composition import composition, store_counts
from spmark.report.figures.plot import Form, render
from spmark.suite.cli.matrix import laid_out

ROOT = Path(__file__).parents[1]
_RECORDS = ROOT / "report/reference/h200"
PLANS = {
    "sparsetir": ("sparsetir_fig13_spmm", "spmm/planetoid/pubmed/J64/float32/sparsetir_extended"),
    "liteform": ("liteform_fig6_speedup", "spmm/planetoid/pubmed/J128/float32/liteform_cell"),
    "stile": ("stile_table7_search_space", "sddmm/patterns/strided_4096/J256/float16/stile_mixture"),
}
"""Sweep and case of each system's picture, by the name of the file."""


def main() -> None:
    """Draw all pictures."""
    for name, (sweep, case) in PLANS.items():
        (ROOT / f"docs/images/plan-{name}.png").write_bytes(picture(sweep, case))


def picture(sweep: str, record: str) -> bytes:
    """Give the composition of a recorded case as PNG.

    Raises
    ------
    SpmarkError
        The case is not there, or its matrix cannot be loaded.
    """
    row, problem, _, stores = laid_out(record, [_RECORDS / sweep])
    counts = store_counts(problem.matrix, stores)
    return render(partial(composition, row.spec.label, stores, counts, problem.matrix.shape), {Form.PNG}).png


if __name__ == "__main__":
    main()
