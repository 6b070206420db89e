"""phi and pi by hand: which loops and splits of each platform become which of the 53 numbers."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.dash.mapping import (
    COMMON_SIZE,
    CPU_LOOPS,
    CUDA_LOOPS,
    of_cpu,
    of_cuda,
    of_loops,
    vectors,
)
from spmark.impls.tuning.platform import CommonLoops


def test_a_cpu_s_config_gains_k3_inside_of_k2():
    found = of_cpu((16, 1, 8), ("k1", "i1", "j1", "k2", "j2", "i2"))
    assert found.order == ("k1", "i1", "j1", "k2", "k3", "j2", "i2")
    assert found.splits == (16, 1, 8, 1)


def test_a_gpu_s_config_gains_a_loop_inside_of_j():
    found = of_cuda((4, 8, 32, 2), ("i1", "k1", "i2", "k2", "j", "k3"))
    assert found.order == ("i1", "k1", "i2", "k2", "j1", "j2", "k3")
    assert found.splits == (4, 8, 32, 2)


def test_the_loops_tell_which_platform_they_are_of():
    cpu, cuda = ("k2", "j2", "i2", "i1", "j1", "k1"), ("k1", "j", "i1", "i2", "k2", "k3")
    assert of_loops(CommonLoops((4, 1024, 32), cpu)) == of_cpu((4, 1024, 32), cpu)
    assert of_loops(CommonLoops((4, 1024, 32), cpu)).order == ("k2", "k3", "j2", "i2", "i1", "j1", "k1")
    assert of_loops(CommonLoops((4, 2, 32), cuda, 8)) == of_cuda((4, 2, 32, 8), cuda)


def test_the_vector_is_the_permutation_and_the_logarithms():
    found = vectors([of_cpu((16, 1, 8), CPU_LOOPS)])
    expected = np.zeros(COMMON_SIZE, np.float32)
    # i1, i2, j1, j2, k1, k2 and k3 stand in their own places, since k3 follows k2.
    expected[[0, 8, 16, 24, 32, 40, 48]] = 1
    expected[49:] = 4, 0, 3, 0
    np.testing.assert_array_equal(found, [expected])
    assert (found.dtype, found.shape) == (np.float32, (1, 53))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: of_cpu((1, 1, 1), CUDA_LOOPS),
            "expected an order of the loops i1, i2, j1, j2, k1, k2, found i1, i2, j",
        ),
        (
            lambda: of_cuda((1, 1, 1, 1), CPU_LOOPS),
            "expected an order of the loops i1, i2, j, k1, k2, k3, found i1, i2, j1",
        ),
        (lambda: of_cpu((1, 1, 1), ()), "found none"),
        (lambda: of_cpu((0, 4, 2), CPU_LOOPS), r"expected 4 splits of at least 1, found \(0, 4, 2, 1\)"),
    ],
)
def test_what_is_no_config_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
