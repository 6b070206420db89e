"""Triples of RDF files, in N-Triples or N3, by RDFLib's parsers, which execute nothing and follow no address."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from spmark.impls.core.errors import DatasetError, how_to_install
from spmark.impls.core.untrusted import reading

ENDINGS = (".nt", ".n3")


class TermKind(IntEnum):
    """What a term of a triple is; terms are ordered by it first."""

    BLANK = 0
    URI = 1
    LITERAL = 2


class Term(NamedTuple):
    """A subject, predicate or object."""

    kind: TermKind
    text: str
    """The address, the letters of a literal, or a blank node's number by first appearance in its file."""
    of: str = ""
    """Type or language of a literal, or the file of a blank node."""


Triple = tuple[Term, Term, Term]


def read_triples(file: Path, name: str, use: Callable[[Triple], object]) -> None:
    """Read a file and hand on its triples, one at a time; N3 in any order.

    Parameters
    ----------
    file : Path
        N3 is read whole into memory, N-Triples line by line.
    name : str
        The file's name in errors, whose ending says the format.
    use : callable
        Takes a triple.

    Raises
    ------
    DatasetError
        RDFLib is not installed, or the file holds something else.
    """
    try:
        from rdflib import BNode, Graph, Literal
        from rdflib.plugins.parsers.ntriples import W3CNTriplesParser
    except ImportError as error:
        raise DatasetError(f"{name}: expected RDFLib to read RDF, found none: {how_to_install('rdf')}") from error
    blank: dict[Any, str] = {}

    def term(found: Any) -> Term:
        if isinstance(found, Literal):
            return Term(TermKind.LITERAL, str(found), str(found.language or found.datatype or ""))
        if isinstance(found, BNode):
            return Term(TermKind.BLANK, blank.setdefault(found, str(len(blank))), name)
        return Term(TermKind.URI, str(found))

    class Sink:
        def triple(self, *parts: Any) -> None:
            subject, predicate, object_ = map(term, parts)
            use((subject, predicate, object_))

    sink = Sink()
    with reading(name, "RDF in N-Triples or N3"):
        if name.endswith(".nt"):
            with file.open(encoding="utf-8") as lines:
                W3CNTriplesParser(sink).parse(lines)
        else:
            for triple in Graph().parse(file, format="n3"):
                sink.triple(*triple)
