"""The ways in which WACO's network meets other platforms."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.waco import Transfer, slot_numbers, waco_encoder, waco_spec


@pytest.mark.parametrize(("transfer", "slots"), [(Transfer.MAPPED, (3, 2)), (Transfer.AUGMENTED, (56, 55))])
def test_slots_hold_what_the_way_of_transfer_does_not_share(transfer, slots):
    spec, found = waco_spec(transfer, {"cpu": 3, "tiles": 2})
    assert found == {"cpu": slots[0], "tiles": slots[1]}
    assert spec.latent == sum(slots)
    assert spec.mapped == (transfer is Transfer.MAPPED)
    common, own = np.ones((4, 53), np.float32), np.full((4, 2), 2, np.float32)
    latent = waco_encoder(transfer, "tiles", found).encode(slot_numbers(transfer, common, own))
    assert latent.shape == (4, spec.latent)
    assert not latent[:, : slots[0]].any()
    np.testing.assert_array_equal(latent[:, -2:], own)
    assert (latent == 1).sum() == (0 if spec.mapped else 4 * 53)
