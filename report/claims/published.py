"""What the papers published, claim by claim: the YAML files under `report/claims`, checked.

A file holds single claims and tables. A table states what its cells share, what each row and column adds, and one value
for each cell; every cell becomes a claim of its own. A published number is context from another machine: its `Measure`
says how our records answer it, or why they cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from spmark.impls.core.enums import AnyOp
from spmark.impls.core.errors import RecordError
from spmark.impls.core.plainyaml import parse_yaml
from spmark.impls.core.problem import DType
from spmark.impls.core.untrusted import Frozen, reading

_FOLDER = files("spmark.report.claims")
PAPERS: Final = tuple(
    sorted(file.name.removesuffix(".yaml") for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))
)
"""Papers with a file, by name."""
NO_NUMBER: Final = ("oom", "-")
"""Cells without a number: out of memory, and empty in the paper."""
_ID = r"^[a-z0-9][a-z0-9_.-]*$"

Range = Annotated[tuple[float, float], Field(min_length=2)]
Value = float | Range | Literal["oom", "-"]
Unit = Literal["x", "ms", "s", "%", "count", "score"]


class Statistic(StrEnum):
    """How records answer a claim; `spmark.report.claims.answers` computes it."""

    GEOMEAN_SPEEDUP = "geomean_speedup"
    """Geometric mean over the cases of the time of ``over`` divided by that of ``of``."""
    SPEEDUP_RANGE = "speedup_range"
    """Least and greatest of the matrices' geometric means over widths."""
    MIN_SPEEDUP = "min_speedup"
    MAX_SPEEDUP = "max_speedup"
    """Of one case."""
    MEDIAN_MS = "median_ms"
    """Median time of one run; geometric mean of the medians where a claim covers several cases."""
    SEARCH_S = "search_s"
    """Mean seconds that building spent in ``phases``."""
    SEARCH_RANGE_S = "search_range_s"
    """Least and greatest over the matrices of these means."""
    SEARCH_RATIO = "search_ratio"
    """Geometric mean of the seconds of ``over`` divided by those of ``of``."""
    SEARCH_RATIO_RANGE = "search_ratio_range"
    """Least and greatest over the matrices of these means."""
    MAX_SEARCH_RATIO = "max_search_ratio"
    MEMORY_RATIO = "memory_ratio"
    """Geometric mean of the bytes that the plan of ``of`` holds divided by those of ``over``."""
    MEAN_LOSS = "mean_loss"
    """Mean over the cases of how far the time of ``of`` is from that of ``over``, in per cent of the latter."""
    TIME_SPREAD = "time_spread"
    """Greatest ratio of two median times of ``of`` among matrices of one shape, J and number of non-zeros."""
    CONFIG_RANGE = "config_range"
    """Least and greatest over the cases of the number that plans of ``of`` keep as ``metric`` in their configs."""
    PADDED_SHARE = "padded_share"
    """Stored elements that are padding, in per cent of all stored ones."""
    TILES = "tiles"
    """How well a calibrated cost model predicts single tiles: ``metric`` (`spmark.report.analysis.tiles`)."""
    PREDICTION = "prediction"
    """How well a predictor does: ``metric`` of ``model`` in the paper's study (`spmark.report.claims.study`)."""
    TRANSFER_SPEEDUP = "transfer_speedup"
    """Speed-up of ``metric`` of the moved model ``of`` over the platform's ``default``, or over another method."""
    TRANSFER_SCORE = "transfer_score"
    """How good the moved model ``of`` is: ``metric`` (`spmark.report.claims.transfers`)."""
    NUM_ROWS = "num_rows"
    NUM_COLS = "num_cols"
    NNZ = "nnz"
    RELATIONS = "relations"
    DENSITY = "density"
    """Facts of the matrix itself."""


class Conditions(Frozen):
    """What the published number is about. Empty where the paper does not say, or it does not apply."""

    op: AnyOp | None = None
    dtype: DType | None = None
    widths: tuple[Annotated[int, Field(ge=1)], ...] = ()
    matrices: tuple[str, ...] = ()
    """Names as in the paper; the matrices that can be measured are keys of the file's ``matrices``."""
    subject: str = ""
    """System that the number is of, as the paper calls the system."""
    baseline: str = ""
    """System that it is compared with, as the paper calls that system."""
    aggregate: str = ""
    """How several numbers became one: geometric mean, least to greatest, mean."""
    note: str = ""
    """Further settings, and where two sources of the number differ."""

    def __str__(self) -> str:
        widths = f"J = {', '.join(map(str, self.widths))}" if self.widths else ""
        over = f"over {self.baseline}" if self.baseline else ""
        parts = (self.op, self.dtype, widths, ", ".join(self.matrices), over, self.aggregate, self.note)
        return "; ".join(str(part) for part in parts if part)


class Measure(Frozen):
    """How records answer a claim: a statistic of ours, or the reason why no record does.

    Op, dtype, widths and matrices are those of the claim's conditions.
    """

    statistic: Statistic | None = None
    of: str = ""
    """Label of the implementation in the records. Variants have labels that a sweep gives them."""
    over: str = ""
    """Label of the implementation that ratios are over."""
    phases: tuple[str, ...] = ("select", "search")
    """Phases of building that count as search."""
    task: str = ""
    """What is predicted, for `Statistic.PREDICTION`, and by which model; ``train_rows`` is a point of a curve."""
    model: str = ""
    metric: str = ""
    """Which number: of a prediction, of the tiles, or of the configs."""
    train_rows: int = 0
    target: str = ""
    """Platform that a moved model is judged on."""
    source_matrices: int = 0
    """Matrices that a moved model was pre-trained on; 0 for those of most methods."""
    target_matrices: int = 0
    """Matrices that a moved model was fine-tuned on; 0 for those of most methods."""
    differs: str = ""
    """How our measurement differs from the paper's: the number then cannot count as reproduced."""
    nowhere: str = ""
    """What the answer says beside its number where no case is faster than with ``over``."""
    none: str = ""
    """Why no record answers the claim."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        statistic = self.statistic
        if (statistic is None) == (not self.none):
            raise ValueError("expected a statistic, or 'none' with the reason why there is none; found both or neither")
        if statistic in (*RATIOS, Statistic.MEAN_LOSS) and not (self.of and self.over):
            raise ValueError(f"expected 'of' and 'over' for {statistic}, found {self.of!r} and {self.over!r}")
        predicts = statistic is Statistic.PREDICTION
        needed = {
            "task": predicts,
            "model": predicts,
            "metric": statistic in _WITH_METRIC,
            "target": statistic in TRANSFERS,
        }
        if statistic not in FACTS:
            needed["of"] = statistic is not None
        for key, there in needed.items():
            if bool(getattr(self, key)) != there:
                expected = "a value" if there else "nothing"
                raise ValueError(f"{key}: expected {expected} for {statistic}, found {getattr(self, key)!r}")
        return self


RATIOS: Final = frozenset(s for s in Statistic if "_ratio" in s or "speedup" in s)
"""Statistics that compare two: 1 means that they are alike."""
FACTS: Final = frozenset(
    {Statistic.NUM_ROWS, Statistic.NUM_COLS, Statistic.NNZ, Statistic.RELATIONS, Statistic.DENSITY}
)
"""Statistics of a matrix alone."""
TRANSFERS: Final = frozenset({Statistic.TRANSFER_SPEEDUP, Statistic.TRANSFER_SCORE})
"""Statistics of a study of moved models."""
_WITHOUT_MATRICES = frozenset({Statistic.PREDICTION, Statistic.TILES, *TRANSFERS})
_WITH_METRIC = frozenset({*_WITHOUT_MATRICES, Statistic.CONFIG_RANGE})
RANGES: Final = frozenset(s for s in Statistic if "_range" in s)
"""Statistics with a least and a greatest."""


class Claim(Frozen):
    """One published number."""

    id: str = Field(pattern=_ID)
    where: str = Field(min_length=1)
    """Table, figure or section."""
    what: str = Field(min_length=1)
    """What the number says, in our words."""
    value: Value
    """A number, least and greatest, or why there is none (`NO_NUMBER`)."""
    bound: Literal["above", "below"] | None = None
    """Where the paper says only that its number is on this side of ``value``; "A is faster than B" is above 1."""
    group: str = ""
    """Claims of one group count once; where none is named, those that one measurement answers are a group."""
    unit: Unit
    gpu: str
    """GPU that it was measured on; empty where no machine is involved."""
    conditions: Conditions = Conditions()
    measure: Measure

    @property
    def ends(self) -> tuple[float, float] | None:
        """Least and greatest, the same for a single number; None without one."""
        if isinstance(self.value, str):
            return None
        return self.value if isinstance(self.value, tuple) else (self.value, self.value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.ends and self.ends[0] > self.ends[1]:
            raise ValueError(f"{self.id}: expected least before greatest, found {self.value}")
        if self.measure.statistic in RATIOS and self.ends and self.ends[0] <= 0:
            raise ValueError(f"{self.id}: expected a ratio above 0, found {self.value}")
        if self.bound and not isinstance(self.value, float):
            raise ValueError(f"{self.id}: expected one number for a bound, found {self.value}")
        if self.measure.statistic in RANGES and not isinstance(self.value, tuple):
            raise ValueError(f"{self.id}: expected least and greatest for {self.measure.statistic}, found {self.value}")
        return self


class ClaimTable(Frozen):
    """A table, or a figure's data, of the paper: rows times columns."""

    id: str = Field(pattern=_ID)
    where: str = Field(min_length=1)
    shared: dict[str, Any]
    """Fields of every cell's `Claim`; ``{row}`` and ``{column}`` stand for their names in ``what``."""
    columns: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    """What the cells of a column add, by the column's name."""
    rows: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    """What the cells of a row add, and their values in the order of the columns under ``cells``."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, row in self.rows.items():
            cells = len(row.get("cells", ()))
            if cells != len(self.columns):
                raise ValueError(f"{self.id}, row {name}: expected {len(self.columns)} cells, found {cells}")
        return self

    def claims(self) -> Iterator[dict[str, Any]]:
        """Give the fields of every cell's claim, row by row."""
        for row, added in self.rows.items():
            for (column, own), value in zip(self.columns.items(), added["cells"], strict=True):
                by_row = {key: item for key, item in added.items() if key != "cells"}
                fields = _merged(self.shared, _merged(own, by_row))
                yield fields | {
                    "id": f"{self.id}.{_slug(row)}.{_slug(column)}",
                    "where": self.where,
                    "what": str(fields.get("what", "")).replace("{row}", row).replace("{column}", column),
                    "value": value,
                }


class StudyTexts(Frozen):
    """What the page of a study says of the paper (`spmark.report.site.study`)."""

    speed: str = ""
    """What the published ratios of speeds compare."""
    name: str = ""
    """Name of their figure, after ``cpu-``."""
    ratios: str = ""
    """What a reader of the table of published ratios must know."""


class Published(Frozen):
    """Everything that one paper published."""

    schema_version: Literal[1] = Field(alias="schema")
    paper: str = Field(pattern=_ID)
    """Name of the file."""
    place: int = 0
    """Where it stands among the papers of a page."""
    title: str
    citation: str
    sources: tuple[str, ...] = Field(min_length=1)
    """Where the numbers were read, with the licence of published data."""
    matrices: dict[str, tuple[str, ...]] = {}
    """Our matrix ids (patterns with ``*``) of a name of the paper; the first that records hold is taken."""
    sizes: dict[str, Annotated[int, Field(ge=1)]] = {}
    """How many matrices the paper has under a name that stands for several; a matrix counts once at each of its widths.
    What answers for a few of them gets no verdict. Names of one matrix are left out."""
    study: StudyTexts = StudyTexts()
    """Of papers whose predictors are studied."""
    tables: tuple[ClaimTable, ...] = ()
    claims: tuple[Claim, ...]
    """Single claims first, then the cells of the tables."""

    @model_validator(mode="before")
    @classmethod
    def _cells(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        tables = [ClaimTable.model_validate(table) for table in data.get("tables") or ()]
        cells = [claim for table in tables for claim in table.claims()]
        return {**data, "tables": tables, "claims": [*(data.get("claims") or ()), *cells]}

    @model_validator(mode="after")
    def _known(self) -> Self:
        seen: set[str] = set()
        if unknown := self.sizes.keys() - self.matrices.keys():
            raise ValueError(f"sizes: expected names of matrices, found {', '.join(sorted(unknown))}")
        for claim in self.claims:
            if claim.id in seen:
                raise ValueError(f"expected every id once, found {claim.id!r} twice")
            seen.add(claim.id)
            unknown = set(claim.conditions.matrices) - self.matrices.keys()
            of_matrices = claim.measure.statistic not in (None, *_WITHOUT_MATRICES)
            if of_matrices and (unknown or not claim.conditions.matrices):
                raise ValueError(
                    f"{claim.id}: expected conditions.matrices out of {', '.join(self.matrices)} for a claim that is "
                    f"measured, found {', '.join(sorted(unknown)) or 'none'}"
                )
        return self


@cache
def load_published(paper: str) -> Published:
    """Read the claims of one paper, once a process.

    Raises
    ------
    RecordError
        There is no file for the paper, or a key of the file is wrong; the message names the key.
    """
    if paper not in PAPERS:
        raise RecordError(f"expected a paper out of {', '.join(PAPERS)}, found {paper!r}")
    file = _FOLDER.joinpath(f"{paper}.yaml")
    return parse(file.read_text(encoding="utf-8"), f"report/claims/{paper}.yaml")


def parse(text: str, name: str) -> Published:
    """Check the text of a claims file.

    Parameters
    ----------
    text : str
        YAML.
    name : str
        What errors call the file.

    Raises
    ------
    RecordError
        The text is not YAML, or does not fit `Published`.
    """
    data = parse_yaml(text, name, RecordError)
    with reading(name, "the claims of a paper", RecordError, remedy="correct the file"):
        try:
            return Published.model_validate(data)
        except ValidationError as error:
            lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise RecordError(f"{name}: {lines}; correct the file") from error


def _merged(base: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a mapping into another, key by key below ``conditions`` and ``measure``; ``none`` replaces a measure."""
    merged = dict(base) | dict(added)
    for key in ("conditions", "measure"):
        if key in base and key in added:
            merged[key] = dict(base[key]) | dict(added[key])
    measure = merged.get("measure") or {}
    if "none" in measure:
        merged["measure"] = {
            key: item for key, item in measure.items() if key == "none" or key not in Measure.model_fields
        }
    return merged


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
