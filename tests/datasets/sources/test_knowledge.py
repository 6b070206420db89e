"""Knowledge graphs in tiny archives of their publishers' formats; the packages ogb and dgl read the same by hash."""

from __future__ import annotations

import gzip
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import zipped
from file_server import FileServer
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.relational import load_relational
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources import knowledge
from spmark.datasets.sources.knowledge import read_biokg, read_rdf
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.relational import RelationalCsr


def relational(raw: RawMatrix) -> RelationalCsr:
    wide = sparse.csr_array((np.ones(len(raw.indices), np.float32), raw.indices, raw.indptr), raw.shape)
    return RelationalCsr.checked(wide, raw.shape[1] // raw.shape[0])


BIOKG = {
    f"biokg/raw/{name}.csv.gz": gzip.compress(content)
    for name, content in {
        "num-node-dict": b"protein,drug\n3,2\n",
        "triplet-type-list": b"protein,protein_binds,protein\ndrug,drug-protein,protein\n",
        "relations/protein___protein_binds___protein/edge": b"0,2\n2,0\n1,1\n",
        "relations/protein___protein_binds___protein/num-edge-list": b"3\n",
        "relations/drug___drug-protein___protein/edge": b"1,0\n0,2\n",
        "relations/drug___drug-protein___protein/num-edge-list": b"2\n",
    }.items()
}


def without(member: str, content: bytes) -> bytes:
    return zipped({**BIOKG, f"biokg/raw/{member}.csv.gz": gzip.compress(content)})


def test_biokg(tmp_path: Path) -> None:
    """Drugs are nodes 0 and 1, proteins 2 to 4; the first relation is drug-protein."""
    (tmp_path / "biokg.zip").write_bytes(zipped(BIOKG))
    found = relational(read_biokg(tmp_path / "biokg.zip"))
    assert (found.relations, found.num_rows) == (2, 5)
    edges = {(int(r), int(i), int(j)) for r, i, j in zip(*found.edges, strict=True)}
    assert edges == {(0, 2, 1), (0, 4, 0), (1, 4, 2), (1, 2, 4), (1, 3, 3)}


def test_ogb_gives_the_same_biokg(ogb: Any, tmp_path: Path) -> None:
    (tmp_path / "biokg.zip").write_bytes(zipped(BIOKG))
    with zipfile.ZipFile(tmp_path / "biokg.zip") as archive:
        archive.extractall(tmp_path)
    graph = ogb.read_csv_heterograph_raw(str(tmp_path / "biokg/raw"))[0]
    sizes = graph["num_nodes_dict"]
    starts = {name: sum(sizes[other] for other in sorted(sizes) if other < name) for name in sizes}
    relation, rows, cols = [], [], []
    for number, (triplet, (heads, tails)) in enumerate(graph["edge_index_dict"].items()):
        relation += [number] * len(heads)
        rows += (tails + starts[triplet[2]]).tolist()
        cols += (heads + starts[triplet[0]]).tolist()
    theirs = RelationalCsr.of_edges((5, 5), 2, (relation, rows, cols))
    assert theirs.hash == relational(read_biokg(tmp_path / "biokg.zip")).hash
    assert theirs.hash == relational(read_biokg(tmp_path / "biokg")).hash, "the folder that ogb unpacks to"


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (without("num-node-dict", b"protein,drug\n3\n"), "num-node-dict.csv.gz with a number of nodes for each type"),
        (without("triplet-type-list", b"drug,treats,disease\n"), "types out of drug, protein, found 'drug,treats,dis"),
        (without("triplet-type-list", b"drug,/../x,drug\n"), "lines of a type, a relation and a type"),
        (without("triplet-type-list", b""), "expected relations, found none"),
        (without("relations/drug___drug-protein___protein/edge", b"2,0\n"), r"nodes in \[0, 2\) of type drug"),
        (without("relations/drug___drug-protein___protein/edge", b"1;0\n"), "2 integers in every line"),
    ],
)
def test_files_of_biokg_that_do_not_fit(archive: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "biokg.zip").write_bytes(archive)
    with pytest.raises(DatasetError, match=message):
        read_biokg(tmp_path / "biokg.zip")


HEAD = {
    "a": "http://www.aifb.uni-karlsruhe.de/",
    "o": "http://swrc.ontoware.org/ontology#",
    "m": "http://dl-learner.org/carcinogenesis#",
    "b": "http://data.bgs.ac.uk/",
    "c": "http://purl.org/collections/nl/am/",
    "s": "http://www.w3.org/2000/01/rdf-schema#",
}


def ntriples(*lines: str) -> bytes:
    """Write lines of three words: ``a:x`` an address by its head, ``_:x`` a blank node, others as they are."""

    def word(short: str) -> str:
        head, _, rest = short.partition(":")
        return f"<{HEAD[head]}{rest}>" if head in HEAD else short

    return "".join(" ".join(map(word, line.split())) + " .\n" for line in lines).encode()


N3 = """@prefix o: <http://swrc.ontoware.org/ontology#> .
<http://www.aifb.uni-karlsruhe.de/Personen/viewPersonOWL/id1instance>
    o:name "Ada", "Zuse"@de ; a o:Person ; o:affiliation <http://www.aifb.uni-karlsruhe.de/Gruppen/v/id9> ;
    o:worksWith <http://www.aifb.uni-karlsruhe.de/Personen/viewPersonOWL/id2instance>, _:someone .
<http://www.aifb.uni-karlsruhe.de/Personen/viewPersonOWL/id2instance> o:name "Ada" .
"""
SPLIT = {"trainingSet.tsv": b"head\n", "testSet.tsv": b"head\n"}
ARCHIVES = {
    "aifb": ({"aifbfixed_complete.n3": N3.encode()}, "AIFBDataset"),
    "mutag": (
        {
            "mutag.nt": ntriples(
                "m:d1 m:hasBond m:bond7",
                "m:bond7 m:inBond m:d1_2",
                "m:d1 m:charge m:high",
                'm:d1 m:weight "3"^^<http://www.w3.org/2001/XMLSchema#integer>',
                "m:d1 m:isMutagenic m:yes",
                "m:high s:subClassOf m:charge_class",
                'm:d1 s:label "one"',
                "m:d1 s:seeAlso o:elsewhere",
            )
        },
        "MUTAGDataset",
    ),
    "bgs": (
        {
            "1.nt": ntriples(
                "b:id/Lexicon/NamedRockUnit/A b:ref/Lexicon/hasRank b:id/Lexicon/Rank/R1",
                "b:id/Lexicon/NamedRockUnit/A b:ref/Lexicon/hasRank b:id/Lexicon/Rank/R1",
                "b:id/Lexicon/NamedRockUnit/B s:seeAlso b:id/Lexicon/NamedRockUnit/A",
                "b:id/Lexicon/NamedRockUnit/B b:ref/Lexicon/hasLithogenesis b:id/Lexicon/Rank/R1",
                "b:id/Lexicon/NamedRockUnit/B b:ref/short b:id/Lexicon/Rank/R1",
                'b:id/Lexicon/NamedRockUnit/B b:ref/Lexicon/hasRank "first"',
            ),
            "2.nt": ntriples(
                "b:id/Lexicon/NamedRockUnit/A b:ref/Lexicon/hasRank b:id/Lexicon/Rank/R1",
                "b:id/Lexicon/NamedRockUnit/B b:ref/Lexicon/hasRank b:ref/CurrentStatus/x/y",
                "b:id/Lexicon/NamedRockUnit/B b:ref/Lexicon/hasRank b:id/Lexicon/R2",
            ),
            "readme.txt": b"no triples",
        },
        "BGSDataset",
    ),
    "am": (
        {
            "am.nt": ntriples(
                "c:proxy-1 c:maker c:p-20",
                "c:proxy-1 c:maker _:someone",
                "_:someone c:knows c:p-20",
                "c:proxy-1 s:seeAlso c:t-1-2",
                "c:proxy-1 c:material c:t-1-2",
                'c:proxy-1 c:title "night"',
                "c:proxy-1 c:maker o:elsewhere",
            )
        },
        "AMDataset",
    ),
}
COUNTS = {"aifb": (4, 8), "mutag": (8, 12), "bgs": (3, 6), "am": (4, 8)}
"""Nodes and edges, by hand."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Write an archive, for the counts of which its rules then stand."""
    pytest.importorskip("rdflib")
    tiny = {
        name: knowledge.RDF_GRAPHS[name]._replace(nodes=nodes, edges=edges) for name, (nodes, edges) in COUNTS.items()
    }
    monkeypatch.setattr(knowledge, "RDF_GRAPHS", tiny)

    def write(name: str) -> Path:
        path = tmp_path / f"{name}-hetero.zip"
        path.write_bytes(zipped({**ARCHIVES[name][0], **SPLIT}))
        return path

    return write


def test_aifb(written: Callable[[str], Path]) -> None:
    """Sorted: id1 name Ada, id1 name Zuse, id1 worksWith id2, id2 name Ada."""
    found = relational(read_rdf(written("aifb"), "aifb"))
    edges = {(int(r), int(i), int(j)) for r, i, j in zip(*found.edges, strict=True)}
    forward = {(0, 1, 0), (0, 2, 0), (1, 3, 0), (0, 1, 3)}
    assert edges == forward | {(r + 2, j, i) for r, i, j in forward}


@pytest.mark.parametrize("name", ARCHIVES)
def test_dgl_gives_the_same(
    name: str, written: Callable[[str], Path], dgl_data: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive, kind = written(name), getattr(dgl_data, ARCHIVES[name][1])

    def unzip(self: Any) -> None:
        with zipfile.ZipFile(archive) as file:
            file.extractall(self.raw_path)

    class Built(Exception):
        pass

    def build(self: Any, *graph: Any) -> None:
        raise Built(graph)

    monkeypatch.setattr(kind, "download", unzip)
    monkeypatch.setattr(kind, "build_graph", build)
    with pytest.raises(Built) as caught:
        kind(raw_dir=str(tmp_path / "raw"), verbose=False)
    _, src, dst, types, relation, _, relations = caught.value.args[0]
    theirs = RelationalCsr.of_edges((len(types), len(types)), len(relations), (relation, dst, src))
    assert theirs.hash == relational(read_rdf(archive, name)).hash


def test_counts_that_dgl_does_not_state(written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = written("bgs")
    counts = {"bgs": knowledge.RDF_GRAPHS["bgs"]._replace(edges=8)}
    monkeypatch.setattr(knowledge, "RDF_GRAPHS", counts)
    with pytest.raises(DatasetError, match="expected 3 nodes and 8 edges as DGL states, found 3 and 6"):
        read_rdf(path, "bgs")


def test_a_broken_file(written: Callable[[str], Path], tmp_path: Path) -> None:
    written("am").write_bytes(zipped({"am.nt": b"<http://x> <http://y> .\n"}))
    with pytest.raises(DatasetError, match=r"am\.nt: expected RDF in N-Triples or N3"):
        read_rdf(tmp_path / "am-hetero.zip", "am")


def test_without_rdflib(written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = written("am")
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(DatasetError, match=r"expected RDFLib to read RDF, found none: .*\[rdf\]"):
        read_rdf(path, "am")


def test_they_are_fetched(
    written: Callable[[str], Path], list_origin: Callable[..., None], server: FileServer, cache: Cache
) -> None:
    server.files["/biokg.zip"] = zipped(BIOKG)
    server.files["/bgs-hetero.zip"] = written("bgs").read_bytes()
    list_origin("ogb/ogbl-biokg", (5, 10, 5), server.url + "biokg.zip")
    list_origin("dgl/bgs", (3, 12, 4), server.url + "bgs-hetero.zip")
    for source, name, relations, edges in (("ogb", "ogbl-biokg", 2, 5), ("dgl", "bgs", 4, 4)):
        for _ in range(2):
            found = load_relational(MatrixSpec(source=source, name=name), cache, 0)
            assert (found.relations, found.nnz) == (relations, edges)
    assert server.requests == 2
