"""What the pipeline makes out of the same inputs: plans, records of a run that was killed, tables and a comparison.

``python tests/golden/made.py`` writes the files of this folder anew; `test_golden.py` compares with them.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
REFERENCE = ROOT / "report" / "reference"
REPORTS = ("h200/stile_fig7_spmm", "h200/dash_study", "one_search")
PAIR = REFERENCE / "race" / "nvidia-h200"
RUNS = {"cpu": (), "host-simt": ("--only", "implementation=gespmm,sparsetir,cusparse", "--only", "matrix=rmat_tiny")}
"""Filters of the small sweep, by device."""
MASKED = {
    "environment", "facts", "samples_us", "warm_samples_us", "graph_samples_us", "baseline_samples_us", "clocks_mhz",
    "throttled", "phases_s", "search", "max_rel_error", "load_average", "free_cores", "peak_device_bytes",
    "copy_bytes_per_s", "flops_per_s", "started_at", "implementation_version", "device", "config", "baseline_config",
    "beside_us", "library",
}  # fmt: skip
"""Columns that differ from run to run or from machine to machine."""


def spmark(*words: str | Path) -> str:
    """Give what a command answers."""
    return subprocess.run(command(*words), capture_output=True, text=True, check=True, cwd=ROOT).stdout


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "spmark", *map(str, words)]


def plans() -> str:
    """Give a line for each case of each packaged sweep: what a run would do with it, and the bytes that it takes."""
    from spmark.suite.cli.main import app

    lines, terminal = [], CliRunner()
    with tempfile.TemporaryDirectory() as out:
        for sweep in sorted((ROOT / "datasets" / "sweeps").glob("*.yaml")):
            # One process runs all of these commands: importing what they need takes longer than most plans.
            words = ["run", sweep.stem, "--dry-run", "--json", "--device", "cpu", "--out", out]
            told = json.loads(terminal.invoke(app, words, catch_exceptions=False).stdout)
            cases = told["cases"]
            lines.append(f"{sweep.stem}: {len(cases)} cases, {told['run']} run, {told['refuse']} refused")
            lines += [f"  {one['case']} {one['action']} {one['memory_bytes']} {one['why'][:60]}" for one in cases]
    return "\n".join(lines) + "\n"


def records(device: str, folder: Path) -> str:
    """Run the small sweep, kill the run after some records, go on, and give the records without their times."""
    from spmark.report.records import load_every_run

    words = command("run", "smoke", "--device", device, *RUNS[device], "--out", folder)
    killed_after = 7 if device == "cpu" else 2
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        while process.poll() is None:
            if sum(len(file.read_bytes().splitlines()) for file in folder.rglob("records.jsonl")) >= killed_after:
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.01)
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    subprocess.run(words, capture_output=True, check=True, cwd=ROOT)
    frame = load_every_run(folder).sort_values("case_id")
    frame = frame[frame["implementation"] != "dgl"]  # which may be installed or not
    rows: list[dict[str, Any]] = []
    for row in frame.to_dict("records"):
        timed = {name: len(row[name]) > 0 for name in ("samples_us", "baseline_samples_us")}
        rows.append({key: str(value) for key, value in row.items() if key not in MASKED} | timed)
    again = json.loads(
        spmark("run", "smoke", "--device", device, *RUNS[device], "--out", folder, "--dry-run", "--json")
    )
    rows.append({"left": again["run"] + again["refuse"], "done": again["skip"]})
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def tables() -> str:
    """Give every CSV of some reports of published records, one after the other."""
    parts = []
    with tempfile.TemporaryDirectory() as out:
        for name in REPORTS:
            folder, records = Path(out) / name, Path(out) / "records" / name
            # Candidates are there where somebody fetched them.
            shutil.copytree(REFERENCE / name, records, ignore=shutil.ignore_patterns("candidates.*"))
            spmark("report", records, "--out", folder, "--figures", "all")
            for file in sorted(folder.rglob("*.csv")):
                parts.append(f"== {name}/{file.relative_to(folder)}\n{file.read_text()}")
    return "".join(parts)


def comparison() -> str:
    """Give what ``compare`` says of two published folders of one sweep."""
    done = subprocess.run(
        command("compare", PAIR / "before", PAIR / "after", "--json"), capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout


def made(folder: Path) -> dict[str, str]:
    """Give the text of each golden file by its name."""
    return {
        "plans": plans(),
        "tables": tables(),
        "compare": comparison(),
        **{f"records-{device}": records(device, folder / device) for device in RUNS},
    }


def read(name: str) -> str:
    """Give a golden file."""
    return lzma.decompress((HERE / f"{name}.txt.xz").read_bytes()).decode()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in made(Path(scratch)).items():
            (HERE / f"{name}.txt.xz").write_bytes(lzma.compress(text.encode(), preset=9))
