"""Tensors as CuPy's arrays: the same memory, shape and strides, kept alive; on the host nothing of it is touched."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import OperandError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
from spmark.impls.runtime.adopt import adopt, view_of  # noqa: E402 (needs CuPy)


def layouts(device: str) -> dict[str, Any]:
    base = torch.arange(48.0, device=device).reshape(6, 8)
    return {
        "whole": base,
        "transposed": base.T,
        "moved": base.reshape(-1)[3:43].reshape(5, 8),
        "gaps": base[1:, ::2],
        "expanded": base[2].expand(4, 8),
        "column": base[:, 3],
        "empty": base[:0],
        "row": base[5:6, 1:],
    }


@pytest.mark.parametrize("name", layouts("cpu"))
def test_a_view_has_the_tensor_s_memory(name: str) -> None:
    tensor = layouts("cpu")[name]
    found = view_of(tensor, np.dtype(np.float32), 0)
    assert found.shape == tuple(tensor.shape)
    assert found.dtype == np.float32
    assert bool(found.flags.c_contiguous) == tensor.is_contiguous()
    assert found.data.device_id == 0
    if tensor.numel():
        assert found.data.ptr == tensor.data_ptr()
        longer = [at for at, length in enumerate(tensor.shape) if length > 1]
        assert [found.strides[at] for at in longer] == [4 * tensor.stride()[at] for at in longer]


def test_a_view_keeps_the_tensor_alive() -> None:
    tensor = torch.zeros(4, 4)
    alive, found = weakref.ref(tensor), view_of(tensor, np.dtype(np.float32), 0)
    del tensor
    gc.collect()
    assert alive() is not None
    del found
    gc.collect()
    assert alive() is None


def test_tensors_of_the_host_are_refused() -> None:
    with pytest.raises(OperandError, match="expected an array on the GPU, found Tensor: "):
        adopt(torch.zeros(3))


@pytest.mark.gpu
@pytest.mark.parametrize("name", layouts("cpu"))
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int32])
def test_tensors_of_a_gpu(name: str, dtype: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    tensor = layouts("cuda")[name].to(dtype)
    found = adopt(tensor)
    np.testing.assert_array_equal(cupy.asnumpy(found), tensor.cpu().numpy())
    if tensor.numel():
        found[...] = 7
        assert (tensor == 7).all()
    with pytest.raises(OperandError, match="expected an array on the GPU, found Tensor"):
        adopt(torch.zeros(3, device="cuda", requires_grad=True))
