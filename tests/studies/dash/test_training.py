"""Training: it learns, a seed decides its bits, it goes on where it was killed; fine-tuning spares the featuriser."""

from __future__ import annotations

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, TILE_OWN, TILES, samples_of

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.dash.encoders import EncoderKind, augmented, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import NetworkSpec
from spmark.impls.dash.waco import Transfer, waco_encoder, waco_spec
from spmark.studies.dash.samples import SampleSet
from spmark.studies.dash.training import Session, TrainingSettings, train

pytestmark = pytest.mark.full

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")

SPEC = NetworkSpec(encoder=EncoderKind.PCA)
BLIND = NetworkSpec(encoder=EncoderKind.PCA, featuriser=Featuriser.NONE)
SOURCE, TARGET = samples_of(CPU, range(4)), samples_of(TILES, range(10, 13))
HELD = samples_of(TILES, range(20, 23))


@pytest.fixture(scope="module")
def encoders():
    return {"cpu": fit(EncoderKind.PCA, CPU_OWN.every()), "tiles": fit(EncoderKind.PCA, TILE_OWN.every())}


@pytest.fixture(scope="module")
def source(encoders):
    return train(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2))[0]


def same(one, other) -> bool:
    mine, others = one.tensors(), other.tensors()
    return mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)


def test_the_order_of_times_is_learnt_and_carried_over(encoders):
    model, curve = train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=60, rate=1e-3))
    assert curve[-1].values["prl"] < 0.5 * curve[0].values["prl"]
    assert curve[-1].values["tau"] > 0.8
    assert "held_opa" not in curve[-1].values
    tuned, curve = train(
        model, encoders["tiles"], TARGET, TrainingSettings(epochs=40, rate=1e-3), Session(held_out=HELD)
    )
    assert curve[-1].values["opa"] > 0.9
    assert curve[-1].values["held_tau"] > 0.5
    assert tuned.card.scores["held_tau"] == curve[-1].values["held_tau"]


def test_a_seed_decides_every_bit(encoders, source):
    again, curve = train(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2))
    assert same(again, source)
    other, _ = train(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2, seed=1))
    assert not same(other, source)
    assert len(curve) == 2


@pytest.mark.parametrize("spec", [SPEC, BLIND], ids=["dash", "blind"])
def test_a_killed_training_goes_on_to_the_same_bits(encoders, spec, tmp_path):
    path = tmp_path / "training.checkpoint"
    told: list[str] = []
    straight, straight_curve = train(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=4))
    session = Session(checkpoint=path, tell=told.append)
    train(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=2), session)
    model, curve = train(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=4), session)
    assert same(model, straight)
    assert [epoch.values for epoch in curve] == [epoch.values for epoch in straight_curve]
    assert all(epoch.seconds > 0 for epoch in curve)
    assert [line.split(":")[0] for line in told[2:]] == ["epoch 3 of 4", "epoch 4 of 4"]


def test_a_checkpoint_of_a_gpu_goes_on_on_a_processor(encoders, tmp_path):
    path = tmp_path / "training.checkpoint"
    straight, _ = train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=2))
    train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1), Session(checkpoint=path))
    state = torch.load(path, weights_only=True)
    for group in state["optimizer"]["param_groups"]:
        group |= {"capturable": True, "fused": True}
    torch.save(state, path)
    model, _ = train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=2), Session(checkpoint=path))
    assert same(model, straight)


@pytest.mark.parametrize("change", ["seed", "samples", "held out"])
def test_a_checkpoint_of_another_training_is_refused(encoders, change, tmp_path):
    path = tmp_path / "training.checkpoint"
    train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1), Session(checkpoint=path))
    settings = TrainingSettings(epochs=2, seed=int(change == "seed"))
    samples = samples_of(CPU, range(5)) if change == "samples" else SOURCE
    held = samples_of(CPU, [30]) if change == "held out" else None
    with pytest.raises(BuildError, match=r"expected the checkpoint of this training, .* found that of another"):
        train(BLIND, encoders["cpu"], samples, settings, Session(checkpoint=path, held_out=held))


def test_fine_tuning_leaves_the_featuriser_and_the_source_s_model_as_they_are(encoders, source):
    before = {name: array.copy() for name, array in source.tensors().items()}
    tuned, _ = train(source, encoders["tiles"], TARGET, TrainingSettings(epochs=2))
    after = tuned.tensors()
    for name, array in source.tensors().items():
        assert np.array_equal(array, before[name])
        if name.startswith("network."):
            assert np.array_equal(after[name], array) == name.startswith("network.featuriser."), name
    assert tuned.card.subject == TILES
    assert [card.platform for card in tuned.card.trained_on] == ["cpu", "tiles"]
    assert {"torch", "safetensors", "numpy"} == tuned.card.made_with.keys()


def test_fine_tuning_may_change_the_featuriser_too(encoders, source):
    before = {name: array.copy() for name, array in source.tensors().items()}
    tuned, _ = train(source, encoders["tiles"], TARGET, TrainingSettings(epochs=1, frozen=False))
    names = [name for name in before if name.startswith("network.featuriser.")]
    assert not any(np.array_equal(tuned.tensors()[name], before[name]) for name in names)
    assert all(np.array_equal(source.tensors()[name], before[name]) for name in names)


@pytest.mark.parametrize("transfer", Transfer)
def test_waco_transfers_in_every_way(transfer):
    spec, slots = waco_spec(transfer, {"cpu": CPU_OWN.size, "tiles": TILE_OWN.size})
    source, _ = train(spec, waco_encoder(transfer, "cpu", slots), SOURCE.for_waco(transfer), TrainingSettings(epochs=1))
    settings = TrainingSettings(epochs=100, rate=1e-3)
    tuned, curve = train(source, waco_encoder(transfer, "tiles", slots), TARGET.for_waco(transfer), settings)
    assert curve[-1].values["tau"] > 0.8
    assert tuned.card.subject == TILES


def test_samples_without_a_pair_are_refused(encoders):
    with pytest.raises(DatasetError, match=r"differ by more than 10000\.0%, found none among 4 matrices"):
        train(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1, noise=100))
    with pytest.raises(DatasetError, match="found none among 0 matrices"):
        train(BLIND, encoders["cpu"], SampleSet(CPU, ()), TrainingSettings(epochs=1))
    with pytest.raises(ValueError, match="expected an encoder of 64 numbers, found 12"):
        train(
            BLIND, augmented("cpu", {"cpu": CPU_OWN.size, "x": 12 - CPU_OWN.size}), SOURCE, TrainingSettings(epochs=1)
        )
