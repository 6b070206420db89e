"""Tables as LaTeX: balanced, escaped, one row a row."""

from __future__ import annotations

import re

import pandas as pd

from spmark.report.tables.latex import MOST_ROWS, escape, latex
from spmark.report.tables.table import Table


def table(rows):
    frame = pd.DataFrame(
        {
            "label": [f"a_{i}" for i in range(rows)],
            "speedup": 1.5,
            "speedup_low": 1.25,
            "speedup_high": 2.0,
            "reason": "50 % of {x} & $y$\nsecond line",
        }
    )
    return Table("gpu-some", "Some & others", "A note: µ ≈ 1.", frame)


def test_special_letters_are_escaped():
    assert escape("a_b 5 % {x} \\ & # $ ^ ~") == (
        r"a\_b 5 \% \{x\} \textbackslash{} \& \# \$ \textasciicircum{} \textasciitilde{}"
    )
    assert escape("1.2× [a, b] --flag ‘x’") == r"1.2$\times$ {[}a, b{]} -{}-flag `x'"
    assert escape("line\nbreak 漢") == "line break ?"


def test_a_short_table_is_a_tabular():
    text = latex(table(3))
    assert text.isascii()
    assert text.count(r"\begin{tabular}{lrl}") == text.count(r"\end{tabular}") == 1
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    body = [line for line in text.splitlines() if line.startswith(r"a\_")]
    assert body[0] == r"a\_0 & 1.50$\times$ {[}1.25$\times$, 2.00$\times${]} & 50 \% of \{x\} \& \$y\$ \\"
    assert len(body) == 3
    assert r"\caption{Some \& others. A note: $\mu$ ? 1.}" in text


def test_a_long_table_breaks_over_pages_and_all_rows_have_the_same_cells():
    text = latex(table(MOST_ROWS + 1))
    assert text.startswith(r"\begin{longtable}{lrl}")
    assert text.rstrip().endswith(r"\end{longtable}")
    rows = [line for line in text.splitlines() if line.startswith(r"a\_")]
    assert len(rows) == MOST_ROWS + 1
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert text.count("{") == text.count("}")
