"""Collect the records of sweeps over all GPUs of a machine, in shards that go on; join the shards; pack what is large.

    python scripts/reference.py collect judging_graphs judging_layers --out shards --limit-s 480
    python scripts/reference.py join shards --into report/reference/h200
    python scripts/reference.py pack --url https://github.com/OWNER/spmark

`collect` lets one worker a GPU take the next sweep and matrix. Each worker has cores of its own, each run a folder of
its own, and all share the cache of compiled kernels. With `--each 2`, a GPU has two workers: while one measures, the
other loads its matrix and computes what results are compared with. `--together 8` gives a run eight matrices: the same
number has to stand in the command that goes on. Cases with records are not measured again, so the same command goes on
after a limit. `--missing report/reference/h200` leaves out the cases that records of some sweep there answer already,
and takes the smallest matrices first: what a limit leaves are the few largest ones. With `--same-code`, records answer
only where they are of the code at hand.

`join` puts the lines of all shards of a sweep into one compressed file, unchanged and each once, and the facts of
studies likewise.

`pack` puts all candidates of the published records into one archive under `out`, to be uploaded to the release that it
prints, and writes the manifest by which `spmark fetch candidates` finds and checks them. The same files give the same
bytes. Files that the manifest names and that are not here have to be fetched first.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import RecordError
from spmark.impls.table import IMPLEMENTATIONS, module_of
from spmark.records.rowfile import row_files
from spmark.records.unpack import ARCHIVES, unpacked
from spmark.report import candidates as asset
from spmark.report.records import load_records

_PACKED = {"records.jsonl": ".bz2", "candidates.jsonl": ".xz", "transfers.jsonl": ".xz"}
"""How a new archive is packed (`spmark.records.unpack` says why); other files of a shard stay as they are."""
_FILES = (*_PACKED, "environments.jsonl", "runs.jsonl")
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".gz": partial(gzip.compress, compresslevel=9, mtime=0),
    ".xz": partial(lzma.compress, preset=9 | lzma.PRESET_EXTREME),
}
_GRACE_S = 20
"""Seconds that a worker may go on after the limit, before its run is stopped; finished cases keep their records."""
_PROGRAM = (sys.executable, "-m", "spmark")

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True)
class Task:
    """A run of some matrices of one sweep."""

    sweep: str
    matrices: tuple[str, ...]
    place: int
    """Of the first matrix in the sweep, or of the task among those with missing cases; it names the folder."""
    only: tuple[str, ...] = ()
    """Filters of cases beside the matrices, as spmark run has them."""

    def folder(self, out: Path) -> Path:
        """Give the folder of the task's records."""
        return out / f"{self.sweep}-{self.place:03d}"

    def command(self, out: Path, only: Sequence[str] = ()) -> list[str]:
        """Give the options of spmark that measure the cases without records."""
        filters = (f"matrix={','.join(self.matrices)}", *self.only, *only)
        chosen = [word for one in filters for word in ("--only", one)]
        return ["run", self.sweep, "--device", "cuda", *chosen, "--out", str(self.folder(out))]


def every_matrix(sweeps: Sequence[str], together: int = 1) -> list[Task]:
    """Make tasks of all matrices of the sweeps, ``together`` of them a task."""
    tasks = []
    for sweep in sweeps:
        names = [spec.name for spec in Sweep.load(sweep).matrices]
        for place in range(0, len(names), together):
            tasks.append(Task(sweep, tuple(dict.fromkeys(names[place : place + together])), place))
    return tasks


def missing(sweeps: Sequence[str], records: pd.DataFrame, together: int = 1, *, same_code: bool = False) -> list[Task]:
    """Make tasks of the cases that no records answer, those of matrices with least non-zeros first.

    A case of several sweeps is measured for the first of them alone. Matrices without any record come first. With
    ``same_code``, records of other code answer nothing. ``records`` is a frame of `spmark.report.records.load_records`.
    """
    # What does not build, such as a format that pads beyond its bound, would not build again: the record says why.
    answers = records[records["status"].isin(("ok", "unsupported", "build_error"))]
    if same_code:
        versions = {name: implementation_version(module_of(name)) for name in IMPLEMENTATIONS}
        answers = answers[answers["implementation"].map(versions) == answers["implementation_version"]]
    sizes, answered = records.groupby("matrix")["nnz"].max(), set(answers["case_id"])
    cases = pd.DataFrame(
        {
            "sweep": sweep, "case_id": case.case_id, "matrix": case.matrix.name, "source": case.matrix.source,
            "op": str(case.op), "scaled": str(case.scaled).lower(), "width": case.width, "dtype": str(case.dtype),
            "label": case.label, "size": max(sizes.get(id, 0) for id in (case.matrix.id, *case.matrix.aliases)),
            "answered": not answered.isdisjoint((case.case_id, *case.other_ids)),
        }
        for sweep in sweeps for case in expand(Sweep.load(sweep), DeviceKind.CUDA)
    ).drop_duplicates("case_id")  # fmt: skip
    cases = cases[~cases["answered"]]
    kind = ["source", "op", "scaled", "width", "dtype"]
    labels = cases.groupby(["sweep", *kind, "matrix", "size"], sort=False)["label"].agg(",".join).reset_index()
    runs = []
    for (sweep, *values), alike in labels.sort_values("size").groupby(["sweep", *kind, "label"], sort=False):
        only = tuple(f"{key}={value}" for key, value in zip([*kind, "label"], values, strict=True))
        for first in range(0, len(alike), together):
            part = alike[first : first + together]
            runs.append((part["size"].iloc[0], sweep, tuple(part["matrix"]), only))
    runs.sort(key=lambda run: run[0])
    return [Task(sweep, matrices, place, only) for place, (_, sweep, matrices, only) in enumerate(runs)]


def workers(gpus: Sequence[str], cores: Iterable[int], each: int = 1) -> list[tuple[str, str]]:
    """Make ``each`` workers a GPU, which take turns on it (`spmark.suite.run.gpu_lock`), and deal the cores out evenly.

    Returns
    -------
    list of tuple
        A worker's GPU and its cores, as ``taskset`` and ``CUDA_VISIBLE_DEVICES`` have them.

    Raises
    ------
    SystemExit
        There is no GPU, or fewer cores than workers.
    """
    every, places = sorted(cores), list(gpus) * each
    share = len(every) // len(places) if places else 0
    if not share:
        raise SystemExit(
            f"expected a GPU and a core for each of its {each} workers, found {len(gpus)} GPUs and {len(every)} cores"
        )
    return [(gpu, ",".join(map(str, every[at * share : (at + 1) * share]))) for at, gpu in enumerate(places)]


def run_tasks(
    tasks: Sequence[Task], crew: Sequence[tuple[str, str]], out: Path, only: Sequence[str], limit_s: float
) -> int:
    """Run the tasks in their order until all are done or the time is up; gives how many were not finished."""
    ends, waiting = time.monotonic() + limit_s, iter(tasks)  # next() of a list's iterator is safe among threads

    def work(worker: tuple[str, str]) -> int:
        gpu, cores = worker
        done = 0
        while time.monotonic() < ends and (task := next(waiting, None)):
            begun, log = time.monotonic(), task.folder(out) / "log.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = ["taskset", "--cpu-list", cores, *_PROGRAM, *task.command(out, only)]
            with log.open("ab") as file:
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
                process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
                try:
                    code = process.wait(ends + _GRACE_S - begun)
                    told = f"exit code {code}, see {log}" if code else "done"
                    done += code == 0
                except subprocess.TimeoutExpired:
                    process.terminate()
                    process.wait()
                    told = "stopped at the limit"
            typer.echo(f"GPU {gpu}: {task.sweep} {', '.join(task.matrices)}: {time.monotonic() - begun:.0f} s, {told}")
        return done

    with ThreadPoolExecutor(len(crew)) as pool:
        return len(tasks) - sum(pool.map(work, crew))


@app.command()
def collect(
    sweeps: list[str],
    *,
    out: Annotated[Path, typer.Option(help="a folder for each task is made in it")],
    only: Annotated[list[str], typer.Option(help="as spmark run has it")] = [],  # noqa: B006
    together: Annotated[int, typer.Option(help="matrices of a run, since a run takes seconds to begin")] = 1,
    missing_in: Annotated[
        Path | None, typer.Option("--missing", help="leave out what records below this folder answer")
    ] = None,
    same_code: Annotated[bool, typer.Option("--same-code", help="with --missing: of the code at hand alone")] = False,
    each: Annotated[int, typer.Option(help="workers of a GPU, which take turns on it")] = 1,
    limit_s: Annotated[float, typer.Option(help="no task is begun after that many seconds")] = 480,
) -> None:
    """Run sweeps over all GPUs; the exit code is 1 where tasks are left."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not gpus[0]:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        gpus = list(map(str, range(len(listed.splitlines()))))
    crew = workers(gpus, os.sched_getaffinity(0), each)
    if missing_in:
        tasks = missing(sweeps, load_records(missing_in), together, same_code=same_code)
    else:
        tasks = every_matrix(sweeps, together)
    left = run_tasks(tasks, crew, out, only, limit_s)
    typer.echo(f"{left} tasks are left")
    raise typer.Exit(int(left > 0))


@app.command()
def join(shards: list[Path], into: Annotated[Path, typer.Option()]) -> None:
    """Join shards by sweep, and facts of studies by folder.

    Lines that stand in ``into`` come first and stay. A line that two shards hold is kept once. Nothing is written where
    a file that stands in ``into`` has another one of its name beside it, or candidates of it are not here.
    """
    parts: dict[Path, list[Path]] = {}
    for file in sorted(file for shard in shards for file in shard.rglob("*.jsonl")):
        if file.name in ("records.jsonl", "transfers.jsonl"):
            sweep = file.parents[1 if file.name == "records.jsonl" else 0].name
            parts.setdefault(into / sweep, []).append(file.parent)
    for target, folders in parts.items():
        standing = [standing_file(target, name) for name in _FILES]
        if any(standing) and any((folder / asset.CANDIDATES).exists() for folder in folders):
            if absent := asset.absent_candidates(target):
                raise SystemExit(asset.absence(absent))
    for target, folders in parts.items():
        counts = {name.removesuffix(".jsonl"): join_file(target, folders, name) for name in _FILES}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        typer.echo(f"{target}: {told} of {len(folders)} shards")


def standing_file(target: Path, name: str) -> Path | None:
    """Give the file of that name, packed or not, which a sweep's folder has; None where it has none.

    Raises
    ------
    SystemExit
        It has several.
    """
    files = row_files(target, name)
    if len(files) > 1:
        told = " and ".join(file.name for file in files)
        raise SystemExit(f"{target}: expected one file of {name}, found {told}: put the lines of both into one of them")
    return files[0] if files else None


def join_file(target: Path, parts: Sequence[Path], name: str) -> int:
    """Put the lines of one file of all parts behind those of the target; gives their number.

    An archive keeps its bytes and gets another archive of its kind behind them, so that git's history grows by what is
    new alone.
    """
    target.mkdir(parents=True, exist_ok=True)
    file = standing_file(target, name) or target / f"{name}{_PACKED.get(name, '')}"
    standing = content(file)
    known = dict.fromkeys(complete_lines(standing))
    found = dict.fromkeys(line for part in parts for line in complete_lines(content(part / name)))
    new = [line for line in found if line not in known]
    if new:
        whole = b"".join(known) == standing  # a torn line would spoil the line behind it
        text = b"".join(new if whole else [*known, *new])
        with file.open("ab" if whole else "wb") as opened:
            opened.write(_PACKERS[file.suffix](text) if file.suffix in _PACKERS else text)
    return len(known) + len(new)


def complete_lines(text: bytes) -> Iterator[bytes]:
    """Give the complete lines of a file's content: the last line of a killed run may be torn."""
    for line in text.splitlines(keepends=True):
        try:
            json.loads(line)
        except ValueError:
            continue
        yield line if line.endswith(b"\n") else line + b"\n"


def content(path: Path) -> bytes:
    """Give what stands in a file, unpacked; nothing where there is no file.

    Raises
    ------
    SystemExit
        The archive is damaged.
    """
    if not path.exists():
        return b""
    try:
        return unpacked(path) if path.suffix in ARCHIVES else path.read_bytes()
    except RecordError as error:
        raise SystemExit(str(error)) from error


@app.command()
def pack(
    reference: Annotated[Path, typer.Argument()] = Path("report/reference"),
    out: Annotated[Path, typer.Option(help="where the archive goes")] = Path("out"),
    url: Annotated[str | None, typer.Option(help="the repository on the web, whose release has the archive")] = None,
    tag: Annotated[str | None, typer.Option(help="of the release; by default from the archive's digest")] = None,
) -> None:
    """Write the archive of all candidates and its manifest.

    It fails where there are no candidates, or files that the manifest names are not here.
    """
    manifest = reference / asset.MANIFEST
    before = asset.read_asset(manifest) if manifest.exists() else None
    contents = {
        path.relative_to(reference).as_posix(): path.read_bytes()
        for path in sorted(reference.rglob(f"{asset.CANDIDATES}.*")) if path.name in asset.FILES
    }  # fmt: skip
    absent = [one.path for one in before.files if one.path not in contents] if before else []
    if absent or not contents:
        raise SystemExit(
            f"{reference}: expected {', '.join(absent) or asset.CANDIDATES}, found none: run `{asset.FETCH}`, or take "
            f"what is published no longer out of {asset.MANIFEST}"
        )
    archive = tar(contents)
    digest = hashlib.sha256(archive).hexdigest()
    tag, name = tag or f"candidates-{digest[:12]}", f"spmark-candidates-{digest[:12]}.tar"
    address = f"{url.rstrip('/')}/releases/download/{tag}/{name}" if url else None
    if before and (before.sha256, before.tag) == (digest, tag):
        address = address or before.url
    tried = [before.commit, "HEAD"] if before and before.commit else ["HEAD"]
    told = asset.CandidateAsset(
        tag=tag, archive=name, url=address, bytes=len(archive), sha256=digest,
        commit=next((commit for one in tried if (commit := commit_with(reference, list(contents), one))), None),
        files=tuple(
            asset.PublishedFile(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            for path, data in sorted(contents.items())
        ),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(archive)
    manifest.write_text(json.dumps(told.model_dump(), indent=1) + "\n", encoding="utf-8")
    typer.echo(f"{out / name}: {len(contents)} files, {len(archive):,} bytes, for the release {tag}")
    if address is None:
        typer.echo("no address: --url names the repository on the web")
        if told.commit is None:
            typer.echo("no commit holds these files: without a network, nobody gets them out of git")


def tar(contents: dict[str, bytes]) -> bytes:
    """Give an archive that says nothing of this machine: no times, owners or order of folders."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, data in sorted(contents.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def commit_with(reference: Path, paths: Sequence[str], name: str) -> str | None:
    """Give the full name of a commit that has all files as they are; None where it lacks one, or there is no git."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(reference), *words], capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    blobs = {line.partition("\t")[2]: line.split()[2] for line in git("ls-tree", "-r", name, ".")}
    here = git("hash-object", "--no-filters", *paths)
    same = bool(here) and [blobs.get(path) for path in paths] == here
    return git("rev-parse", f"{name}^{{commit}}")[0] if same else None


if __name__ == "__main__":
    app()
