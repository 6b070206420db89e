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

import argparse
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
from queue import Empty, SimpleQueue
from threading import Lock

_COMPRESSED = ("records.jsonl", "candidates.jsonl")
_PLAIN = ("environments.jsonl", "runs.jsonl")
_FACTS = "transfers.jsonl"
"""Facts of `spmark study`."""
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".gz": partial(gzip.compress, compresslevel=9, mtime=0),
    ".xz": partial(lzma.compress, preset=9 | lzma.PRESET_EXTREME),
}
_NEW = {"records.jsonl": ".bz2", "candidates.jsonl": ".xz", _FACTS: ".xz"}
"""How a new archive is packed (`spmark.impls.core.unpack` says why)."""
_GRACE_S = 20
"""Seconds that a worker may go on after the limit, before its run is stopped; finished cases keep their records."""
_RUN = """
import os, sys
os.sched_setaffinity(0, map(int, sys.argv.pop(1).split(",")))
from spmark.suite.cli.main import main
main()
"""


@dataclass(frozen=True)
class Task:
    """A run of some matrices of one sweep."""

    sweep: str
    matrices: tuple[str, ...]
    place: int
    """Of the first matrix in the sweep, or of the task among those with missing cases; it names the folder."""
    only: tuple[str, ...] = ()
    """Filters of cases beside the matrices, as spmark run has them."""

    def __str__(self) -> str:
        """Name sweep and matrices."""
        return f"{self.sweep} {', '.join(self.matrices)}"

    def folder(self, out: Path) -> Path:
        """Give the folder of the task's records."""
        return out / f"{self.sweep}-{self.place:03d}"

    def command(self, out: Path, only: Sequence[str]) -> list[str]:
        """Give the options of spmark that measure the cases without records."""
        matrices = ",".join(self.matrices)
        chosen = [word for which in (f"matrix={matrices}", *self.only, *only) for word in ("--only", which)]
        return ["run", self.sweep, "--device", "cuda", *chosen, "--out", str(self.folder(out))]


@dataclass(frozen=True)
class Worker:
    """One GPU with cores of its own."""

    gpu: str
    cores: frozenset[int]

    def run(self, command: Sequence[str], log: Path, limit_s: float) -> int | None:
        """Run spmark on the worker's GPU and cores; gives its exit code, or None where the limit ended it."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUN, ",".join(map(str, sorted(self.cores))), *command],
                stdout=file,
                stderr=file,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": self.gpu},
            )
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
                return None


def workers(gpus: Sequence[str], cores: Iterable[int], each: int = 1) -> list[Worker]:
    """Make ``each`` workers a GPU, which take turns on it (`spmark.suite.run.gpu_lock`), and deal the cores out evenly.

    Raises
    ------
    SystemExit
        There is no GPU, or fewer cores than workers.
    """
    every, places = sorted(cores), [gpu for _ in range(each) for gpu in gpus]
    share = len(every) // len(places) if places else 0
    if not share:
        raise SystemExit(
            f"expected a GPU and a core for each of its {each} workers, found {len(gpus)} GPUs and {len(every)} cores"
        )
    return [Worker(gpu, frozenset(every[n * share : (n + 1) * share])) for n, gpu in enumerate(places)]


def collect(tasks: Sequence[Task], crew: Sequence[Worker], out: Path, only: Sequence[str], limit_s: float) -> int:
    """Run the tasks in their order until all are done or the time is up; gives how many were not finished."""
    ends, waiting, telling = time.monotonic() + limit_s, SimpleQueue[Task](), Lock()
    for task in tasks:
        waiting.put(task)

    def work(worker: Worker) -> int:
        done = 0
        while time.monotonic() < ends:
            try:
                task = waiting.get_nowait()
            except Empty:
                break
            begun = time.monotonic()
            log = task.folder(out) / "log.txt"
            code = worker.run(task.command(out, only), log, ends + _GRACE_S - begun)
            done += code == 0
            with telling:
                what = {0: "done", None: "stopped at the limit"}.get(code, f"exit code {code}, see {log}")
                _say(f"GPU {worker.gpu}: {task}: {time.monotonic() - begun:.0f} s, {what}")
        return done

    with ThreadPoolExecutor(len(crew)) as pool:
        return len(tasks) - sum(pool.map(work, crew))


def join(shards: Sequence[Path], into: Path) -> list[str]:
    """Join all result folders below ``shards`` by sweep, and the facts of studies by folder; gives a line on each.

    Lines that stand in ``into`` come first and stay. A line that two shards hold is kept once.

    Raises
    ------
    SystemExit
        A file that stands in ``into`` is damaged or not fetched, or has another one of its name beside it.
    """
    folders: dict[str, list[Path]] = {}
    for records in sorted(file for shard in shards for file in shard.rglob("records.jsonl")):
        folders.setdefault(records.parent.parent.name, []).append(records.parent)
    told = []
    for sweep, parts in folders.items():
        _check(into / sweep, parts)
    for sweep, parts in folders.items():
        target = into / sweep
        counts = {name: _joined(target, parts, name) for name in (*_COMPRESSED, *_PLAIN)}
        told.append(f"{target}: {counts['records.jsonl']} records of {len(parts)} shards")
    studies: dict[str, list[Path]] = {}
    for facts in sorted(file for shard in shards for file in shard.rglob(_FACTS)):
        studies.setdefault(facts.parent.name, []).append(facts.parent)
    for study, parts in studies.items():
        told.append(f"{into / study}: {_joined(into / study, parts, _FACTS)} facts of {len(parts)} shards")
    return told


def _joined(target: Path, parts: Sequence[Path], name: str) -> int:
    """Put the lines of one file of all parts behind those of the target; gives their number.

    An archive keeps its bytes and gets another archive of its kind behind them, so that git's history grows by what is
    new alone.
    """
    target.mkdir(parents=True, exist_ok=True)
    file = _standing(target, name) or target / f"{name}{_NEW.get(name, '')}"
    standing = _content(file)
    known = dict.fromkeys(_lines(standing))
    found = dict.fromkeys(line for part in parts for line in _lines(_content(part / name)))
    new = [line for line in found if line not in known]
    if new:
        whole = b"".join(known) == standing  # a torn line would spoil the line behind it
        text = b"".join(new if whole else [*known, *new])
        with file.open("ab" if whole else "wb") as opened:
            opened.write(_PACKERS[file.suffix](text) if file.suffix in _PACKERS else text)
    return len(known) + len(new)


def _check(target: Path, parts: Sequence[Path]) -> None:
    """Find out, before anything is written, whether the lines of all parts can be put behind those of the target.

    Raises
    ------
    SystemExit
        A file has another one of its name beside it, or candidates that are published apart are not here.
    """
    from spmark.report.asset import absence, absent_candidates

    for name in (*_COMPRESSED, *_PLAIN):
        _standing(target, name)
    if target.exists() and any((part / _COMPRESSED[1]).exists() for part in parts):
        if absent := absent_candidates(target):
            raise SystemExit(absence(absent))


def _standing(target: Path, name: str) -> Path | None:
    """Give the file of that name, packed or not, which a sweep's folder has; None where it has none.

    Raises
    ------
    SystemExit
        It has several.
    """
    from spmark.impls.core.recordfile import row_files

    files = row_files(target, name)
    if len(files) > 1:
        told = " and ".join(file.name for file in files)
        raise SystemExit(f"{target}: expected one file of {name}, found {told}: put the lines of both into one of them")
    return files[0] if files else None


def pack(reference: Path, out: Path, url: str | None = None, tag: str | None = None) -> Path:
    """Write the archive of all candidates below ``reference`` into ``out``, and their manifest; gives the archive.

    Raises
    ------
    SystemExit
        There are no candidates, or files that the manifest names are not here.
    """
    from spmark.report.asset import CANDIDATES, FILES, MANIFEST, CandidateAsset, PublishedFile, read_asset

    manifest = reference / MANIFEST
    before = read_asset(manifest) if manifest.exists() else None
    contents = {
        path.relative_to(reference).as_posix(): path.read_bytes()
        for path in reference.rglob(f"{CANDIDATES}.*")
        if path.name in FILES
    }
    absent = [one.path for one in before.files if one.path not in contents] if before else []
    if absent or not contents:
        told = ", ".join(absent) or CANDIDATES
        raise SystemExit(
            f"{reference}: expected {told}, found none: run `spmark fetch candidates`, or take what is published no "
            f"longer out of {MANIFEST}"
        )
    files = [
        PublishedFile(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for path, content in sorted(contents.items())
    ]
    archive = _tar(contents)
    digest = hashlib.sha256(archive).hexdigest()
    tag, name = tag or f"candidates-{digest[:12]}", f"spmark-candidates-{digest[:12]}.tar"
    if url is None and before and before.url and before.sha256 == digest and before.tag == tag:
        address = before.url
    else:
        address = f"{url.rstrip('/')}/releases/download/{tag}/{name}" if url else None
    asset = CandidateAsset(
        tag=tag, archive=name, url=address, bytes=len(archive), sha256=digest, files=tuple(files),
        commit=_commit(reference, contents, ([before.commit] if before and before.commit else []) + ["HEAD"]),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(archive)
    manifest.write_text(json.dumps(asset.model_dump(), indent=1) + "\n", encoding="utf-8")
    return out / name


def _tar(contents: dict[str, bytes]) -> bytes:
    """Give an archive that says nothing of this machine: no times, owners or order of folders."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in sorted(contents.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _commit(reference: Path, contents: dict[str, bytes], tried: Sequence[str]) -> str | None:
    """Give the first of the commits that has all files as they are; None where none has them."""
    for name in tried:
        commit = _git(reference, "rev-parse", "--verify", f"{name}^{{commit}}").strip()
        rows = (row.partition("\t") for row in _git(reference, "ls-tree", "-r", "-z", name, ".").split("\0"))
        there = {path: about.split()[2] for about, _, path in rows if path}
        if commit and all(there.get(path) == _blob(content) for path, content in contents.items()):
            return commit
    return None


def _git(folder: Path, *words: str) -> str:
    """Give what git prints; nothing where it fails."""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout


def _blob(content: bytes) -> str:
    """Give the name of a file's content in git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _lines(content: bytes) -> Iterator[bytes]:
    """Give the complete lines of a file's content: the last line of a killed run may be torn."""
    for line in content.splitlines(keepends=True):
        try:
            json.loads(line)
        except ValueError:
            continue
        yield line if line.endswith(b"\n") else line + b"\n"


def _content(path: Path) -> bytes:
    """Give what stands in a file, unpacked; nothing where there is no file.

    Raises
    ------
    SystemExit
        The archive is damaged.
    """
    from spmark.impls.core.errors import RecordError
    from spmark.impls.core.unpack import ARCHIVES, unpacked

    if not path.exists():
        return b""
    try:
        return unpacked(path) if path.suffix in ARCHIVES else path.read_bytes()
    except RecordError as error:
        raise SystemExit(str(error)) from error


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tasks(sweeps: Sequence[str], together: int = 1) -> list[Task]:
    from spmark.datasets.sweep.model import Sweep

    tasks = []
    for name in sweeps:
        matrices = [spec.name for spec in Sweep.load(name, ()).matrices]
        for place in range(0, len(matrices), together):
            tasks.append(Task(name, tuple(dict.fromkeys(matrices[place : place + together])), place))
    return tasks


def missing(sweeps: Sequence[str], reference: Path, together: int = 1, *, same_code: bool = False) -> list[Task]:
    """Make tasks of the cases that no records below ``reference`` answer, those of matrices with least non-zeros first.

    A case of several sweeps is measured for the first of them alone. Matrices without any record come first. With
    ``same_code``, records of other code answer nothing.
    """
    from spmark.datasets.sweep.model import Sweep, expand
    from spmark.impls.core.devicespec import DeviceKind
    from spmark.impls.core.digest import implementation_version
    from spmark.impls.table import IMPLEMENTATIONS, package

    versions = {name: implementation_version(package(name)) for name in IMPLEMENTATIONS} if same_code else {}
    answered, sizes = set[str](), dict[str, int]()
    # What searches measured is most of the bytes there, and answers no case.
    archives = [file for kind in _PACKERS for file in sorted(reference.rglob(f"*.jsonl{kind}"))]
    files = [file for file in archives if not file.name.startswith(_COMPRESSED[1])]
    for row in (json.loads(line) for file in files for line in _lines(_content(file))):
        # What does not build, such as a format that pads beyond its bound, would not build again: the record says why.
        if row.get("status") in ("ok", "unsupported", "build_error"):
            if not same_code or versions.get(row["implementation"]) == row["implementation_version"]:
                answered.add(row["case_id"])
            nnz = (row.get("problem") or {}).get("nnz", 0)
            sizes[row["matrix"]] = max(nnz, sizes.get(row["matrix"], 0))
    asked: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for sweep in sweeps:
        for case in expand(Sweep.load(sweep, ()), DeviceKind.CUDA):
            if case.case_id not in answered:
                answered.add(case.case_id)
                of = (f"source={case.matrix.source}", f"op={case.op}", f"width={case.width}", f"dtype={case.dtype}")
                asked.setdefault((sweep, case.matrix.name, of), []).append(case.label)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (sweep, matrix, of), labels in asked.items():
        alike.setdefault((sweep, (*of, f"label={','.join(labels)}")), []).append(matrix)
    runs = []
    for key, matrices in alike.items():
        matrices.sort(key=lambda matrix: sizes.get(matrix, 0))
        runs += [(key, matrices[place : place + together]) for place in range(0, len(matrices), together)]
    runs.sort(key=lambda run: sizes.get(run[1][0], 0))
    return [Task(sweep, tuple(matrices), place, of) for place, ((sweep, of), matrices) in enumerate(runs)]


def _packed(reference: Path, archive: Path) -> str:
    from spmark.report.asset import MANIFEST, read_asset

    asset = read_asset(reference / MANIFEST)
    lines = [f"{archive}: {len(asset.files)} files, {asset.bytes:,} bytes, for the release {asset.tag}"]
    if asset.url is None:
        lines.append("no address: --url names the repository on the web")
    if asset.url is None and asset.commit is None:
        lines.append("no commit holds these files: without a network, nobody gets them out of git")
    return "\n".join(lines)


def _gpus() -> list[str]:
    if chosen := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return chosen.split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [str(number) for number, _ in enumerate(listed)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect or join; the exit code is 1 where tasks are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="run sweeps over all GPUs")
    collecting.add_argument("sweeps", nargs="+")
    collecting.add_argument("--out", type=Path, required=True, help="a folder for each matrix is made in it")
    collecting.add_argument("--only", action="append", default=[], help="as spmark run has it")
    collecting.add_argument(
        "--together", type=int, default=1, help="matrices of a run, since a run takes seconds to begin"
    )
    collecting.add_argument("--missing", type=Path, help="leave out what records below this folder answer")
    collecting.add_argument("--same-code", action="store_true", help="with --missing: of the code at hand alone")
    collecting.add_argument("--each", type=int, default=1, help="workers of a GPU, which take turns on it")
    collecting.add_argument("--limit-s", type=float, default=480, help="no matrix is begun after that many seconds")
    joining = commands.add_parser("join", help="join shards by sweep")
    joining.add_argument("shards", nargs="+", type=Path)
    joining.add_argument("--into", type=Path, required=True)
    packing = commands.add_parser("pack", help="write the archive of all candidates and its manifest")
    packing.add_argument("reference", nargs="?", type=Path, default=Path("report/reference"))
    packing.add_argument("--out", type=Path, default=Path("out"), help="where the archive goes")
    packing.add_argument("--url", help="the repository on the web, whose release has the archive")
    packing.add_argument("--tag", help="of the release; by default from the archive's digest")
    asked = parser.parse_args(arguments)
    if asked.command == "join":
        _say("\n".join(join(asked.shards, asked.into)))
        return 0
    if asked.command == "pack":
        _say(_packed(asked.reference, pack(asked.reference, asked.out, asked.url, asked.tag)))
        return 0
    crew = workers(_gpus(), os.sched_getaffinity(0), asked.each)
    if asked.missing:
        tasks = missing(asked.sweeps, asked.missing, asked.together, same_code=asked.same_code)
    else:
        tasks = _tasks(asked.sweeps, asked.together)
    left = collect(tasks, crew, asked.out, asked.only, asked.limit_s)
    _say(f"{left} tasks are left")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
