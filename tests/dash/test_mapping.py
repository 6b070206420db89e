"""phi and pi by hand: which loops and splits of each platform become which of the 53 numbers."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.mapping import COMMON_SIZE, CPU_LOOPS, CUDA_LOOPS, in_common, vectors
from spmark.impls.tuning.platform import CommonLoops


def test_a_cpu_s_config_gains_k3_inside_of_k2():
    loops = CommonLoops((16, 1, 8), ("k1", "i1", "j1", "k2", "j2", "i2"))
    assert in_common(loops) == ("k1", "i1", "j1", "k2", "k3", "j2", "i2")


def test_a_gpu_s_config_gains_a_loop_inside_of_j():
    loops = CommonLoops((4, 8, 32), ("i1", "k1", "i2", "k2", "j", "k3"), 2)
    assert in_common(loops) == ("i1", "k1", "i2", "k2", "j1", "j2", "k3")
    np.testing.assert_array_equal(vectors([loops])[0, 49:], [2, 3, 5, 1])


def test_the_vector_is_the_permutation_and_the_logarithms():
    found = vectors([CommonLoops((16, 1, 8), CPU_LOOPS)])
    expected = np.zeros(COMMON_SIZE, np.float32)
    # i1, i2, j1, j2, k1, k2 and k3 stand in their own places, since k3 follows k2.
    expected[[0, 8, 16, 24, 32, 40, 48]] = 1
    expected[49:] = 4, 0, 3, 0
    np.testing.assert_array_equal(found, [expected])
    assert (found.dtype, found.shape) == (np.float32, (1, 53))
    assert vectors([]).shape == (0, 53)


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        (CommonLoops((1, 1, 1), CPU_LOOPS[:-1]), "expected an order of the loops i1, i2, j1, j2, k1, k2, found i1, i2"),
        (CommonLoops((1, 1, 1), CUDA_LOOPS[1:]), "expected an order of the loops i1, i2, j, k1, k2, k3, found i2, j"),
        (CommonLoops((1, 1, 1), ()), "found none"),
        (CommonLoops((0, 4, 2), CPU_LOOPS), r"expected 4 splits of at least 1, found \(0, 4, 2, 1\)"),
    ],
)
def test_what_is_no_config_is_refused(loops, message):
    with pytest.raises(ValueError, match=message):
        vectors([loops])
