"""The scorecard of a report: each paper's claims are answered in a process of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from spmark.report.analysis.transfers import Moved
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import answered_claims, answers_nothing, as_scorecard, in_order, tables_of
from spmark.report.claims.verdicts import Verdict
from spmark.report.parallel import each, shared
from spmark.report.tables.table import Chapter, Table


def begin_answers(
    frame: pd.DataFrame, papers: Sequence[str], moved: Moved | None, pool: Executor | None
) -> Callable[[], list[Table]]:
    """Give what gives the scorecard's tables once it is called; a pool begins at once.

    Parameters
    ----------
    frame : DataFrame
        Records of one device, as `spmark.report.records.load_records` gives them.
    papers : sequence of str
        Out of `PAPERS`; by default those of which the records answer more than the sizes of matrices.
    moved : Moved, optional
        Studies of moved models, which answer claims beside the records.
    pool : Executor, optional
        Processes that answer a paper's claims each.

    Returns
    -------
    callable
        Gives the tables; none where records answer no claim.
    """
    asked = [] if answers_nothing(frame, moved) else in_order(papers or PAPERS)
    rows = shared(frame, pool if asked else None)
    asking = [partial(_answers, rows, paper, moved) for paper in asked]
    return partial(_tables, each(asking, [len(load_published(paper).claims) for paper in asked], pool), papers)


def _answers(rows: Callable[[], pd.DataFrame], paper: str, moved: Moved | None) -> list[dict[str, Any]]:
    return answered_claims(rows(), [paper], moved)


def _tables(answers: Iterable[Iterable[Mapping[str, Any]]], papers: Sequence[str]) -> list[Table]:
    cards = as_scorecard(row for of_paper in answers for row in of_paper)
    made = [replace(table, chapter=Chapter.SCORECARD) for table in tables_of(cards, papers)]
    if not made or (made[-1].frame["verdict"] == Verdict.NOT_RUN.value).all():
        return []
    verdicts, claims = made
    return [replace(verdicts, headline=True), claims]
