"""Files of models: they come back with the same bits; others' and damaged ones are refused; nothing is unpickled."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, TILES
from scripts_by_name import FOLDER, load_script

from spmark.impls.core.errors import BuildError
from spmark.impls.dash import tensorfile, weights
from spmark.impls.dash.encoders import EncoderKind, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.weights import ModelCard, SampleCard, TrainedModel

pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    spec = NetworkSpec(featuriser=Featuriser.NONE, encoder=EncoderKind.PCA)
    card = ModelCard(
        subject=CPU,
        spec=spec,
        trained_on=(SampleCard(platform="cpu", matrices=3, samples=36, sha256="ab"),),
        seed=4,
        command="spmark study train dash",
        made_with={"torch": "1"},
        scores={"held_opa": 0.75},
    )
    return TrainedModel(card, Network(spec, 4), fit(EncoderKind.PCA, CPU_OWN.every()))


@pytest.fixture
def file(model, tmp_path) -> Path:
    model.save(tmp_path / "models" / "cpu.safetensors")
    return tmp_path / "models" / "cpu.safetensors"


def test_a_file_gives_the_model_back(model, file):
    found = weights.load(file, CPU)
    assert found.card.digest
    assert found.card == model.card.model_copy(update={"digest": found.card.digest})
    expected = model.tensors()
    assert found.tensors().keys() == expected.keys()
    for name, array in found.tensors().items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.fixture
def packed(model, tmp_path) -> list[Path]:
    """Two models of one featuriser; the first path is the featuriser's."""
    other = TrainedModel(model.card.model_copy(update={"subject": TILES}), Network(model.card.spec, 5), model.encoder)
    other.network.take_featuriser(model.network)
    return load_script("ship_models", FOLDER / "studies").pack([model, other], tmp_path / "packed")


def test_packed_models_share_a_featuriser_and_are_rounded_once(model, packed):
    names = ["featuriser-spmm.safetensors", "cpu-spmm.safetensors", "tiles-spmm.safetensors"]
    assert [path.name for path in packed] == names
    assert not any("featuriser" in name for path in packed[1:] for name in tensorfile.read(path)[0])
    found = weights.load(packed[1], CPU)
    for name, array in found.tensors().items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, model.tensors()[name].astype(np.float16).astype(np.float32))
    assert found.card.command == model.card.command
    assert weights.load(packed[2]).card.subject == TILES


def test_a_damaged_missing_or_far_featuriser_is_refused(packed):
    common, one = packed[:2]
    tensors, texts = tensorfile.read(one)
    far = texts["card"].replace(common.name, f"../packed/{common.name}")
    tensorfile.write(one, tensors, {"card": far})
    with pytest.raises(BuildError, match=r"expected the name of a file in its folder, found '\.\./packed"):
        weights.load(one)
    tensorfile.write(one, tensors, texts)
    content = common.read_bytes()
    common.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BuildError, match=r"expected the digest .* the file is damaged"):
        weights.load(one)
    common.unlink()
    with pytest.raises(BuildError, match="expected a safetensors file"):
        weights.load(one)


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (TILES, "expected a model whose platform is tiles, found cpu"),
        (CPU.model_copy(update={"op": "sddmm"}), "expected a model whose op is sddmm, found spmm"),
        (CPU.model_copy(update={"space_digest": "0123"}), f"space_digest is 0123, found {CPU.space_digest}"),
        (CPU.model_copy(update={"parameters_digest": "0123"}), "parameters_digest is 0123, found"),
    ],
)
def test_another_subject_is_refused(file, subject, message):
    with pytest.raises(BuildError, match=message):
        weights.load(file, subject)


def test_every_damaged_byte_of_the_weights_is_seen(file):
    content = bytearray(file.read_bytes())
    for place in (-1, -len(content) // 2, len(content) - 100):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(BuildError, match="the file is damaged"):
            weights.load(file, CPU)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 40, pickle.dumps({"weights": 1}), b"\xff" * 8 + b"{}"],
    ids=["empty", "0", "pickle", "long"],
)
def test_what_is_no_safetensors_file_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(BuildError, match="expected a safetensors file, found"):
        weights.load(file, CPU)


def test_a_card_is_needed_and_its_schema_counts(model, file):
    tensorfile.write(file, model.tensors(), {"other": "text"})
    with pytest.raises(BuildError, match="expected a model with a card, found other"):
        weights.load(file, CPU)
    card = model.card.model_dump_json().replace('"schema_version":1', '"schema_version":2', 1)
    tensorfile.write(file, model.tensors(), {"card": card})
    with pytest.raises(BuildError, match="the card of a model of schema 1"):
        weights.load(file, CPU)


def test_a_changed_card_is_seen(model, file):
    card = model.card.sealed(model.tensors()).model_copy(update={"seed": 5})
    tensorfile.write(file, model.tensors(), {"card": card.model_dump_json()})
    with pytest.raises(BuildError, match="the file is damaged"):
        weights.load(file, CPU)


def test_weights_that_do_not_fit_the_card_are_refused(model, file):
    tensors = model.tensors()
    tensors.pop("network.predictor.head.0.weight")
    tensorfile.write(file, tensors, {"card": model.card.sealed(tensors).model_dump_json()})
    with pytest.raises(BuildError, match="expected the weights that the card's parts have, found others"):
        weights.load(file, CPU)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("encoder.1.weights", lambda one: np.zeros((one.shape[1] + 1, 64), np.float32), "that chain, found"),
        ("encoder.0.offsets", lambda one: one[:1], "that chain, found"),
        ("encoder.0.weights", lambda one: one.ravel(), "that chain, found"),
        ("encoder.0.weights", lambda one: one * np.float32(np.nan), "NaN or infinity in encoder.0.weights"),
        ("network.predictor.head.0.bias", lambda one: np.full_like(one, np.inf), "NaN or infinity in network.pred"),
    ],
)
def test_weights_that_give_no_scores_are_refused(model, file, name, change, message):
    tensors = model.tensors()
    if name not in tensors:
        tensors["encoder.1.offsets"] = np.zeros(64, np.float32)
    tensors[name] = change(tensors.get(name, tensors["encoder.0.weights"]))
    tensorfile.write(file, tensors, {"card": model.card.sealed(tensors).model_dump_json()})
    with pytest.raises(BuildError, match=message):
        weights.load(file, CPU)
