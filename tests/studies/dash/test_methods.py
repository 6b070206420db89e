"""The models that ``spmark study train`` makes by name, and a featuriser that is taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected_fakes import load as load_matrix
from collected_fakes import row_of, write_rows

from spmark.impls.core.errors import DatasetError, SweepError
from spmark.impls.core.problem import Op
from spmark.impls.dash.weights import ModelCard
from spmark.studies.contracts import TransferJob
from spmark.studies.dash.commands import TransferTraining

pytestmark = pytest.mark.full

pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")


def trained(folder: Path, **changes: Any) -> ModelCard:
    """Train for one epoch on two matrices of each platform."""
    files = {}
    for kind, platform, seeds in (("source", "cpu", (0, 1)), ("target", "spade_sim", (10, 11))):
        files[kind] = [folder / f"{kind}.jsonl"]
        if not files[kind][0].exists():
            write_rows(files[kind][0], [row_of(platform, seed) for seed in seeds])
    counts = {"source_matrices": 2, "target_matrices": 2, "seed": 0, "epochs": 1}
    rest = {"held_out": (), "op": Op.SPMM, "load": load_matrix, "out": folder / "model", "command": "train"}
    job = TransferJob(**{**files, **counts, **rest, "tell": lambda _: None, **changes})
    return ModelCard.model_validate(TransferTraining().train(job).answer["card"])


@pytest.mark.parametrize("model", ["waco_fa", "encoder_fa", "zero_shot", "scratch"])
def test_a_model_is_trained_by_name(tmp_path: Path, model: str) -> None:
    card = trained(tmp_path, model=model)
    assert card.subject.platform == "spade_sim"
    seen = {"zero_shot": ["cpu"], "scratch": ["spade_sim"]}
    assert [one.platform for one in card.trained_on] == seen.get(model, ["cpu", "spade_sim"])
    assert card.spec.encoder == {"waco_fa": "augmented", "encoder_fa": "augmented"}.get(model, "autoencoder")


def featuriser_of(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return {name: one for name, one in load_file(path).items() if name.startswith("network.featuriser.")}


def test_a_featuriser_of_the_same_matrices_is_taken_over_and_frozen(tmp_path: Path) -> None:
    given = tmp_path / "given"
    trained(tmp_path, target=(), out=given)
    card = trained(tmp_path, featuriser=given, model="encoder_pca")
    assert [one.platform for one in card.trained_on] == ["cpu", "cpu", "spade_sim"]
    before, after = featuriser_of(given), featuriser_of(tmp_path / "model")
    assert before.keys() == after.keys()
    assert all(np.array_equal(one, after[name]) for name, one in before.items())


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"expected a model out of dash, .*found 'lightgbm'"):
        trained(tmp_path, model="lightgbm")
    for model in ("zero_shot", "scratch"):
        with pytest.raises(DatasetError, match=f"{model}: expected samples of a target platform, found none"):
            trained(tmp_path, model=model, target=())
