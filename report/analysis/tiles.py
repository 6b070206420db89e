"""How well a calibrated cost model predicts single tiles that it was not fitted to: what `spmark calibrate` printed.

``spmark study calibrate stile --json`` answers with the agreement of every operator and dtype. The answer, kept as
``reference/tiles/<device>.json``, serves the claims of section 5.6 and figure 14 of Fang, Shen, Wang and Chen, "STile",
SIGMOD 2024. No record of a sweep holds the time of a tile.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import path_component
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.untrusted import parse_model, reading


class TileAgreement(BaseModel):
    """One operator and dtype."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    operator: Op
    dtype: DType
    count: int = Field(alias="tiles held out", ge=2)
    """Tiles that were measured and not fitted to."""
    pearson: float = Field(alias="Pearson")
    rmse_us: float = Field(alias="RMSE, us")
    held_out: tuple[tuple[float, float], ...] = Field(alias="predicted and measured, us", default=())
    """Of each tile that was not fitted to; empty in older files."""

    def metric(self, name: str) -> float | None:
        """Give ``pearson``, ``rmse_ms``, ``count`` or ``bound``; None for any other name, or where it is not known.

        ``bound`` is the greatest distance of a predicted from a measured time, in per cent of the measured one.
        """
        errors = [100 * abs(predicted / measured - 1) for predicted, measured in self.held_out]
        known = {"pearson": self.pearson, "rmse_ms": self.rmse_us * 1e-3, "count": float(self.count)}
        return max(errors, default=None) if name == "bound" else known.get(name)


class _Answer(BaseModel):
    agreement: tuple[TileAgreement, ...]


def read_agreement(path: Path) -> tuple[TileAgreement, ...]:
    """Read what a calibration printed.

    Raises
    ------
    RecordError
        The file cannot be read, or is not the command's answer.
    """
    with reading(path, "the JSON that the calibration of a cost model prints", RecordError, remedy="write it anew"):
        return parse_model(_Answer, path.read_bytes()).agreement


@cache
def published_agreement(device: str) -> tuple[TileAgreement, ...]:
    """Give the shipped agreement of a device; empty where none ships.

    Raises
    ------
    RecordError
        The shipped file cannot be read.
    """
    path = Path(str(files("spmark.report"))) / "reference" / "tiles" / f"{path_component(device)}.json"
    return read_agreement(path) if path.is_file() else ()
