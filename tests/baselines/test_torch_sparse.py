from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import problems

from spmark.impls.core import errors
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.runtime.device import find
from spmark.impls.torch_sparse import plan as module
from spmark.impls.torch_sparse.plan import TorchSparse

torch = pytest.importorskip("torch")
SPMM, SDDMM = (problems()[f"{op}-hub-J32-float32"] for op in ("spmm", "sddmm"))


@pytest.mark.parametrize("problem", [SPMM, SDDMM], ids=["spmm", "sddmm"])
def test_gives_what_the_public_calls_give(problem: Any) -> None:
    matrix = problem.matrix
    csr = torch.sparse_csr_tensor(*map(torch.tensor, (matrix.indptr, matrix.indices, matrix.values)), size=matrix.shape)
    operands = [torch.rand(shape, generator=torch.Generator().manual_seed(1)) for shape in problem.operand_shapes]
    if problem is SPMM:
        expected = csr @ operands[0]
    else:
        expected = torch.sparse.sampled_addmm(csr, operands[0], operands[1].T, beta=0).values()
    out = np.full(problem.out_shape, np.nan, np.float32)
    TorchSparse().build(problem, find("cpu")).run([one.numpy() for one in operands], out)
    np.testing.assert_array_equal(out, expected.numpy())


def test_what_pytorch_refuses_is_said_in_its_words() -> None:
    for op in ("spmm", "sddmm"):
        reason = TorchSparse().unsupported(problems()[f"{op}-hub-J32-float16"], find("cpu"))
        assert reason is not None
        assert reason.startswith("PyTorch says: ")
        assert "Half" in reason
    scaled = TorchSparse().unsupported(problems()["sddmm_scaled-hub-J32-float32"], find("cpu"))
    assert scaled == "torch.sparse.sampled_addmm does not multiply by A"
    assert TorchSparse().unsupported(SPMM, find("cpu")) is None


def test_a_missing_pytorch_or_gpu_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert TorchSparse().unsupported(SPMM, gpu) == "this PyTorch has no CUDA, or finds no GPU"
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    reason = TorchSparse().unsupported(SPMM, find("cpu"))
    assert reason == "torch is not installed: pip install -e '.[torch]' in a checkout"


def test_on_a_gpu_the_vendors_rounding_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.TorchPlan, "upload", lambda self, array: torch.tensor(array))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for case, half_sums, deterministic in (
        ("spmm-hub-J32-float16", True, False),
        ("spmm-hub-J32-float32", False, False),
        ("sddmm-hub-J32-float32", False, True),
    ):
        plan = module._Plan(problems()[case], DeviceKind.CUDA)
        assert (plan.half_sums, plan.deterministic, plan.place) == (half_sums, deterministic, "cuda:0")


def test_memory_that_runs_out_is_no_failure_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate 9 GiB")

    plan = TorchSparse().build(SPMM, find("cpu"))
    monkeypatch.setattr(torch, "mm", full)
    operands = [np.ones(shape, np.float32) for shape in SPMM.operand_shapes]
    with pytest.raises(MemoryError, match="tried to allocate 9 GiB"):
        plan.run(operands, np.empty(SPMM.out_shape, np.float32))
