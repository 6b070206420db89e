"""What ``methods.yaml`` says of studies of moved cost models: names of methods, baselines, and what figures show."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from spmark.impls.core.errors import RecordError
from spmark.impls.core.plainyaml import parse_yaml
from spmark.impls.core.problem import Op
from spmark.impls.core.untrusted import Frozen, reading

Choice = Literal["top1", "top5"]
"""How many configs are measured to choose one: the method's first, or its first five."""
SAID: dict[Choice, str] = {"top1": "first choice", "top5": "best of five"}


class NamedMethod(Frozen):
    """How pages show a method."""

    title: str
    """What figures call the method."""
    colour: str = "#000000"
    """Of a line or of points."""
    marker: str = "o"


class EqualEffort(Frozen):
    """What stands beside the subject with the same samples and as many measured configs."""

    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]
    """What is compared with the subject; figures of one choice show the first."""
    target: str = ""
    """The only platform that has the baseline; empty for all."""
    op: Op | None = None
    """Likewise of operators."""


class MovedFigure(Frozen):
    """What a figure shows."""

    name: str
    kind: Literal["methods", "matrices", "training", "sizes"]
    methods: tuple[str, ...]
    """Baselines stand beside them."""
    held: tuple[str, ...] = ()
    """Methods that are a level line over sizes."""
    axis: Literal["source_matrices", "target_matrices"] = "target_matrices"
    """Of a figure over sizes."""
    shows: str


class SampleCosts(Frozen):
    """What a sample of a platform costs by the paper's assumption."""

    source: float
    target: float


class Methods(Frozen):
    """The whole file."""

    subject: str
    """The method that studies are about."""
    methods: dict[str, NamedMethod]
    baselines: dict[str, EqualEffort]
    figures: tuple[MovedFigure, ...]
    table: str
    """Name of the table of sizes."""
    costs: SampleCosts

    @model_validator(mode="after")
    def _known(self) -> Self:
        named = {self.subject, *self.baselines, *(m for one in self.figures for m in (*one.methods, *one.held))}
        if unknown := named - self.methods.keys():
            raise ValueError(f"expected methods out of {', '.join(self.methods)}, found {', '.join(sorted(unknown))}")
        return self

    def beside(self, target: str, op: str) -> dict[str, EqualEffort]:
        """Give the baselines that a comparison on a platform needs."""
        return {
            name: one for name, one in self.baselines.items() if one.target in ("", target) and one.op in (None, op)
        }

    def title(self, method: str) -> str:
        """Give what pages call a method; a method that the file does not know has its own name."""
        return self.methods[method].title if method in self.methods else method

    def place(self, method: str) -> int:
        """Give a method's place among all; unknown ones come last."""
        names = list(self.methods)
        return names.index(method) if method in names else len(names)


@cache
def known_methods() -> Methods:
    """Read the file, once a process.

    Raises
    ------
    RecordError
        The file is broken; the message names the key.
    """
    name = "report/analysis/methods.yaml"
    text = files("spmark.report.analysis").joinpath("methods.yaml").read_text(encoding="utf-8")
    with reading(name, "methods of studies", RecordError, remedy="correct the file"):
        try:
            return Methods.model_validate(parse_yaml(text, name, RecordError))
        except ValidationError as error:
            raise RecordError(f"{name}: {error}") from error
