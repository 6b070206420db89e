"""What a section says beside its figures and tables."""

from __future__ import annotations

import pandas as pd
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.records.schema import Baseline, RefusedConfig, Status
from spmark.report.site.run_metadata import notices_of
from spmark.report.site.site import write_report

SWEEP = "sweeps/graphs_spmm/index.html"


def test_counts_of_notices_have_separators_of_thousands() -> None:
    rows = 2316
    derived = pd.DataFrame(
        {
            "status": [Status.OK.value] * 300 + [Status.TIMEOUT.value] * (rows - 300),
            "speedup_from": "record",
            "median_us": 2.0,
            "speedup": 1.0,
            "flags": "busy machine (others take 3 of 4 cores)",
            "reason": "",
            "implementation": "gespmm",
            "label": "gespmm",
            "config": [{"format": "direct"}] * 120 + [{}] * (rows - 120),
            "implementation_version": "1",
            "matrix_hash": "",
            "matrix": "ogb/a",
            "baseline_refused": [()] * rows,
            "sweep": ["mine"] * 1000 + ["yours"] * (rows - 1000),
        }
    )
    failed, lent, flagged, chosen, elsewhere, older = notices_of(derived, "cusparse", None, 1234, "mine")
    assert failed.startswith("2,016 of 2,316 cases have no result (2,016 timeout)")
    assert lent.startswith("2,316 speed-ups")
    assert flagged.startswith("Times of 2,316 of 2,316 cases may be off: 2,316 ran on a busy machine.")
    assert chosen.endswith("did in these cases: gespmm 120 of 2,316.")
    assert elsewhere == "1,316 of these cases were measured with other sweeps that list them: yours (1,316)."
    assert older.startswith("1,234 rows")


@pytest.mark.parametrize(("kind", "device"), [(DeviceKind.CPU, "a GPU"), (DeviceKind.CUDA, "another device")])
def test_cases_of_another_device_are_one_folded_line_on_the_first_page(records, write, tmp_path, kind, device):
    spec = records.device_spec(kind=kind)
    lacking = {
        "cublas": f"runs on cuda, found a {kind} device", "gespmm": "runs on cuda and host-simt, found another device",
        "dgl": "dgl is not installed",
    }  # fmt: skip
    rows = [
        records.measurement(implementation=name, width=width, device_kind=kind, status=Status.UNSUPPORTED, reason=why)
        for name, why in lacking.items()
        for width in (32, 64)
    ]
    rows.append(records.measurement(implementation="scipy_cpu", device_kind=kind, samples_us=[1.0] * 8))
    index = write_report([write(rows, spec)], tmp_path / "out").index
    for page in (index.read_text(), index.parent.joinpath(SWEEP).read_text()):
        assert f"<summary>4 cases of 2 implementations need {device} and did not run.</summary>gespmm: runs on" in page
        assert "2 of 7 cases have no result (2 unsupported)" in page


def test_a_baseline_that_failed_is_told_on_both_pages(records, write, tmp_path):
    rows = [
        records.measurement(width=64, samples_us=[1.0] * 8),
        records.measurement(
            width=128, samples_us=[1.0] * 8,
            baseline=Baseline(implementation="cusparse_best", config={}, samples_us=[2.0] * 8),
        ),
        records.measurement(implementation="cusparse_best", width=64, status=Status.TIMEOUT),
    ]  # fmt: skip
    index = write_report([write(rows)], tmp_path / "out", baseline="cusparse_best").index
    for page in (index.read_text(), index.parent.joinpath(SWEEP).read_text()):
        assert "1 of 3 cases have a time and no speed-up: the baseline cusparse_best has no time there." in page
        assert ": timeout (1)." in page


def test_variants_that_a_baseline_lacked_are_named(records, write, tmp_path):
    lacks = RefusedConfig(config={"algorithm": "alg2"}, reason="expected a descriptor, found NOT_SUPPORTED")
    rows = [
        records.measurement(
            matrix=name, samples_us=[9.0] * 8,
            baseline=Baseline(implementation="cusparse_best", config={}, samples_us=[9.0] * 8, refused=refused),
        )
        for name, refused in (("a", [lacks]), ("b", []), ("c", [lacks]))
    ]  # fmt: skip
    text = write_report([write(rows)], tmp_path / "out").index.parent.joinpath(SWEEP).read_text()
    assert "In 2 of 3 cases the baseline&#39;s search could not use all of its variants" in text
    assert "cusparse_best, algorithm=alg2: expected a descriptor, found NOT_SUPPORTED (2)." in text


def test_matrices_of_one_pattern_are_named_keep_their_rows_and_count_once(records, write, tmp_path):
    names = {"G22": "a", "G27": "a", "other": "b"}
    rows = [
        records.measurement(
            matrix=name, matrix_hash=64 * pattern, samples_us=[9.0] * 8,
            baseline=Baseline(implementation="cusparse_best", config={}, samples_us=[18.0] * 8),
        )
        for name, pattern in names.items()
    ]  # fmt: skip
    index = write_report([write(rows)], tmp_path / "out").index
    told = "Matrices have the same pattern, and count once in figures and means: ogb/G22 and ogb/G27."
    assert told in index.parent.joinpath(SWEEP).read_text()
    assert pd.read_csv(index.parent / "tables" / "test-gpu-overall.csv")["own_cases"].tolist() == [2]
    assert "G27" not in index.parent.joinpath("figures", "test-gpu-speedup-per-matrix.csv").read_text()
    assert len(pd.read_csv(index.parent / "tables" / "test-gpu-cases.csv")) == 3
    told = "1 cases are left out: a problem counts once for each label, and equal patterns are one problem."
    assert told in index.read_text()


def test_a_matrix_of_two_sizes_of_j_is_no_second_matrix(records, write, tmp_path):
    rows = [records.measurement(width=width, samples_us=[9.0] * 8) for width in (32, 64)]
    index = write_report([write(rows)], tmp_path / "out").index
    assert "have the same pattern" not in index.parent.joinpath(SWEEP).read_text()
    assert "cases are left out" not in index.read_text()
