"""A matrix that is known by several names: records, filters, comparisons and pages of one hold for the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat.test_cases import DEVICE

from spmark.datasets.cache import Cache
from spmark.datasets.origins import origins
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import Sweep, expand
from spmark.datasets.sweep.reading import checked_sweep, packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.records.schema import CaseSpec, Environment, Measurement, Outcome, Status
from spmark.report.analysis.compare_inputs import paired, read_side
from spmark.suite.cli.report import listed_sweep
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import choose, completed, make_plan, select
from spmark.suite.study.label import matrices_of

NEW = ("planetoid/cora", "suitesparse/Hamm/add20@AT", "musae/git", "ogb/ogbn-arxiv")
OLD = ("mirror/cora", "mirror/add20@AT", "mirror/musae_git", "mirror/ogbn-arxiv")
ENVIRONMENT = Environment(
    device=DeviceSpec.model_validate(json.loads(DEVICE)), packages={}, cpu="", cores=1, memory_bytes=1, system=""
)


def sweep(matrices: tuple[str, ...]) -> Sweep:
    data = {"schema": 1, "name": "mine", "ops": ["spmm"], "widths": [32], "implementations": ["scipy_cpu"]}
    return checked_sweep({**data, "matrices": list(matrices)}, Path("mine.yaml"))


def cases(matrices: tuple[str, ...]) -> list[CaseSpec]:
    return list(completed(choose(sweep(matrices), DeviceKind.CPU).cases))


def recorded(folder: Path, matrices: tuple[str, ...]) -> Path:
    folder.mkdir()
    outcome = Outcome(status=Status.OK, samples_us=[1.0, 2.0])
    rows = [Measurement.of(case, outcome, ENVIRONMENT).model_dump_json() for case in cases(matrices)]
    (folder / "records.jsonl").write_text("".join(row + "\n" for row in rows))
    line = {"digest": ENVIRONMENT.digest, "environment": ENVIRONMENT.model_dump()}
    (folder / "environments.jsonl").write_text(json.dumps(line) + "\n")
    return folder


@pytest.mark.parametrize(("before", "now"), [(OLD, NEW), (NEW, OLD), (NEW, NEW)])
def test_records_under_another_name_leave_no_case_to_do(tmp_path: Path, before, now) -> None:
    folder = recorded(tmp_path / "mine", before)
    plan = make_plan(choose(sweep(now), DeviceKind.CPU), ENVIRONMENT, folder, Options())
    assert (plan.count("skip"), plan.count("run")) == (4, 0)


def test_records_of_another_matrix_leave_a_case(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "mine", OLD[:1])
    plan = make_plan(choose(sweep(NEW), DeviceKind.CPU), ENVIRONMENT, folder, Options())
    assert plan.count("run") == 3


def test_a_case_s_own_id_is_of_the_name_that_was_asked_for() -> None:
    (new, old) = (cases(names)[1] for names in (NEW, OLD))
    assert new.case_id == "spmm/suitesparse/Hamm/add20@AT/J32/float32/scipy_cpu/seed0"
    assert new.other_ids == (old.case_id,)
    assert old.other_ids == (new.case_id,)
    assert new.matrix.origin == old.matrix.origin == origins()["suitesparse/Hamm/add20"].url


@pytest.mark.parametrize("only", ["matrix=musae_git", "matrix=git", "mirror/musae_git/", "spmm/mirror/musae*"])
def test_filters_take_every_name(only: str) -> None:
    assert [case.matrix.id for case in select(cases(NEW), [only])] == ["musae/git"]


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
def test_a_comparison_pairs_cases_under_two_names(tmp_path: Path, before, after) -> None:
    sides = [read_side(recorded(tmp_path / name, names)) for name, names in (("a", before), ("b", after))]
    pairs, only_before, only_after = paired(*sides, across=False)
    assert (len(pairs), only_before, only_after) == (4, [], [])


def test_a_page_knows_the_cases_of_published_records() -> None:
    listed = listed_sweep("judging_graphs")
    assert listed is not None
    old = "spmm/mirror/actor/J32/float32/gespmm/seed0"
    new = listed.today(old)
    assert new == "spmm/heterophilous/actor/J32/float32/gespmm/seed0"
    assert new in listed.labels
    assert listed.today(new) == new


def test_labels_go_by_the_names_of_those_that_ship(tmp_path: Path) -> None:
    names = list(matrices_of(["tuning_layers", "seeded/mesh_0*"], Cache(tmp_path)))
    assert "mirror/tf__mag__0.9__body_decoder_layer_0_mha_q_fully_connected" in names
    assert all(name.startswith(("mirror/tf__mag__", "seeded/mesh_0")) for name in names)
    assert len(names) > 56


@pytest.mark.full
def test_every_matrix_of_a_packaged_sweep_has_a_formula_or_a_public_origin() -> None:
    for name in packaged_sweeps():
        for case in expand(Sweep.load(name), DeviceKind.CUDA):
            matrix = case.matrix
            formula = not find_source(matrix.source).network and matrix.source not in {"mirror", "npz", "smtx"}
            assert formula or matrix.origin, matrix.id


def test_a_dry_run_lists_origins_where_the_paper_cannot_run(invoke) -> None:
    code, out, _ = invoke("reproduce", "sparsetir", "--dry-run", "--json", "--device", "cpu")
    origin_of = {row["matrix"]: row["origin"] for row in json.loads(out)["matrices"]}
    assert code == 3
    assert origin_of["dgl/reddit"] == "https://data.dgl.ai/dataset/reddit.zip"
    assert origin_of["patterns/logsparse_4096"] == ""


def test_figure_13_has_public_origins_and_the_large_graphs_themselves() -> None:
    matrices = {case.matrix.id: case.matrix for case in expand(Sweep.load("sparsetir_fig13_spmm"), DeviceKind.CUDA)}
    assert {"dgl/reddit", "ogb/ogbn-proteins"} < matrices.keys()
    assert len(matrices) == 17
    assert all(one.origin.startswith("http") for one in matrices.values())
