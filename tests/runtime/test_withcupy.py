"""Without CuPy, what needs a GPU names the extra that brings it, whatever of it is asked first."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from dash_fakes import keep_model

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.core.problem import Op
from spmark.impls.runtime.target import open_target
from spmark.impls.table import IMPLEMENTATIONS, create

SCRIPT = """
import sys
sys.modules["cupy"] = sys.modules["cupyx"] = None  # as where it is not installed
from pathlib import Path
import numpy as np
from scipy import sparse
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.problem import Problem
from spmark.impls.runtime.device import find, shipped_calibration
from spmark.impls.dash import finding
from spmark.impls.table import IMPLEMENTATIONS, create

finding.SHIPPED = Path(sys.argv[1])
gpu = DeviceSpec.load(shipped_calibration("nvidia-h200"))
for name in IMPLEMENTATIONS:
    made = create(name)
    if DeviceKind.CUDA not in made.devices:
        continue
    for device in (gpu, find("cpu")):
        for op in sorted(made.ops):
            for dtype in ("float32", "float16"):
                problem = Problem(op, sparse.csr_array(np.eye(64, dtype=np.float32)), 64, dtype)
                if device.kind not in made.devices and device.kind is not DeviceKind.CPU:
                    continue
                try:
                    made.build(problem, device)
                except SpmarkError as error:
                    print(name, device.kind, str(error).replace(chr(10), " "))
"""


@pytest.mark.full
def test_every_implementation_of_the_gpu_fails_with_an_error_of_ours(tmp_path):
    others = {"dgl", "triton_blocksparse", "torch_sparse", "pyg", "nvmath"}  # these lack another package first
    if find_spec("torch") is None:
        others.add("dash")
    else:
        for op in Op:
            keep_model("cuda", op, path=tmp_path / f"cuda-{op}.safetensors")
    ended = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    told = {}
    for line in ended.stdout.splitlines():
        name, kind, message = line.split(" ", 2)
        told.setdefault((name, kind), message)
    gpu = {name: message for (name, kind), message in told.items() if kind == "cuda"}
    assert set(gpu) == {name for name in IMPLEMENTATIONS if DeviceKind.CUDA in create(name).devices}
    for name, message in gpu.items():
        if name not in others:
            assert "pip install -e '.[gpu]' in a checkout" in message, (name, message)


@pytest.mark.parametrize("device", ["cuda", None, 3])
def test_a_device_is_one_that_find_gives(device):
    with pytest.raises(DeviceError, match="expected a device as spmark"):
        open_target(device)


@pytest.mark.parametrize(("name", "config"), [(3, None), (None, None), ("scipy_cpu", 3), ("gespmm", {3: 4})])
def test_a_wrong_implementation_or_config_is_an_error_of_ours(name, config):
    with pytest.raises(SweepError, match="expected"):
        create(name, config)
