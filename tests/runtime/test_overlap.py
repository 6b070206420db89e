"""How arguments of launches that overlap are handed to the driver; the launch itself needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest


class Held:
    """Stands for an array on the device."""

    def __init__(self, pointer: int) -> None:
        self.data = SimpleNamespace(ptr=pointer)


def test_every_argument_begins_a_word_of_its_own() -> None:
    pytest.importorskip("cupy")
    from spmark.impls.runtime.overlap import argument_words

    scalars = [np.int32(7), np.int32(-7), np.uint64(1 << 40), np.bool_(True), np.float32(-0.1), np.float64(2.5)]
    words = argument_words([*scalars, Held(0x7F1234567890), Held(0)], Held)
    assert words.dtype == np.int64
    for word, scalar in zip(words, scalars, strict=False):
        assert word.tobytes()[: scalar.nbytes] == scalar.tobytes()
    assert words[-2:].tolist() == [0x7F1234567890, 0]
