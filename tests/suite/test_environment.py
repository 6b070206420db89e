from __future__ import annotations

import hashlib
import platform
import subprocess
from types import SimpleNamespace

from suite_fakes import CPU

from spmark.impls.runtime import cudalab, device
from spmark.impls.runtime.device import shipped
from spmark.records.schema import Environment
from spmark.suite import environment


def test_it_names_the_machine_and_the_software():
    found = environment.collect(CPU)
    assert found.device == CPU
    assert (found.driver, found.cuda) == ("", "")
    assert found.packages["python"] == platform.python_version()
    assert found.packages["numpy"]
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 28
    assert found.cpu
    assert environment.collect(CPU).digest == found.digest


def test_the_commit_says_whether_the_checkout_was_changed(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    assert environment._commit(tmp_path) == ""
    git("init")
    (tmp_path / "a").write_text("one")
    git("add", "a")
    git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-m", "m")
    clean = environment._commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "untracked").write_text("results")
    assert environment._commit(tmp_path) == clean
    (tmp_path / "a").write_text("two")
    assert environment._commit(tmp_path) == clean + "+"


def test_a_gpu_is_told_by_its_uuid_and_a_cpu_keeps_its_digest(monkeypatch):
    monkeypatch.setattr(device, "cuda_missing", lambda: None)
    told = SimpleNamespace(nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}".encode())
    monkeypatch.setattr(cudalab, "nvml_handle", lambda: (told, "12ab"))
    assert device.gpu_uuid(shipped("nvidia-h200")) == "GPU-12ab"
    monkeypatch.setattr(cudalab, "nvml_handle", lambda: (None, None))
    assert device.gpu_uuid(shipped("nvidia-h200")) == ""
    assert device.gpu_uuid(device.host_simt()) == ""
    facts = {"device": device.host_simt(), "packages": {}, "cpu": "c", "cores": 2, "memory_bytes": 1, "system": "s"}
    one, other = Environment(**facts, gpu="GPU-1"), Environment(**facts, gpu="GPU-2")
    assert len({Environment(**facts).digest, one.digest, other.digest}) == 3
    without = Environment(**facts).model_dump_json(exclude={"gpu"})
    assert Environment(**facts).digest == hashlib.sha256(without.encode()).hexdigest()[:16]
