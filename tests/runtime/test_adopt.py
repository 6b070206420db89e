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
from spmark.impls.runtime.adopt import adopt, stream_of, view_of  # noqa: E402 (needs CuPy)


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


@pytest.mark.full
def test_a_view_keeps_the_tensor_alive() -> None:
    tensor = torch.zeros(4, 4)
    alive, found = weakref.ref(tensor), view_of(tensor, np.dtype(np.float32), 0)
    del tensor
    gc.collect()
    assert alive() is not None
    del found
    gc.collect()
    assert alive() is None


class OnGpu(torch.Tensor):
    """A tensor that says it is on the second GPU."""

    is_cuda = True

    def get_device(self) -> int:
        return 1


def test_the_stream_is_the_current_one_of_the_tensor_s_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = {0: 11, 1: 22}
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", handles.__getitem__, raising=False)
    tensor = torch.zeros(3).as_subclass(OnGpu)
    stream = stream_of([np.zeros(3), tensor])
    assert stream is not None
    assert stream.ptr == 22
    assert stream_of([tensor]) is stream
    assert stream_of([np.zeros(3), torch.zeros(3)]) is None


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
