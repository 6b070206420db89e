"""Training: it learns, a seed decides its bits, it goes on where it was killed; fine-tuning spares the featuriser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, TILE_OWN, TILES, samples_of

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.dash import weights
from spmark.impls.dash.encoders import EncoderKind, augmented, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.predictor import PredictorKind
from spmark.impls.dash.study import training
from spmark.impls.dash.study.embeddings import Embeddings
from spmark.impls.dash.study.samples import SampleSet
from spmark.impls.dash.study.training import OutOfTime, Session, TrainingSettings, fine_tune, pretrain, retargeted
from spmark.impls.dash.waco import Transfer, waco_encoder, waco_spec

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
    return pretrain(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2))[0]


def same(one, other) -> bool:
    mine, others = one.tensors(), other.tensors()
    return mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)


def test_the_order_of_times_is_learnt_and_carried_over(encoders):
    model, curve = pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=60, rate=1e-3))
    assert curve[-1].prl < 0.5 * curve[0].prl
    assert curve[-1].tau > 0.8
    assert curve[-1].held_opa is None
    tuned, curve = fine_tune(
        model, encoders["tiles"], TARGET, TrainingSettings(epochs=40, rate=1e-3), Session(held_out=HELD)
    )
    assert curve[-1].opa > 0.9
    assert curve[-1].held_tau > 0.5
    assert tuned.card.scores["held_tau"] == curve[-1].held_tau


def test_a_seed_decides_every_bit(encoders, source):
    again, curve = pretrain(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2))
    assert same(again, source)
    other, _ = pretrain(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2, seed=1))
    assert not same(other, source)
    assert len(curve) == 2


def test_held_out_samples_change_no_weight(encoders, source):
    watched, _ = pretrain(
        SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=2), Session(held_out=samples_of(CPU, [30]))
    )
    assert same(watched, source)


@pytest.mark.parametrize("spec", [SPEC, BLIND], ids=["dash", "blind"])
def test_a_killed_training_goes_on_to_the_same_bits(encoders, spec, tmp_path):
    path = tmp_path / "training.safetensors"
    told: list[str] = []
    straight, straight_curve = pretrain(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=4))
    session = Session(checkpoint=path, tell=told.append)
    pretrain(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=2), session)
    model, curve = pretrain(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=4), session)
    assert same(model, straight)
    assert [epoch.known() for epoch in curve] == [epoch.known() for epoch in straight_curve]
    assert all(epoch.seconds > 0 for epoch in curve)
    assert [line.split(":")[0] for line in told[2:]] == ["epoch 3 of 4", "epoch 4 of 4"]


def test_no_epoch_begins_when_the_time_is_up(encoders, tmp_path):
    open_end, over = Session(checkpoint=tmp_path / "one"), Session(checkpoint=tmp_path / "one", ends=0.0)
    straight, _ = pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=3))
    pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1), open_end)
    with pytest.raises(OutOfTime):
        pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=3), over)
    model, _ = pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=3), open_end)
    assert same(model, straight)


@pytest.mark.parametrize("change", ["seed", "samples", "held out"])
def test_a_checkpoint_of_another_training_is_refused(encoders, change, tmp_path):
    path = tmp_path / "training.safetensors"
    pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1), Session(checkpoint=path))
    settings = TrainingSettings(epochs=2, seed=int(change == "seed"))
    samples = samples_of(CPU, range(5)) if change == "samples" else SOURCE
    held = samples_of(CPU, [30]) if change == "held out" else None
    with pytest.raises(BuildError, match=r"expected the checkpoint of this training, .* found that of another"):
        pretrain(BLIND, encoders["cpu"], samples, settings, Session(checkpoint=path, held_out=held))


def test_a_damaged_checkpoint_is_refused(encoders, tmp_path):
    path = tmp_path / "training.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(BuildError, match="expected a safetensors file"):
        pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1), Session(checkpoint=path))


def test_fine_tuning_leaves_the_featuriser_and_the_source_s_model_as_they_are(encoders, source):
    before = {name: array.copy() for name, array in source.tensors().items()}
    tuned, _ = fine_tune(source, encoders["tiles"], TARGET, TrainingSettings(epochs=2))
    after = tuned.tensors()
    for name, array in source.tensors().items():
        assert np.array_equal(array, before[name])
        if name.startswith("network."):
            assert np.array_equal(after[name], array) == name.startswith("network.featuriser."), name
    assert tuned.card.subject == TILES
    assert [card.platform for card in tuned.card.trained_on] == ["cpu", "tiles"]
    assert {"torch", "safetensors", "numpy"} == tuned.card.made_with.keys()


def test_batches_of_a_matrix_are_steps(encoders, source):
    settings = TrainingSettings(epochs=3, batch=8)
    tuned, curve = fine_tune(source, encoders["tiles"], TARGET, settings)
    again, _ = fine_tune(source, encoders["tiles"], TARGET, settings)
    whole, whole_curve = fine_tune(source, encoders["tiles"], TARGET, TrainingSettings(epochs=3))
    assert same(tuned, again)
    assert not same(tuned, whole)
    # Several steps a matrix learn faster than one, from the same samples.
    assert curve[-1].prl < whole_curve[-1].prl


def test_every_config_is_in_one_batch(encoders, source, monkeypatch):
    seen, step = [], training._step

    def watched(network, optimizer, batch, margin):
        assert (batch.seconds[batch.pairs.slower] > batch.seconds[batch.pairs.faster]).all()
        seen.append(batch.seconds)
        return step(network, optimizer, batch, margin)

    monkeypatch.setattr(training, "_step", watched)
    fine_tune(source, encoders["tiles"], TARGET, TrainingSettings(epochs=1, batch=7))
    assert max(map(len, seen)) == 7
    expected = np.concatenate([one.seconds for one in TARGET.matrices])
    assert np.array_equal(np.sort(np.concatenate(seen)), np.sort(expected))


def test_zero_shot_is_the_source_s_network_with_the_target_s_encoder(encoders, source):
    found = retargeted(source, encoders["tiles"], TARGET)
    assert found.card.subject == TILES
    assert found.network is source.network
    assert found.encoder is encoders["tiles"]


def test_a_trained_model_comes_back_from_its_file(source, tmp_path):
    source.save(tmp_path / "cpu.safetensors")
    assert same(weights.load(tmp_path / "cpu.safetensors", CPU), source)


@pytest.mark.parametrize("predictor", PredictorKind)
def test_every_predictor_trains(encoders, predictor):
    spec = BLIND.model_copy(update={"predictor": predictor})
    _, curve = pretrain(spec, encoders["cpu"], SOURCE, TrainingSettings(epochs=15, rate=1e-3))
    assert curve[-1].prl < curve[0].prl


@pytest.mark.parametrize("transfer", Transfer)
def test_waco_transfers_in_every_way(transfer):
    spec, slots = waco_spec(transfer, {"cpu": CPU_OWN.size, "tiles": TILE_OWN.size})
    source, _ = pretrain(
        spec, waco_encoder(transfer, "cpu", slots), SOURCE.for_waco(transfer), TrainingSettings(epochs=1)
    )
    settings = TrainingSettings(epochs=100, rate=1e-3)
    tuned, curve = fine_tune(source, waco_encoder(transfer, "tiles", slots), TARGET.for_waco(transfer), settings)
    assert curve[-1].tau > 0.8
    assert tuned.card.subject == TILES


def test_samples_without_a_pair_are_refused(encoders):
    with pytest.raises(DatasetError, match=r"differ by more than 10000\.0%, found none among 4 matrices"):
        pretrain(BLIND, encoders["cpu"], SOURCE, TrainingSettings(epochs=1, noise=100))
    with pytest.raises(DatasetError, match="found none among 0 matrices"):
        pretrain(BLIND, encoders["cpu"], SampleSet(CPU, ()), TrainingSettings(epochs=1))
    with pytest.raises(ValueError, match="expected an encoder of 64 numbers, found 12"):
        pretrain(
            BLIND, augmented("cpu", {"cpu": CPU_OWN.size, "x": 12 - CPU_OWN.size}), SOURCE, TrainingSettings(epochs=1)
        )
    with pytest.raises(DatasetError, match="expected sites within the limits"):
        pretrain(BLIND.model_copy(update={"max_sites": 9}), encoders["cpu"], SOURCE, TrainingSettings(epochs=1))
    with pytest.raises(DatasetError, match="expected vectors of 53 and"):
        pretrain(BLIND, encoders["tiles"], SOURCE, TrainingSettings(epochs=1))


def test_the_order_of_samples_changes_the_loss_by_no_more_than_rounding(encoders):
    order = np.random.default_rng(0).permutation(12)
    turned = tuple(
        replace(one, common=one.common[order], own=one.own[order], seconds=one.seconds[order])
        for one in SOURCE.matrices
    )
    _, curve = pretrain(SPEC, encoders["cpu"], SOURCE, TrainingSettings(epochs=1))
    _, other = pretrain(SPEC, encoders["cpu"], SampleSet(CPU, turned), TrainingSettings(epochs=1))
    assert other[0].prl == pytest.approx(curve[0].prl, rel=1e-5)
    assert other[0].opa == pytest.approx(curve[0].opa)


def test_a_given_featuriser_is_taken_over_and_stays(encoders, source):
    other = TrainingSettings(epochs=2, seed=9)
    found, _ = pretrain(SPEC, encoders["cpu"], SOURCE, other, Session(featuriser_of=source))
    assert found.card.trained_on == (SOURCE.card, SOURCE.card), "the featuriser's samples are named, too"
    before, after = source.tensors(), found.tensors()
    for name, array in after.items():
        if name.startswith("network."):
            assert np.array_equal(before[name], array) == name.startswith("network.featuriser."), name
    with pytest.raises(ValueError, match="expected a featuriser of kind, sites and side"):
        pretrain(BLIND, encoders["cpu"], SOURCE, other, Session(featuriser_of=source))


def test_embeddings_are_made_once_for_all_trainings_with_one_featuriser(encoders, source, monkeypatch):
    shared, embed, asked = Embeddings(), Network.embed, []
    monkeypatch.setattr(Network, "embed", lambda self, pattern: asked.append(pattern) or embed(self, pattern))
    alone, _ = fine_tune(source, encoders["tiles"], TARGET, TrainingSettings(epochs=1), Session(held_out=HELD))
    assert len(asked) == 6
    for _ in range(2):
        session = Session(held_out=HELD, embeddings=shared)
        tuned, curve = fine_tune(source, encoders["tiles"], TARGET, TrainingSettings(epochs=1), session)
        assert same(tuned, alone)
        assert curve[0].seconds > sum(shared.by(tuned.network)(one).seconds for one in TARGET.matrices)
    assert len(asked) == 12
    other = Network(SPEC, seed=5)
    shared.by(other)(TARGET.matrices[0])
    assert len(asked) == 13, "another featuriser sees the matrix anew"
