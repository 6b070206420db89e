"""``spmark check``: right and wrong implementations, in files of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from outside_code import MINE, nothing_loaded

from spmark.impls.core.problem import Op
from spmark.impls.runtime.device import find
from spmark.impls.table import name_of
from spmark.suite import conformance
from spmark.suite.conformance import NonconformingError, Place, check_offsets, chosen_configs, problems
from spmark.suite.plan.refusals import make

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)
EXAMPLE = Path(__file__).parents[2] / "examples" / "mykernel" / "mykernel.py"
RUN = '''
    def build(self, problem, device):
        """Give a plan whose run does more than it should."""
        plan = super().build(problem, device)
        right, held = plan.run, []

        def run(operands, out):
            {body}

        plan.run = run
        return plan
'''


def checked(invoke, tmp_path, text, *options):
    """Check a file that holds the class Mine; gives the exit code, the answer and standard error."""
    (tmp_path / "mine.py").write_text(text)
    code, out, err = invoke("check", "./mine.py:Mine", "--json", *options)
    return code, json.loads(out) if out else {}, err


def running(*lines):
    return MINE + RUN.format(body="\n            ".join(lines))


def telling(what):
    return RUN.format(body="right(operands, out)").replace("return plan", f"plan.{what}; return plan")


def test_offsets_in_32_bits_are_found(tmp_path):
    for name in ("mykernel.py", "spmm_naive.cu"):
        text = (Path(EXAMPLE).parent / name).read_text()
        (tmp_path / name).write_text(text.replace("static_cast<int64_t>(indices[p])", "indices[p]"))
    how, place = make(name_of(f"{tmp_path}/mykernel.py:MyKernel"), {}), Place(find("host-simt"))
    told = r"(?s)more than 2.31.*signed integer overflow.*compute offsets such as row . J in 64 bits"
    with pytest.raises(NonconformingError, match=told):
        check_offsets(how, Op.SPMM, place)


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "host-simt", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_example_passes(invoke, device):
    code, out, err = invoke("check", f"{EXAMPLE}:MyKernel", "--device", device, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["implementation"], answer["passed"]) == ("mykernel", True)
    (told,) = answer["devices"]
    assert told["kind"] == device
    assert not told["refused"]
    assert told["checked"] > 80
    assert not told["flaws"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "baseline", "device"),
    [(f"{EXAMPLE}:MyKernel", "scipy_cpu", "cpu"), (EXAMPLE.with_name("spmm_rows.cu"), "rowsplit", "host-simt")],
)
def test_the_example_is_measured(invoke, tmp_path, file, baseline, device):
    (tmp_path / "own.yaml").write_text(
        "schema: 1\nname: own\nops: [spmm]\nmatrices: [patterns/logsparse_64]\nwidths: [8]\n"
        f"implementations: [{baseline}, {file}]\nbaseline: {baseline}\n"
    )
    code, out, err = invoke("run", "own.yaml", "--device", device, "--json")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 2}


def checked_file(invoke, tmp_path, monkeypatch, old, new, *options):
    """Check the example's CUDA file after an edit, on two problems without the far one."""
    few = {name: one for name, one in problems().items() if name.startswith("spmm-under_32_rows-J3-")}
    monkeypatch.setattr(conformance, "problems", lambda: few)
    monkeypatch.setattr(conformance, "check_offsets", lambda *_: None)
    text = EXAMPLE.with_name("spmm_rows.cu").read_text()
    assert old in text
    (tmp_path / "own.cu").write_text(text.replace(old, new))
    return invoke("check", "./own.cu", "--device", "host-simt", *options)


def test_each_value_of_a_cuda_file_is_checked(invoke, tmp_path, monkeypatch):
    wrong = "from_float<T>(threads == 256 ? 2 * sum : sum)"
    code, out, err = checked_file(invoke, tmp_path, monkeypatch, "from_float<T>(sum)", wrong, "--json")
    assert code == 1, err
    answer = json.loads(out)
    assert [(told["config"], bool(told["flaws"])) for told in answer["devices"]] == [
        ({"threads": 128}, False),
        ({"threads": 64}, False),
        ({"threads": 256}, True),
    ]
    assert "own with threads = 256 on host-simt" in err
    assert "3 of 3 legal configs checked" in err


def test_of_many_configs_the_default_and_a_seeded_draw_are_checked(tmp_path):
    text = EXAMPLE.with_name("spmm_rows.cu").read_text()
    (tmp_path / "many.cu").write_text(text.replace("[128, 64, 256]", str([128, *range(32, 1025, 32)])))
    how = make(name_of(f"{tmp_path}/many.cu"), {})
    configs, legal = chosen_configs(how)
    assert (len(configs), legal, configs[0]) == (16, 32, {"threads": 128})
    assert len({one["threads"] for one in configs}) == 16
    assert chosen_configs(how)[0] == configs


def test_the_first_message_is_of_the_first_fault_with_the_sanitizers_words(invoke, tmp_path, monkeypatch):
    code, out, _ = checked_file(invoke, tmp_path, monkeypatch, "* width + j] = ", "* width + j + 1] = ")
    assert code == 1
    assert out.splitlines()[1] == "result on spmm-under_32_rows-J3-float32"
    assert "AddressSanitizer: heap-buffer-overflow" in out
    assert "own.cu:" in out
    assert "offsets on" not in out


def test_a_right_implementation_passes_on_every_device_that_is_here(invoke, tmp_path):
    code, answer, err = checked(invoke, tmp_path, MINE)
    assert code == 0, err
    assert [told["kind"] for told in answer["devices"]] == ["cpu"]
    assert "mine on " in err
    assert "checks, all passed" in err


@pytest.mark.parametrize(
    ("lines", "rule", "found", "remedy"),
    [
        (["right(operands, out)", "out *= 0.5"], "result", "error of 0.5; the worst", "rounding does not explain it"),
        (["right(operands, out)", "out[:] = out.astype('float16')"], "result", "the worst", "accumulate in float32"),
        (["right(operands, out)", "out[:1] = float('nan')"], "result", "left unwritten, or NaN, the first at", "empty"),
        (["right(operands, out)", "operands[0][:1] = 0"], "result", "another content", "buffer that the plan owns"),
        (["right(operands, out)", "held.append(0)", "out *= 1 + 1e-6 * (len(held) % 2)"], "result",
         "elements that differ", "deterministic = False"),
        (["right(operands, out)", "w = out.base", "w[: 8] = 0"], "result", "wrote before the result", "bounds"),
        (["right(operands, out)", "w = out.base", "w[-8:] = 0"], "result", "wrote past the result", "bounds"),
        (["out[:] = 0", "right(operands, out)"], "refusal", "another result than before", "before the launch"),
        (["try:", "    right(operands, out)", "except Exception:", "    pass"], "refusal", "a run", "check_operands"),
        (["{}['a']"], "result", "KeyError: 'a' (mine.py:", "mend what raises it"),
    ],
    ids=["wrong", "halved", "unwritten", "operand", "bits", "before", "past", "early", "unchecked", "exception"],
)  # fmt: skip
def test_a_wrong_run_says_what_was_expected_and_what_to_do(invoke, tmp_path, lines, rule, found, remedy):
    code, answer, err = checked(invoke, tmp_path, running(*lines), "--device", "cpu")
    assert code == 1, err
    assert not answer["passed"]
    flaws = [flaw for flaw in answer["devices"][0]["flaws"] if flaw["rule"] == rule]
    assert any(found in flaw["found"] and remedy in flaw["remedy"] for flaw in flaws), flaws[:3]
    assert f"{rule} on {flaws[0]['problem']}" in err
    assert flaws[0]["expected"] in err


@pytest.mark.parametrize(
    ("text", "rule", "found"),
    [
        ("    def unsupported(self, *_):\n        return ''\n", "build", "''"),
        ("    def unsupported(self, *_):\n        return 'not today'\n", "build", "refuses all: not today"),
        ("    def build(self, *_):\n        return 1 / 0\n", "build", "ZeroDivisionError: division by zero"),
        ("    kernels = ('spmm',)\n", "contract", "('spmm',)"),
        ("    def __eq__(self, other):\n        return self is other\n", "contract", "that they differ"),
        (telling("phases_s = {'think': 1.0}"), "account", "think"),
        (telling("stored = 0"), "account", "0"),
    ],
)  # fmt: skip
def test_a_wrong_class_says_what_was_found(invoke, tmp_path, text, rule, found):
    code, answer, err = checked(invoke, tmp_path, MINE + text, "--device", "cpu")
    assert code == 1, err
    assert any(flaw["rule"] == rule and found in flaw["found"] for flaw in answer["devices"][0]["flaws"])


def test_what_cannot_be_checked_has_another_exit_code(invoke, tmp_path):
    code, _, err = checked(invoke, tmp_path, "x = = 1")
    assert code == 2
    assert "mine.py:1: expected a file that Python imports" in err
    code, _, err = checked(invoke, tmp_path, MINE, "--device", "host-simt")
    assert code == 3
    assert "mine: expected a device out of its devices cpu, found host-simt" in err
    assert invoke("check", "scipy_gpu")[0] == 2


def test_refused_problems_are_counted_by_reason(invoke, tmp_path):
    refuses = "    def unsupported(self, problem, device):\n        return 'J is odd' if problem.width % 2 else None\n"
    (tmp_path / "mine.py").write_text(MINE + refuses)
    code, out, _ = invoke("check", "./mine.py:Mine", "--device", "cpu")
    assert code == 0
    assert "54 problems refused, which is no fault: J is odd" in out


def test_a_file_without_a_class_asks_for_one(invoke, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    code, _, err = invoke("check", "./mine.py")
    assert code == 2
    assert "add the class: ./mine.py:MyKernel" in err.replace("\n", " ")
