"""Which cases of a sweep the command line asked for (``--only``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import SweepError
from spmark.impls.core.record import CaseSpec
from spmark.impls.table import name_of

FIELDS: dict[str, Callable[[CaseSpec], str]] = {
    "op": lambda case: str(case.op),
    "matrix": lambda case: case.matrix.name,
    "source": lambda case: case.matrix.source,
    "width": lambda case: str(case.width),
    "dtype": lambda case: str(case.dtype),
    "scaled": lambda case: str(case.scaled).lower(),
    "implementation": lambda case: case.implementation,
    "label": lambda case: case.label,
}
"""What ``key=value`` compares with."""


def select(cases: Sequence[CaseSpec], only: Sequence[str]) -> list[CaseSpec]:
    """Keep the cases that every filter accepts, in order.

    Parameters
    ----------
    cases : sequence of CaseSpec
        A sweep's cases.
    only : sequence of str
        Filters: ``key=value`` with a key of `FIELDS` and comma-separated patterns for the value; otherwise a pattern of
        case ids (with ``*``, ``?`` or ``[``), or a part of one. An implementation may be a class in a file.

    Raises
    ------
    SweepError
        A key is unknown, or no case is left; says which filter left none.
    """
    kept = list(cases)
    for text in only:
        accepts = _filter(text)
        left = [case for case in kept if accepts(case)]
        if not left:
            some = ", ".join(case.case_id for case in kept[:3]) or "no case at all"
            raise SweepError(f"--only {text}: expected it to leave a case, found none among {len(kept)} such as {some}")
        kept = left
    return kept


def _filter(text: str) -> Callable[[CaseSpec], bool]:
    key, equals, value = text.partition("=")
    if equals:
        if key not in FIELDS:
            raise SweepError(f"--only {text}: {none_of('a key', key, FIELDS)}")
        patterns = [name_of(one) if key == "implementation" else one for one in value.split(",")]
        return lambda case: any(fnmatchcase(FIELDS[key](case), pattern) for pattern in patterns)
    if any(sign in text for sign in "*?["):
        return lambda case: fnmatchcase(case.case_id, text)
    return lambda case: text in case.case_id
