"""Readers of models that move between platforms, and of the samples that they are trained on and judged by."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dash_fakes import keep_model
from fuzz.harness import Target
from fuzz.targets_whole import printed

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.untrusted import parse_model, reading
from spmark.impls.dash import tensorfile, weights
from spmark.impls.table import find_platform
from spmark.studies.collected import CollectedRow, SampledConfig
from spmark.suite.study.replay_command import replay_records


def _model_file() -> bytes:
    """Save a model; PyTorch is loaded before the watch begins."""
    with tempfile.TemporaryDirectory() as folder:
        return keep_model("spade_sim", Op.SPMM, path=Path(folder) / "model").read_bytes()


def _parts() -> tuple[tensorfile.Tensors, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        tensors, texts = tensorfile.read(keep_model("spade_sim", Op.SPMM, path=Path(folder) / "model"))
    return tensors, texts["card"].encode()


def _model(data: bytes, folder: Path) -> object:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    tensors, texts = tensorfile.read(path)
    with reading(path, "a card", BuildError):
        subject = parse_model(weights.ModelCard, texts.get("card", "").encode()).subject
    assert tensors
    return weights.load(path, subject)


class _Sealed:
    """Reads a card whose digest is right, beside good weights: what the digest hides from the other target."""

    def __init__(self) -> None:
        self._tensors: tensorfile.Tensors = {}

    def seeds(self) -> list[bytes]:
        self._tensors, card = _parts()
        return [card]

    def read(self, data: bytes, folder: Path) -> object:
        path = folder / "model.safetensors"
        with reading(path, "a card", BuildError):
            card = parse_model(weights.ModelCard, data).sealed(self._tensors)
        tensorfile.write(path, self._tensors, {"card": card.model_dump_json()})
        return weights.load(path, card.subject)


def _samples() -> list[bytes]:
    """Give rows of two configs with samples and one without."""
    platform = find_platform("spade_sim")
    config = {"p_row": 8, "p_col": 1024, "d_split": 8, "barrier": False, "bypass": "none", "reorder": False}
    configs = [SampledConfig.of({**config, "p_row": rows}, (1.0 * rows,)) for rows in (8, 32)]
    row = CollectedRow(
        platform=platform.name,
        note=platform.note,
        op=Op.SPMM,
        matrix="patterns/logsparse_64",
        spec={"source": "patterns", "name": "logsparse_64"},
        width=8,
        dtype=DType.FLOAT32,
        space_digest=platform.digest(Op.SPMM),
        version="v",
        machine="simulated",
        wanted=2,
        pattern_sha256="0" * 64,
        configs=(*configs, SampledConfig.of(config, (), "no room")),
    )
    return [row.model_dump_json().encode() + b"\n"]


def _replayed(data: bytes, folder: Path) -> object:
    """Replay by the model that loads no matrix, and export."""
    (folder / "samples.jsonl").write_bytes(data)
    export = ("t4", folder / "t4.json")
    return printed(lambda: replay_records([folder / "samples.jsonl"], "random", 0, (), export, as_json=False))


_SEALED = _Sealed()
TARGETS = (
    Target("transfer_model", _model, lambda: [_model_file()]),
    Target("transfer_model_sealed", _SEALED.read, _SEALED.seeds),
    Target("collected", _replayed, _samples),
)
