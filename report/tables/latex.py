"""Tables as LaTeX: booktabs rules, every cell escaped, a long table where one page would not hold it.

The preamble needs ``booktabs`` and, for long tables, ``longtable``; no other package.
"""

from __future__ import annotations

from spmark.report.tables.cells import Cell, shown
from spmark.report.tables.table import Table, first_line

MOST_ROWS = 40
"""Rows up to which a table stands on one page."""
_ESCAPED = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "×": r"$\times$", "µ": r"$\mu$", "±": r"$\pm$", "–": "--",
    "‘": "`", "’": "'", "…": r"\dots{}", "[": "{[}", "]": "{]}", "\0": "{}",
})  # fmt: skip


def latex(table: Table) -> str:
    """Write a table as LaTeX.

    Parameters
    ----------
    table : Table
        Its title and note become the caption, its name the label; of a reason the first line is kept.

    Returns
    -------
    str
        A ``table`` with a ``tabular``, or a ``longtable`` beyond `MOST_ROWS` rows; ASCII only.
    """
    columns, rows = shown(table.frame)
    aligned = "".join("r" if any(row[n].number is not None for row in rows) else "l" for n in range(len(columns)))
    heads = [" & ".join(rf"\textbf{{{escape(table.heading(column))}}}" for column in columns) + r" \\"]
    body = [" & ".join(map(_cell, row)) + r" \\" for row in rows]
    caption = rf"\caption{{{' '.join(filter(None, (escape(table.title) + '.', escape(table.note))))}}}"
    label = rf"\label{{tab:{table.name}}}"
    if len(rows) <= MOST_ROWS:
        lines = [r"\begin{table}", r"\centering", caption, label, rf"\begin{{tabular}}{{{aligned}}}", r"\toprule"]
        ends = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*lines, *heads, r"\midrule", *body, *ends]) + "\n"
    lines = [rf"\begin{{longtable}}{{{aligned}}}", caption + label + r" \\", r"\toprule", *heads, r"\midrule"]
    again = [r"\endfirsthead", r"\toprule", *heads, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot"]
    return "\n".join([*lines, *again, *body, r"\end{longtable}"]) + "\n"


def escape(text: str) -> str:
    """Give text that LaTeX sets as it is; a letter outside ASCII that has no command becomes a question mark."""
    # Two hyphens would become a dash.
    plain = " ".join(text.split()).replace("--", "-\0-")
    return plain.translate(_ESCAPED).encode("ascii", "replace").decode()


def _cell(cell: Cell) -> str:
    return escape(first_line(cell.text))
