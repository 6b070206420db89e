"""``spmark study`` from the command line to its facts and its exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from collected_fakes import load, row_of, write_rows

from spmark.impls.core.errors import DatasetError
from spmark.studies.transferfacts import TransferRun, read_transfers
from spmark.suite.cli import main as cli
from spmark.suite.cli.options import ExitCode
from spmark.suite.study import transfer


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["spmark", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Write samples, and give the options that name them."""
    monkeypatch.setattr(transfer, "_load", load)
    words = [*"study transfer dash --source-matrices 1 --target-matrices 1 --out".split(), tmp_path / "out"]
    found: list[object] = [*words]
    for kind, platform, seed in (("source", "cpu", 0), ("target", "spade_sim", 10), ("evaluation", "spade_sim", 20)):
        write_rows(tmp_path / kind / "rows.jsonl", [row_of(platform, seed)])
        found += [f"--{kind}", tmp_path / kind]
    return found


def test_a_study_goes_on_until_nothing_is_left(
    options: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = run(*options, "--methods", "random5", "--seeds", 2, "--json", monkeypatch=monkeypatch)
    assert once == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert (answer["left"], answer["left_out"]) == (0, {})
    assert run(*options, "--methods", "target_best", "--seeds", 2, monkeypatch=monkeypatch) == ExitCode.OK
    (told,) = [fact for fact in read_transfers([tmp_path / "out" / "transfers.jsonl"]) if isinstance(fact, TransferRun)]
    assert told.command == (
        "spmark study transfer dash --source source --target target --evaluation evaluation --source-matrices 1 "
        "--target-matrices 1 --epochs 100"
    )
    assert told.samples.keys() == {f"{kind}/{kind}/rows.jsonl" for kind in ("source", "target", "evaluation")}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--methods", "dish"), "expected a method out of dash"),
        (("--op", "spgemm"), "--op: expected one of spmm, sddmm, found 'spgemm'"),
        (("--budget", "soon"), "soon"),
    ],
)
def test_what_no_study_can_do_is_refused(
    options: list[object],
    more: tuple[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*options, *more, monkeypatch=monkeypatch) not in {ExitCode.OK, ExitCode.FAILURES}
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_folder_without_samples_says_what_writes_them(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="found none: spmark study label and spmark study collect write such files"):
        transfer.labels_in(tmp_path)


def test_options_of_earlier_versions_say_what_became_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*"study train dash --source x --model scratch".split(), monkeypatch=monkeypatch) != 0
    assert "transfer dash --methods NAME" in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert run(*"study label liteform --exhaustive 3 --shard none".split(), monkeypatch=monkeypatch) != 0
    assert "--exhaustive does nothing since 0.2 and goes with 0.3\n" in capsys.readouterr().err
