"""The list of origins agrees with sources, sweeps, records and mirror, and a matrix is one under all of its names."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scripts_by_name import load_script

from spmark.datasets.cache import Cache
from spmark.datasets.fetching import Download, needed
from spmark.datasets.load import load_matrix
from spmark.datasets.mirror import at_origin
from spmark.datasets.origins import find_origin, origins
from spmark.datasets.readers.npz import write_npz
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.downloaded import DownloadedSource
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import MatrixSpec, Sweep
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.enums import RelationalOp
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.records.plausible import read_measurements
from spmark.records.schema import MatrixKind, Orientation

ROOT = Path(__file__).parents[2]


def test_every_address_is_the_one_of_its_source() -> None:
    for origin in origins().values():
        source = cast("DownloadedSource", find_source(origin.source))
        assert source.address(origin.name) == origin.url
        assert origin.name in source.names(Cache.default())


def test_no_matrix_of_a_packaged_sweep_is_in_a_mirror_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    asked = {matrix.id: matrix for name in packaged_sweeps() for matrix in Sweep.load(name).matrices}
    private = []
    for id, matrix in ((id, at_origin(matrix, None)) for id, matrix in asked.items()):
        (told,) = needed([matrix], cache).values()
        source = find_source(matrix.source)
        if not isinstance(told, Download) and (source.name == "mirror" or source.mirrored_as(matrix.name)):
            private.append(id)
    assert len(asked) > 1500
    assert not private


def test_names_are_of_one_matrix_each() -> None:
    names = [name for origin in origins().values() for name in (origin.id, *origin.aliases)]
    assert len(set(names)) == len(names) > 280
    patterns = [origin.pattern for origin in origins().values() if origin.pattern]
    assert len(patterns) - len(set(patterns)) == 1, "two graphs of Gset have one pattern"


@pytest.mark.full
def test_published_records_have_the_listed_patterns() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "report/reference/h200").glob("*/records.jsonl.gz"):
        for record in read_measurements(file):
            matrix = record.spec.matrix
            origin = find_origin(matrix.source, matrix.name)
            if record.spec.op is RelationalOp.RGMS:
                continue  # its hash counts the relations, too
            if origin is not None and record.matrix_hash and matrix.orientation is Orientation.A:
                found[origin.id].add(record.matrix_hash)
    assert len(found) == 78
    assert not [id for id, hashes in found.items() if hashes != {origins()[id].pattern}]


def test_the_script_computes_the_list(mirror: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del mirror
    script: Any = load_script("origins")
    blank = tmp_path / "origins.tsv"
    lines = [line.split("\t") for line in script.FILE.read_text().splitlines()]
    shown = [lines[0], *([*line[:2], "", "", "", "", *line[6:]] if line[1] else line for line in lines[1:])]
    blank.write_text("".join("\t".join(line) + "\n" for line in reversed(shown[1:])))
    blank.write_text("\t".join(lines[0]) + "\n" + blank.read_text())
    committed = script.FILE.read_text()
    monkeypatch.setattr(script, "FILE", blank)
    script.main()
    assert blank.read_text() == committed
    blank.write_text(committed.replace("\t2708\t2708\t10556\t", "\t2708\t2708\t10557\t"))
    with pytest.raises(SystemExit, match="planetoid/cora: expected nnz 10557 as listed, found 10556"):
        script.main()


TRUE, OTHER = b"0 1\n1 2\n", b"0 2\n1 2\n"
"""Two graphs of three nodes and, in both directions, four edges."""
WEB = MatrixSpec(source="bionev", name="web")
HEADER = "name\tcategory\tsource\tlicence\trows\tcols\tnnz\tnote\n"


def raw(text: bytes) -> RawMatrix:
    edges = [tuple(map(int, line.split())) for line in text.splitlines()]
    both = np.array(sorted(edges + [edge[::-1] for edge in edges]))
    indptr = np.searchsorted(both[:, 0], np.arange(4))
    return RawMatrix((3, 3), indptr, both[:, 1], np.ones(4, np.float32), MatrixKind.REAL)


def hashed(text: bytes) -> str:
    matrix = raw(text)
    return Csr.checked(matrix.shape, matrix.indptr, matrix.indices, np.ones(4), where="x").hash


@pytest.fixture
def web(server, list_origin):
    """List the graph with its hash, and serve it."""
    server.files["/web"] = TRUE
    list_origin("bionev/web", (3, 3, 4), server.url + "web", hashed(TRUE), ("mirror/old",))
    return server


def mirrored(folder: Path, place: str, text: bytes) -> Path:
    category, _, name = place.partition("/")
    path = folder / f"{place}.npz"
    path.parent.mkdir(parents=True)
    write_npz(path, raw(text))
    (folder / "MANIFEST.tsv").write_text(f"{HEADER}{name}\t{category}\there\tMIT\t3\t3\t4\t\n")
    return folder


def test_a_download_of_another_matrix_of_the_same_size_is_refused(web, cache):
    web.files["/web"] = OTHER
    told = rf"expected the pattern {hashed(TRUE)[:12]} that origins.tsv states for bionev/web \(http.*/web\), "
    with pytest.raises(DatasetError, match=told + rf"found {hashed(OTHER)[:12]} in what the source gives"):
        load_matrix(WEB, cache, 0)


@pytest.mark.parametrize("orientation", ["A", "AT"])
@pytest.mark.parametrize("place", ["bionev/web", "gnn/old"])
def test_a_mirror_is_asked_first_by_origin_and_by_alias(web, tmp_path, place, orientation):
    cache = Cache(tmp_path / "c", mirrored(tmp_path / "m", place, TRUE))
    loaded = load_matrix(WEB.model_copy(update={"orientation": Orientation(orientation)}), cache, 0)
    assert loaded.csr.hash == hashed(TRUE)
    assert loaded.kind is loaded.source_kind is MatrixKind.PATTERN, "what a mirror holds as values does not count"
    assert web.requests == 0


@pytest.mark.parametrize("place", ["bionev/web", "gnn/old"])
def test_a_mirror_with_another_matrix_is_refused(web, tmp_path, place):
    cache = Cache(tmp_path / "c", mirrored(tmp_path / "m", place, OTHER))
    with pytest.raises(DatasetError, match=rf"found {hashed(OTHER)[:12]} in the mirror .*m: another matrix"):
        load_matrix(WEB, cache, 0)


def test_a_cached_matrix_that_is_another_is_made_again(web, cache, caplog):
    cache.keep("bionev", "web", {}, raw(OTHER))
    assert load_matrix(WEB, cache, 0).csr.hash == hashed(TRUE)
    assert "making bionev/web again" in caplog.text


def test_an_alias_is_loaded_from_its_origin(web, cache):
    loaded = load_matrix(MatrixSpec(source="mirror", name="old"), cache, 0)
    assert loaded.csr.hash == hashed(TRUE)
    assert web.requests == 1


def test_an_alias_of_a_matrix_in_the_mirror_has_the_values_there(web, tmp_path):
    cache = Cache(tmp_path / "c", mirrored(tmp_path / "m", "gnn/old", TRUE))
    for name in ("old", "gnn/old"):
        loaded = load_matrix(MatrixSpec(source="mirror", name=name, values="stored"), cache, 0)
        assert loaded.kind is MatrixKind.REAL
    assert web.requests == 0


def test_a_matrix_of_one_s_own_mirror_that_has_a_listed_name_goes_by_its_folder(web, tmp_path):
    cache = Cache(tmp_path / "c", mirrored(tmp_path / "m", "gnn/old", OTHER))
    with pytest.raises(DatasetError, match=r"origins\.tsv states for bionev/web"):
        load_matrix(MatrixSpec(source="mirror", name="old"), cache, 0)
    assert load_matrix(MatrixSpec(source="mirror", name="gnn/old"), cache, 0).csr.hash == hashed(OTHER)


def test_the_first_fetch_keeps_a_hash_that_the_list_lacks(server, tmp_path, list_origin, caplog):
    server.files["/web"] = TRUE
    list_origin("bionev/web", (3, 3, 4), server.url + "web")
    load_matrix(WEB, Cache(tmp_path / "c"), 0)
    assert f"bionev/web: no hash of its pattern is listed; this machine keeps the first: {hashed(TRUE)}" in caplog.text
    cache = Cache(tmp_path / "c", mirrored(tmp_path / "m", "bionev/web", OTHER))
    with pytest.raises(DatasetError, match=rf"{hashed(TRUE)[:12]} that .*web\.sha256 states .*in the mirror"):
        load_matrix(WEB, cache, 0)
