"""Our page of the published site: speed-ups of every machine, out of result files that know little."""

from __future__ import annotations

import pytest
from test_asv_import import GPU, environment, record, write

from spmark.impls.core.devicespec import DeviceKind
from spmark.suite.asv.importer import import_records
from spmark.suite.asv.site import add_speedups

CPU = GPU.model_copy(update={"name": "test-cpu", "kind": DeviceKind.CPU})


@pytest.fixture
def page(tmp_path, repository, commit):
    """Import two matrices of a GPU and of a CPU, and write the page."""
    for device, implementations in ((GPU, ("cusparse", "cusparse_best", "gespmm")), (CPU, ("scipy_cpu", "numba_cpu"))):
        of = environment(commit).model_copy(update={"device": device})
        rows = [
            record(of, device=device.name, device_kind=device.kind, implementation=name, matrix=matrix, width=width)
            for name in implementations
            for matrix in ("cora", "pubmed")
            for width in (32, 128)
        ]
        import_records([write(tmp_path / device.name, of, rows)], tmp_path / "results", repository)
    assert add_speedups(tmp_path / "results", tmp_path / "html")
    return tmp_path / "html" / "speedups"


@pytest.mark.full
def test_each_machine_has_its_own_baseline(page):
    assert 'href="sweeps/asv/index.html"' in (page / "index.html").read_text()
    text = (page / "sweeps" / "asv" / "index.html").read_text()
    assert "Geometric-mean speed-up over cusparse_best" in text
    assert "Geometric-mean speed-up over scipy_cpu" in text
    assert "No record names a baseline" not in text


def test_without_a_result_there_is_no_page(tmp_path):
    (tmp_path / "results").mkdir()
    assert not add_speedups(tmp_path / "results", tmp_path / "html")
    assert not (tmp_path / "html").exists()
