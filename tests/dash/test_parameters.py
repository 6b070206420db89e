"""Own parameters as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.tuning.space import Axis

OWN = OwnParameters(
    (
        Axis.of("chunk", (1, 4, 64)),
        Axis.of("format", ("compressed", "dense", "blocks")),
        Axis.of("bypass", (False, True)),
        Axis("binding", ({"lanes": 8, "vector": 4}, {"lanes": 32, "vector": 1})),
    )
)


def test_numbers_are_scaled_logarithms_and_all_else_is_one_hot():
    configs = [
        {"chunk": 4, "format": "blocks", "bypass": False, "lanes": 32, "vector": 1, "other": "ignored"},
        {"chunk": 64, "format": "compressed", "bypass": True, "lanes": 8, "vector": 4},
    ]
    expected = [[1 / 3, 0, 0, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 1, 1, 0]]
    np.testing.assert_allclose(OWN.vectors(configs), expected, rtol=1e-6)
    assert OWN.size == 8


@pytest.mark.parametrize("config", [{"chunk": 5}, {}])
def test_a_value_that_the_axis_lacks_is_refused(config):
    full = {"chunk": 1, "format": "dense", "bypass": True, "lanes": 8, "vector": 4}
    full.pop("chunk")
    with pytest.raises(ValueError, match=r"expected chunk, \('chunk',\), out of \(1,\), \(4,\), \(64,\), found"):
        OWN.vectors([full | config])


def test_the_digest_depends_on_the_order_of_values():
    turned = OwnParameters((Axis.of("chunk", (4, 1, 64)), *OWN.axes[1:]))
    assert turned.digest != OWN.digest
    assert OwnParameters(OWN.axes).digest == OWN.digest
