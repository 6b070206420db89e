"""Knowledge graphs in their publishers' archives: OGB's ogbl-biokg, and AIFB, MUTAG, BGS and AM as DGL hosts them.

An edge of relation r from subject j to object i is A_r[i, j].
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

import numpy as np

from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked_files
from spmark.datasets.readers.rdf import ENDINGS, Term, TermKind, Triple, read_triples
from spmark.datasets.source import RawMatrix, check_shape
from spmark.datasets.sources.downloaded import ogb_file, read_integers
from spmark.datasets.sources.relational import Edges, wide
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind


def read_biokg(path: Path) -> RawMatrix:
    """Read the training edges of ogbl-biokg out of an archive or an unpacked folder.

    Nodes are numbered type by type. Types, and relations (type, relation, type), come in the order of their names.
    Relations within one type have both directions in their files.

    Raises
    ------
    DatasetError
        The archive is broken, or its files do not fit each other.
    """
    with reading(path, "num-node-dict.csv.gz with a number of nodes for each type", remedy=FETCH_AGAIN):
        names, counts = _words(path, "num-node-dict.csv.gz")
        sizes = {name: int(count) for name, count in sorted(zip(names, counts, strict=True))}
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    triplets = sorted(map(tuple, _words(path, "triplet-type-list.csv.gz")))
    check_shape(str(path), (nodes := sum(sizes.values())), nodes * len(triplets))
    parts = []
    for number, triplet in enumerate(triplets):
        if len(triplet) != 3 or not {triplet[0], triplet[2]} <= sizes.keys() or "/" in triplet[1]:
            raise DatasetError(
                f"{path}: triplet-type-list.csv.gz: expected lines of a type, a relation and a type, with types out of "
                f"{', '.join(sizes)}, found {','.join(triplet)!r}"
            )
        file = f"relations/{'___'.join(triplet)}/edge.csv.gz"
        with ogb_file(path, file) as table:
            ends = read_integers(table, f"{path}: {file}", delimiter=",")
        for of, numbers in zip(triplet[::2], ends, strict=True):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < sizes[of]:
                raise DatasetError(f"{path}: {file}: expected nodes in [0, {sizes[of]}) of type {of}, found others")
        heads, tails = (numbers + starts[of] for of, numbers in zip(triplet[::2], ends, strict=True))
        parts.append((np.full(heads.size, number), tails, heads))
    if not parts:
        raise DatasetError(f"{path}: triplet-type-list.csv.gz: expected relations, found none")
    relation, rows, cols = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _pattern(nodes, len(triplets), (relation, rows, cols), path)


def _words(path: Path, file: str) -> list[list[str]]:
    with ogb_file(path, file) as table, reading(f"{path}: {file}", "lines of words between commas"):
        return list(csv.reader(table.read_text(encoding="utf-8").splitlines()))


Node = tuple[str, str]
"""Class and name."""
Edge = tuple[Node, str, Node]
"""Subject, relation and object."""


class RdfGraph(NamedTuple):
    """How a graph is made out of triples, by the rules of DGL's data sets, and what DGL states of it."""

    edge: Callable[[Triple], Edge | None]
    """Gives the nodes and the relation of a triple, or None where the graph leaves the triple out."""
    edges: int
    """With those of inverse relations."""
    nodes: int | None


def read_rdf(path: Path, name: str) -> RawMatrix:
    """Read a graph of `RDF_GRAPHS` out of DGL's archive.

    Relations are followed by their inverses. Nodes and relations are numbered as they first appear in the sorted
    triples, as DGL does. Literals are sorted by their letters; DGL sorts them by language, type and value, and so may
    give nodes of AIFB other numbers.

    Raises
    ------
    DatasetError
        The archive is broken, or has other counts than DGL states.
    """
    graph = RDF_GRAPHS[name]
    kept: list[tuple[Triple, Edge]] = []
    same: dict[Any, Any] = {}
    for member, file in unpacked_files(path, _of_the_graph, FETCH_AGAIN):
        kept += _edges_in(file, member, graph, same).items()
    nodes: dict[Node, int] = {}
    relations: dict[str, int] = {}
    ends = np.empty((3, len(kept)), np.int64)
    for at, (_, (subject, relation, object_)) in enumerate(sorted(kept)):
        ends[0, at] = relations.setdefault(relation, len(relations))
        ends[1, at] = nodes.setdefault(subject, len(nodes))
        ends[2, at] = nodes.setdefault(object_, len(nodes))
    if 2 * len(kept) != graph.edges or graph.nodes not in (None, len(nodes)):
        raise DatasetError(
            f"{path}: expected {graph.nodes or len(nodes):,} nodes and {graph.edges:,} edges as DGL states, found "
            f"{len(nodes):,} and {2 * len(kept):,}; {FETCH_AGAIN}"
        )
    both = np.concatenate([ends[0], ends[0] + len(relations)])
    edges = both, np.concatenate([ends[2], ends[1]]), np.concatenate([ends[1], ends[2]])
    return _pattern(len(nodes), 2 * len(relations), edges, path)


def _pattern(nodes: int, relations: int, edges: Edges, path: Path) -> RawMatrix:
    return replace(wide(nodes, relations, edges, path), values=None, kind=MatrixKind.PATTERN)


def _of_the_graph(member: str) -> bool:
    return PurePosixPath(member).parent == PurePosixPath() and member.endswith(ENDINGS)


def _edges_in(file: Path, member: str, graph: RdfGraph, same: dict[Any, Any]) -> dict[Triple, Edge]:
    """Give each triple of a file once, with its edge; ``same`` keeps one copy of equal terms and nodes."""
    found: dict[Triple, Edge] = {}

    def use(triple: Triple) -> None:
        if (edge := graph.edge(triple)) is not None:
            subject, predicate, object_, *ends = (same.setdefault(each, each) for each in (*triple, *edge))
            found[subject, predicate, object_] = cast("Edge", tuple(ends))

    read_triples(file, member, use)
    return found


_MUTAG, _BGS, _AM = (
    "http://dl-learner.org/carcinogenesis#",
    "http://data.bgs.ac.uk/",
    "http://purl.org/collections/nl/am/",
)
_LABELS = frozenset(
    {
        "http://swrc.ontoware.org/ontology#employs",
        "http://swrc.ontoware.org/ontology#affiliation",
        f"{_MUTAG}isMutagenic",
        f"{_BGS}ref/Lexicon/hasLithogenesis",
        f"{_AM}objectCategory",
        f"{_AM}material",
    }
)
"""Relations that tell what a network is to predict."""


def _aifb(triple: Triple) -> Edge | None:
    def node(term: Term) -> Node | None:
        if term.kind is TermKind.LITERAL:
            return "_Literal", term.text
        parts = term.text.split("/")
        return (parts[3], parts[5]) if term.text.startswith("http://www.aifb.uni-karlsruhe.de/") else None

    relation = triple[1].text.split("/")[3 if triple[1].text.startswith("http://swrc.ontoware.org/") else -1]
    return _joined(node(triple[0]), triple[1], relation, node(triple[2]))


def _mutag(triple: Triple) -> Edge | None:
    own = triple[1].text.startswith(_MUTAG)
    relation = triple[1].text.removeprefix(_MUTAG) if own else triple[1].text.split("/")[-1]

    def node(term: Term, other: str) -> Node | None:
        if term.kind is TermKind.LITERAL:
            return "_Literal", term.text
        if term.kind is TermKind.BLANK or not term.text.startswith(_MUTAG):
            return None
        name = term.text.removeprefix(_MUTAG)
        found = re.match("(d|bond)[0-9]", name)
        return (found[1] if found else other), name

    subject, object_ = node(triple[0], "SCHEMA"), node(triple[2], relation)
    if object_ is not None and not own:
        object_ = "SCHEMA", object_[1]
    return _joined(subject, triple[1], relation, object_)


def _bgs(triple: Triple) -> Edge | None:
    def node(term: Term) -> Node | None:
        parts = term.text.split("/")
        if term.kind is not TermKind.URI or len(parts) != 7 or not term.text.startswith(_BGS):
            return None
        return None if term.text.startswith(f"{_BGS}ref/CurrentStatus") else (f"{parts[4]}/{parts[5]}", parts[6])

    parts, relation = triple[1].text.split("/"), triple[1].text
    if relation.startswith(f"{_BGS}ref"):
        relation = f"{parts[4]}/{parts[5]}" if len(parts) >= 6 else ""
    return _joined(node(triple[0]), triple[1], relation, node(triple[2]))


def _am(triple: Triple) -> Edge | None:
    def node(term: Term) -> Node | None:
        if term.kind is TermKind.BLANK:
            return "_BNode", f"{term.of} {term.text}"
        if term.kind is TermKind.LITERAL or not term.text.startswith(_AM):
            return None
        kind, _, name = (whole := term.text.removeprefix(_AM)).partition("-")
        return (kind, name) if whole.count("-") == 1 else ("TYPE", whole)

    return _joined(node(triple[0]), triple[1], triple[1].text.removeprefix(_AM), node(triple[2]))


def _joined(subject: Node | None, predicate: Term, relation: str, object_: Node | None) -> Edge | None:
    if subject is None or object_ is None or not relation or predicate.text in _LABELS:
        return None
    return subject, relation, object_


RDF_GRAPHS: Mapping[str, RdfGraph] = {
    "aifb": RdfGraph(_aifb, 48_810, 7_262),
    "mutag": RdfGraph(_mutag, 148_100, 27_163),
    "bgs": RdfGraph(_bgs, 672_884, 94_806),
    # DGL states 881,680 nodes, and table 2 of SparseTIR 1,885,136.
    "am": RdfGraph(_am, 5_668_682, None),
}
"""Nodes and edges: the documentation of DGL 1.1, and Ye et al., SparseTIR, ASPLOS 2023, table 2."""
