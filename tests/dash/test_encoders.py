"""Latent encoders: what they keep, what they give for every platform, and that a seed decides their bits."""

from __future__ import annotations

import numpy as np
import pytest
from dash_fakes import CPU_OWN, TILE_OWN

from spmark.impls.dash.encoders import EncoderKind, augmented, encoder_from, fit

ROWS = TILE_OWN.every()
TRAINED = (EncoderKind.AUTOENCODER, EncoderKind.VAE)


@pytest.mark.parametrize("kind", TRAINED)
def test_a_trained_encoder_tells_what_it_saw_apart(kind):
    pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
    found = fit(kind, ROWS, seed=1)
    latent = found.encode(ROWS)
    assert (latent.shape, latent.dtype) == ((len(ROWS), 64), np.float32)
    apart = np.linalg.norm(latent[:, None] - latent[None], axis=2)[~np.eye(len(ROWS), dtype=bool)]
    assert apart.min() > 1e-3, "different parameters have different vectors"


@pytest.mark.parametrize("kind", TRAINED)
def test_a_seed_decides_the_bits_and_repeated_rows_change_nothing(kind):
    pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
    one, other, third = fit(kind, ROWS, 1), fit(kind, np.concatenate([ROWS[::-1], ROWS]), 1), fit(kind, ROWS, 2)
    for name, array in one.tensors().items():
        np.testing.assert_array_equal(array, other.tensors()[name])
    assert not np.array_equal(one.encode(ROWS), third.encode(ROWS))


def test_principal_components_keep_all_distances_of_few_numbers():
    found = fit(EncoderKind.PCA, ROWS)
    latent = found.encode(ROWS)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (ROWS, latent)]
    np.testing.assert_allclose(*distances, atol=1e-5)
    np.testing.assert_allclose(latent.mean(0), 0, atol=1e-6)


def test_augmentation_copies_into_the_platform_s_slots():
    slots = {"cpu": CPU_OWN.size, "tiles": TILE_OWN.size}
    found = augmented("tiles", slots).encode(ROWS)
    np.testing.assert_array_equal(found[:, : CPU_OWN.size], 0)
    np.testing.assert_array_equal(found[:, CPU_OWN.size :], ROWS)
    assert not augmented("cpu", slots).encode(CPU_OWN.every())[:, CPU_OWN.size :].any()


@pytest.mark.parametrize("kind", [EncoderKind.PCA, EncoderKind.NONE])
def test_weights_by_name_give_the_encoder_back(kind):
    found = fit(kind, ROWS)
    np.testing.assert_array_equal(encoder_from(found.tensors()).encode(ROWS), found.encode(ROWS))
