"""The cost model's constants of a GPU, in the tables of its spec: costs of block tiles, and lines for other tiles.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2. A calibration belongs to one GPU, operator and dtype. It
is kept in `spmark.impls.core.devicespec.DeviceSpec.tables` under these names:

``stile_<op>_<dtype>_blocks``
    Rows of five: rows of the tile, columns of the tile, width of the part of J, milliseconds without atomic additions,
    milliseconds with them.
``stile_<op>_<dtype>_roofline``
    a, b, c, d, the peak in flops for each byte, and the least bytes of a read of a row (a sector where it is left out),
    for ELL tiles (SpMM) or one-dimensional tiles (SDDMM).
``stile_<op>_<dtype>_net``, ``stile_<op>_<dtype>_net_atomic``
    Networks for the same tiles without and (SpMM) with atomic additions, see `spmark.impls.stile.net`; these tables
    may be absent.

A cost is the time that one tile keeps one multiprocessor busy while all multiprocessors are busy: the time of many
tiles, times the number of multiprocessors, over the number of tiles.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat, PositiveInt, TypeAdapter
from pydantic_core import ArgsKwargs

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.files import constants_file, path_component
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.untrusted import reading
from spmark.impls.stile.net import Net

PUBLISHED = "nvidia-a100-sxm4-80gb"
"""The GPU whose constants the authors' code holds."""
SECTOR = 32
"""Bytes of a sector, in which memory is read and table 3's R is counted."""
_UNTRAINED = (
    "the network was not trained for this device; calibrate it with scikit-learn installed, or take cost_model: line"
)
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class BlockCost:
    """The cost of a block tile of one shape."""

    rows: PositiveInt
    cols: PositiveInt
    part: PositiveInt
    """Columns of the dense operand (SpMM), or width of the slice of J that is summed (SDDMM)."""
    plain_ms: Positive
    atomic_ms: Positive


@dataclass(frozen=True)
class Line:
    """The cost of an ELL or one-dimensional tile: ``a R + b``, times ``c R_atomic / R + d`` where it adds atomically.

    R is the roofline's bytes: the bytes moved, or the bytes that could be moved during the arithmetic where these are
    more.
    """

    a: Positive
    """Milliseconds for each byte."""
    b: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Milliseconds."""
    c: FiniteFloat
    d: FiniteFloat
    peak: Positive
    """Flops for each byte: peak rate over peak bandwidth."""
    read_bytes: Positive = SECTOR
    """Least bytes that count for a row of B that an ELL tile reads: a sector as published, or a cache line."""


_LINE, _BLOCK = TypeAdapter(Line), TypeAdapter(BlockCost)


@dataclass(frozen=True)
class Calibration:
    """The cost model's constants for one GPU, operator and dtype."""

    device: str
    """Name of the GPU that was measured; plans and reports are labelled with it."""
    num_sms: int
    op: Op
    dtype: DType
    blocks: tuple[BlockCost, ...]
    """Costs of block tiles; empty where these were not measured and are not candidates."""
    line: Line
    nets: tuple[Net, ...] = ()
    """Networks that predict instead of the line: without atomic additions, and for SpMM with them; may be empty."""

    @classmethod
    def of(cls, spec: DeviceSpec, op: Op, dtype: DType, net: bool = False) -> Calibration:
        """Read a calibration out of a device's tables.

        Parameters
        ----------
        spec : DeviceSpec
        op : Op
        dtype : DType
        net : bool
            Predict by the networks.

        Raises
        ------
        DeviceError
            The device has no calibration for the operator and dtype or lacks a network that is asked for, or a table
            has a wrong length, sign or order.
        """
        dtype = dtype.measured_as
        name = f"stile_{op}_{dtype}"
        line = _table(spec, f"{name}_roofline", "calibrate this device, or search for one that is calibrated")
        told = "a > 0, b >= 0, c, d, peak > 0 and, where it is there, bytes of a read > 0"
        with reading(f"{spec.name}: {name}_roofline", told, DeviceError):
            roofline = _LINE.validate_python(ArgsKwargs(tuple(line)))
        told = "rows of 5: rows, columns, part (whole numbers from 1), milliseconds without and with atomics, rising"
        with reading(f"{spec.name}: {name}_blocks", told, DeviceError):
            rows = np.reshape(spec.tables.get(f"{name}_blocks", []), (-1, 5)).tolist()
            blocks = tuple(_BLOCK.validate_python(ArgsKwargs(tuple(row))) for row in rows)
            if any(block.plain_ms > block.atomic_ms for block in blocks):
                raise ValueError("falling milliseconds")
        names = _net_names(op, dtype) if net else []
        nets = tuple(Net.from_table(_table(spec, key, _UNTRAINED), f"{spec.name}: {key}") for key in names)
        return cls(spec.name, spec.num_sms, op, dtype, blocks, roofline, nets)

    def tables(self) -> dict[str, list[float]]:
        """Give the tables that `of` reads."""
        name = f"stile_{self.op}_{self.dtype}"
        flat = [float(number) for block in self.blocks for number in astuple(block)]
        nets = {key: net.table() for key, net in zip(_net_names(self.op, self.dtype), self.nets, strict=False)}
        return {f"{name}_blocks": flat, f"{name}_roofline": [*map(float, astuple(self.line))], **nets}


def _net_names(op: Op, dtype: DType) -> list[str]:
    """List the tables of networks; SDDMM never adds atomically."""
    name = f"stile_{op}_{dtype}_net"
    return [name, f"{name}_atomic"] if op is Op.SPMM else [name]


def _table(spec: DeviceSpec, name: str, remedy: str) -> list[float]:
    if name not in spec.tables:
        present = ", ".join(key for key in sorted(spec.tables) if key.startswith("stile_")) or "none"
        raise DeviceError(f"{spec.name}: expected a table {name} of STile's cost model, found {present}: {remedy}")
    return spec.tables[name]


def published_a100() -> DeviceSpec:
    """Give the A100 (SXM4, 80 GB) that STile's authors measured, with the constants of their public code.

    Rates that the authors do not state are 0. float16 has block tables; for float32 the authors fitted only the lines
    of ELL and one-dimensional tiles.
    """
    return DeviceSpec.load(shipped(PUBLISHED))


def shipped(device: str) -> Path:
    """Give the path of the calibration that ships for a device of this name; it may not exist."""
    return Path(__file__).parent / "calibrations" / f"{path_component(device)}.json"


def calibration_for(device: str, op: Op, dtype: DType, wanted: str = "", net: bool = False) -> tuple[Calibration, str]:
    """Choose a calibration.

    Parameters
    ----------
    device : str
        Name of the device that a plan is for.
    op : Op
    dtype : DType
    wanted : str
        Name of a calibrated device, or the path of a file that ``spmark study calibrate stile`` wrote. Empty for the
        device's own calibration: the one that ships, else this machine's (``spmark calibrate``), else the published
        A100's.
    net : bool
        Predict by the calibration's networks.

    Returns
    -------
    calibration : Calibration
    label : str
        The calibration in a plan's config: the calibrated GPU, with a remark where this is another GPU than ``device``.

    Raises
    ------
    DeviceError
        There is no such calibration, or it lacks the operator and dtype, or it lacks the networks that are asked for.
    """
    path = shipped(wanted or device)
    if wanted and not path.is_file():
        path = Path(wanted)
    elif not path.is_file():
        own = constants_file("stile", device)
        path = own if own.is_file() else shipped(PUBLISHED)
    calibration = Calibration.of(DeviceSpec.load(path), op, dtype, net)
    return calibration, calibration.device if calibration.device == device else f"{calibration.device}, not this GPU's"
