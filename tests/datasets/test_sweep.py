"""Sweep files: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spmark.datasets.sweep.model import MatrixSpec, Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.enums import RelationalOp
from spmark.impls.core.errors import SweepError
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import Orientation

BASE = {
    "schema": 1,
    "name": "mine",
    "ops": ["spmm", "sddmm_scaled"],
    "matrices": [{"source": "patterns", "name": "logsparse_64"}, {"source": "ogb", "name": "ogbn-arxiv"}],
    "widths": [32, 64],
    "dtypes": ["float32", "float16"],
    "implementations": ["gespmm", {"name": "cusparse", "config": {"alg": 2}, "label": "alg2"}, "scipy_cpu"],
    "baseline": {"cpu": "scipy_cpu"},
    "seed": 5,
}


def write(tmp_path, **changes):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**BASE, **changes}.items() if value is not None}))
    return path


def test_expand(tmp_path):
    cases = expand(Sweep.load(write(tmp_path)), DeviceKind.CPU)
    assert len(cases) == 2 * 2 * 2 * 2 * 3
    assert len({case.case_id for case in cases}) == len(cases)
    first = cases[0]
    assert (first.op, first.scaled, first.width, first.dtype) == (Op.SPMM, False, 32, DType.FLOAT32)
    assert (first.implementation, first.baseline, first.seed) == ("scipy_cpu", "scipy_cpu", 5)
    assert [case.implementation for case in cases[:3]] == ["scipy_cpu", "gespmm", "cusparse"]
    assert cases[2].config == {"alg": 2}
    assert cases[2].label == "alg2"
    keys = [(case.matrix.id, case.op, case.dtype, case.width) for case in cases]
    assert len(list(dict.fromkeys(keys))) == len(cases) // 3
    assert keys == [key for key in dict.fromkeys(keys) for _ in range(3)]
    assert {case.scaled for case in cases if case.op is Op.SDDMM} == {True}


def test_rgms_has_two_widths(tmp_path):
    changes = {"ops": ["rgms"], "implementations": ["rgms_naive"], "baseline": None, "dtypes": ["float32"]}
    matrices = [{"source": "hetero", "name": "aifb"}, {"source": "npz", "name": "mine.npz", "relations": 3}]
    widths = [32, {"width_in": 64, "width_out": 32}]
    cases = expand(Sweep.load(write(tmp_path, matrices=matrices, widths=widths, **changes)), DeviceKind.CPU)
    assert {case.op for case in cases} == {RelationalOp.RGMS}
    assert [(case.width_in, case.width) for case in cases] == 2 * [(32, 32), (64, 32)]
    ids = [case.case_id for case in cases]
    assert ids[:2] == [f"rgms/hetero/aifb/J{widths}/float32/rgms_naive/seed5" for widths in ("32", "64x32")]
    assert "#" in ids[2], "the number of relations tells a file's cases apart"
    assert [case.matrix.relations for case in cases] == [0, 0, 3, 3]


def test_baseline_by_device_kind(tmp_path):
    assert {case.baseline for case in expand(Sweep.load(write(tmp_path)), DeviceKind.CUDA)} == {None}
    sweep = Sweep.load(write(tmp_path, baseline="gespmm"))
    assert {case.baseline for case in expand(sweep, DeviceKind.CUDA)} == {"gespmm"}
    assert {case.baseline for case in expand(sweep, DeviceKind.HOST_SIMT)} == {None}


def test_case_ids(tmp_path):
    cases = expand(Sweep.load(write(tmp_path)), DeviceKind.CPU)
    assert cases[0].case_id == "spmm/patterns/logsparse_64/J32/float32/scipy_cpu/seed5"
    scaled = next(case for case in cases if case.scaled)
    assert scaled.case_id.startswith("sddmm-scaled/")
    configured = next(case for case in cases if case.config)
    assert configured.case_id.startswith("spmm/patterns/logsparse_64/J32/float32/cusparse/seed5#")
    assert len(configured.case_id.partition("#")[2]) == 8
    matrices = [{"source": "mirror", "name": "cora", "orientation": "AT", "values": "stored"}]
    (case, *_) = expand(Sweep.load(write(tmp_path, matrices=matrices)), DeviceKind.CPU)
    assert case.case_id.startswith("spmm/mirror/cora@AT/J32/float32/scipy_cpu/seed5#")


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.sampled_from(["x", "y", True, 0.5]), max_size=3))
def test_ids_do_not_depend_on_the_order_of_arguments(args):
    def case_id(args):
        spec = MatrixSpec(source="rmat", name="r", args=args)
        sweep = Sweep.model_validate({**BASE, "matrices": [spec], "baseline": {}})
        return expand(sweep, DeviceKind.CPU)[0].case_id

    assert case_id(args) == case_id(dict(reversed(args.items())))
    assert ("#" in case_id(args)) == bool(args)


def test_what_differs_in_arguments_values_or_config_has_an_id_of_its_own():
    def case_id(config=(), **changes):
        spec = MatrixSpec(source="rmat", name="r", **changes)
        made = {"matrices": [spec], "implementations": [{"name": "gespmm", "config": dict(config)}], "baseline": {}}
        return expand(Sweep.model_validate(BASE | made), DeviceKind.CPU)[0].case_id

    different = [{}, {"args": {"a": 1}}, {"args": {"a": 2}}, {"values": "stored"}, {"config": {"a": 1}}]
    assert len({case_id(**one) for one in different}) == len(different)


def test_widths_of_a_matrix(tmp_path):
    matrices = [{"source": "patterns", "name": "band_64", "widths": [7]}, {"source": "patterns", "name": "strided_64"}]
    cases = expand(Sweep.load(write(tmp_path, matrices=matrices)), DeviceKind.CPU)
    assert {case.width for case in cases if case.matrix.name == "band_64"} == {7}
    assert {case.width for case in cases if case.matrix.name == "strided_64"} == {32, 64}


def test_include_names_and_wildcards(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "inner.yaml").write_text("- {source: patterns, names: [band_64, strided_64]}\n")
    (tmp_path / "lists" / "outer.yaml").write_text("- {include: inner.yaml}\n- {source: twin, names: ['*']}\n")
    matrices = [{"include": "lists/outer.yaml"}, {"source": "dnn_layers", "names": ["bert_*@0.9"], "orientation": "AT"}]
    sweep = Sweep.load(write(tmp_path, matrices=matrices))
    assert [matrix.id for matrix in sweep.matrices] == [
        "patterns/band_64",
        "patterns/strided_64",
        "twin/proteins_twin",
        "twin/reddit_twin",
        "twin/products_twin",
        "dnn_layers/bert_768x768@0.9@AT",
        "dnn_layers/bert_3072x768@0.9@AT",
        "dnn_layers/bert_768x3072@0.9@AT",
    ]
    assert sweep.matrices[-1].orientation is Orientation.TRANSPOSED


def test_overrides(tmp_path):
    overrides = ["widths=[7]", "baseline.cpu=gespmm", "seed=9", "title=a b"]
    sweep = Sweep.load(write(tmp_path), overrides)
    assert (sweep.widths, sweep.baseline, sweep.seed, sweep.title) == ((7,), {"cpu": "gespmm"}, 9, "a b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": [3]}, r"mine\.yaml: width: unknown key; .*found 'width' \(did you mean widths\?\)"),
        ({"matrices": [{"source": "ogb", "nam": "x"}]}, r"matrices\.0\.nam: unknown key.*did you mean name\?"),
        ({"implementations": [{"name": "x", "conf": {}}]}, r"implementations\.0\.conf: unknown key.*config\?"),
        ({"ops": ["spm"]}, r"ops\.0: expected 'spmm'.*found 'spm' \(did you mean spmm\?\)"),
        ({"dtypes": ["float23"]}, r"dtypes\.0: expected .*found 'float23' \(did you mean float32\?\)"),
        ({"widths": [32, 0]}, r"widths\.1: .*greater than or equal to 1, found 0"),
        ({"widths": [1.5]}, r"widths\.0: .*integer, found 1\.5"),
        ({"widths": []}, r"widths: expected at least one width"),
        ({"ops": []}, r"ops: expected at least 1 item, found \[\]"),
        ({"matrices": []}, "matrices: .*at least 1"),
        ({"implementations": []}, "implementations: .*at least 1"),
        ({"dtypes": []}, "dtypes: .*at least 1"),
        ({"matrices": [{"source": "ogp", "name": "x"}]}, r"found 'ogp' \(did you mean ogb\?\)"),
        ({"matrices": [BASE["matrices"][0]] * 2}, "matrices: expected each once, found patterns/logsparse_64"),
        ({"matrices": "cora"}, "matrices: .*found 'cora'"),
        ({"matrices": ["cora"]}, r"matrices\.0: .*found 'cora'"),
        ({"matrices": [{"include": "nowhere.yaml"}]}, "expected a file of matrices at .*nowhere.yaml"),
        ({"matrices": [{"include": "mine.yaml"}]}, "expected a list of matrices, found dict"),
        ({"matrices": [{"include": "a", "source": "ogb"}]}, "expected include alone"),
        ({"matrices": [{"source": "ogb", "names": []}]}, "names with a list of at least one"),
        ({"matrices": [{"source": "ogb", "names": ["x*"]}]}, r"expected 'x\*' to match matrices of ogb, found none"),
        ({"matrices": [{"source": "ogx", "names": ["x*"]}]}, "expected a source to look for"),
        ({"implementations": ["a", {"name": "b", "label": "a"}]}, "labels: expected each once, found a more than"),
        ({"implementations": ["a", {"name": "a", "label": "b"}]}, "name and config: expected each once"),
        ({"baseline": "gespm"}, r"baseline\.cuda: .*found 'gespm'; list it there, or .*these \(did you mean"),
        ({"baseline": "cusparse"}, r"implementations without config \(gespmm, scipy_cpu\), found 'cusparse'"),
        ({"baseline": {"gpu": "gespmm"}}, r"baseline\.gpu.*found 'gpu'"),
        ({"schema": 2}, "schema: expected 1, found 2"),
        ({"name": None}, "name: expected this key, found none"),
        ({"name": "../x"}, "name: .*found '../x'"),
        ({"seed": -1}, "seed: .*found -1"),
        ({"seed": 2**63}, "seed: .*found 9223372036854775808"),
        ({"widths": [2**31]}, r"widths\.0: .*found 2147483648"),
        ({"widths": [{"width_in": 2, "width_out": 3}]}, "width_in and width_out in sweeps of rgms alone, found 2x3"),
        ({"widths": [{"width_in": 2, "width_out": 0}]}, r"widths\.0\.width_out: .*found 0"),
        ({"widths": [{"width": 2}]}, r"widths\.0\.width: unknown key; expected keys out of width_in, width_out"),
        (
            {"implementations": [{"name": "gespmm", "label": "scipy_cpu"}, {"name": "scipy_cpu", "label": "b"}]},
            "implementations: expected labels that name no other implementation here, found 'scipy_cpu'",
        ),
        ({"time_limit_s": 0}, "time_limit_s: .*found 0"),
    ],
)
def test_mistakes(tmp_path, changes, message):
    with pytest.raises(SweepError, match=message):
        Sweep.load(write(tmp_path, **changes))


@pytest.mark.parametrize("override", ["widths", "=3", "widths=[", "seed.x=1", "wodths=[3]"])
def test_override_mistakes(tmp_path, override):
    with pytest.raises(SweepError, match=r"override|unknown key"):
        Sweep.load(write(tmp_path), [override])


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "!!python/object/apply:os.getcwd []", "\x00"])
def test_not_a_sweep(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(SweepError, match=r"bad\.yaml"):
        Sweep.load(path)


def test_no_such_sweep():
    with pytest.raises(SweepError, match=r"quickstrat: expected a sweep file.*did you mean quickstart\?"):
        Sweep.load("quickstrat")


def test_a_wrong_item_is_reported_once(tmp_path):
    with pytest.raises(SweepError) as caught:
        Sweep.load(write(tmp_path, ops=["spm"]))
    assert len(str(caught.value).splitlines()) == 1


def test_circular_include(tmp_path):
    (tmp_path / "loop.yaml").write_text("- {include: loop.yaml}\n")
    with pytest.raises(SweepError, match="circular"):
        Sweep.load(write(tmp_path, matrices=[{"include": "loop.yaml"}]))


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("smoke", 2 * 3 * 10),
        ("quickstart", 6 * 2 * 10),
        ("graphs_spmm", 8 * 5 * 2 * 7),
        ("graphs_sddmm", 8 * 5 * 2 * 8),
        ("dnn_layers", 41 * 5 * 7),
        ("lo_spmm_fig10_speedup", (41 * 5 + 15) * 11),
        ("lo_spmm_fig11_search_time", 4 * 5 * 12),
        ("lo_spmm_fig11_search_time_c", 3 * 12),
        ("lo_spmm_fig11_large_layer", 7),
        ("lo_spmm_fig11_extrapolated_c", 5 * 4 * 3),
        ("lo_spmm_table2", 4 * 5 * 9),
        ("lo_spmm_table4_mape", 12 * 5 * 7),
        ("lo_spmm_table4_published", 8 * 5 * 4),
        ("lo_spmm_fig4_nnc", 3 * 7 * 3),
        ("lo_spmm_fig6_reordering", (4 * 3 + 3 * 5) * 7),
        ("lo_spmm_fig9_icache", 3 * 6 * 3),
        ("sparsetir_fig13_spmm", 17 * 5 * 2 * 9),
        ("sparsetir_fig14_sddmm", 16 * 5 * 2 * 8),
        ("sparsetir_fig16_attention", 2 * 2 * 5),
        ("sparsetir_fig17_block_pruned", (3 * 6 + 3 + 15) * 8),
        ("sparsetir_fig19_unstructured", (3 * 4 + 15) * 9),
        ("stile_fig7_spmm", (16 * 5 + 6 + 15) * 7),
        ("stile_fig7_one_format", 2 * 8 * 2 * 4),
        ("stile_fig9_sddmm", (16 * 5 + 6 + 15) * 9),
        ("stile_table5_search_time", 2 * 10 * 3),
        ("stile_table6_ablation", 6 * 8),
        ("stile_table7_search_space", 2 * 3 * 2 * 14),
        ("stile_fig12_multilevel", 2 * 2 * 2 * 9),
        ("stile_fig14_cost_model", 2 * 8 * 3 * 2 * 3),
        ("stile_modes", 2 * 5 * 4),
        ("stile_tile_order", 4 * 6),
        ("dash_hyb_search", 45 * 3 * 5),
    ],
)
def test_packaged(name, cases):
    sweep = Sweep.load(name)
    assert sweep.name == name
    for kind in (DeviceKind.CPU, DeviceKind.CUDA):
        listed = expand(sweep, kind)
        assert len({case.case_id for case in listed}) == cases
        assert listed[0].implementation == listed[0].baseline
    assert set(packaged_sweeps()) >= {"smoke", "quickstart", "graphs_spmm", "graphs_sddmm", "dnn_layers"}


def test_importing_is_light():
    code = (
        "import sys, spmark.datasets.load, spmark.datasets.sweep.reading; "
        "print(sorted({'cupy', 'torch', 'dgl', 'numba', 'pandas'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[32]", "[" + "9" * 5000 + "]", "a number of 5,000 characters"),
        ("name: x", "name: 2026-99-99", "month must be in 1..12"),
        ("[scipy_cpu]", "[" * 60, "more than 50 levels"),
        ("[scipy_cpu]", "[" * 20_000, "more than 50 levels|exceeded maximum nesting depth"),
        ("[scipy_cpu]", "[{name: a, config: {x: {1: 2, b: 3}}}]", "expected keys and values of a sweep"),
        ("planetoid, name: cora", "[a], names: ['*']", r"expected a source to look for '\*' in, found \['a'\]"),
        ("planetoid", "p" * 100_000, "expected a source out of"),
        ("[{source: planetoid, name: cora}]", "&a [*a]", "an alias of a value that contains it"),
    ],
)
def test_hostile_sweeps_are_refused_quickly(tmp_path, old, new, message):
    text = (
        "schema: 1\nname: x\nops: [spmm]\nmatrices: [{source: planetoid, name: cora}]\nwidths: [32]\n"
        "implementations: [scipy_cpu]\n"
    )
    path = tmp_path / "x.yaml"
    path.write_text(text)
    Sweep.load(path)
    path.write_text(text.replace(old, new))
    began = time.process_time()
    with pytest.raises(SweepError, match=message):
        Sweep.load(path)
    assert time.process_time() - began < 5


def test_a_long_list_is_compared_in_linear_time(tmp_path):
    path = tmp_path / "x.yaml"
    names = ", ".join(f"m{number}" for number in range(40_000))
    path.write_text(
        f"schema: 1\nname: x\nops: [spmm]\nmatrices: [{{source: npz, names: [{names}]}}]\nwidths: [32]\n"
        "implementations: [scipy_cpu]\n"
    )
    began = time.process_time()
    assert len(Sweep.load(path).matrices) == 40_000
    assert time.process_time() - began < 8
