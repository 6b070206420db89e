"""Case ids that have been renamed: an id in an old record is read as today's id of the same case.

The table stands beside the folders of code, not among them: it changes no implementation's version.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator

RENAMED: Final = Path(__file__).parents[1] / "renamed_cases.json"
"""An object whose keys are old ids, each with the id that stands for it now."""


@cache
def renamed() -> dict[str, str]:
    """Give today's id by old id."""
    table: dict[str, str] = json.loads(RENAMED.read_text(encoding="utf-8"))
    return table


def current_id(case_id: str) -> str:
    """Give today's id of a case."""
    return renamed().get(case_id, case_id)


CaseId = Annotated[str, AfterValidator(current_id)]
"""A case id as it is read from a file of any age."""
