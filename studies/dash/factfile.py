"""The file of a study's facts: no fact stands there twice, and all facts are of the same samples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spmark.impls.core.errors import RecordError
from spmark.impls.core.recordfile import RecordFile
from spmark.studies.transferfacts import TransferFact, TransferResult, TransferRun, read_transfers

NAME: Final = "transfers.jsonl"
_WHICH: Final = frozenset(
    "kind method source target op seed source_matrices target_matrices matrix phase epoch what matrices machine".split()
)
"""What tells facts of one kind apart; the rest is what was found."""


class FactFile:
    """The facts of a folder.

    Parameters
    ----------
    folder : Path
    run : TransferRun
        What makes the facts now.

    Raises
    ------
    RecordError
        The file cannot be read, or holds facts of other samples or of another command.
    """

    def __init__(self, folder: Path, run: TransferRun) -> None:
        self.path, self._run = folder / NAME, run
        self.facts = list(read_transfers([self.path])) if self.path.exists() else []
        self._known = {_identity(fact) for fact in self.facts}
        for other in self.facts:
            if isinstance(other, TransferRun) and (other.command, other.samples) != (run.command, run.samples):
                raise RecordError(
                    f"{self.path}: expected facts of '{run.command}' and its samples, found those of "
                    f"'{other.command}'; name another folder with --out"
                )

    def judged(self) -> set[tuple[str, str, int, int, int, str]]:
        """Give what has a result: method, operator, seed, source matrices, target matrices, id of the matrix."""
        return {
            (one.method, one.op, one.seed, one.source_matrices, one.target_matrices, one.matrix)
            for one in self.results()
        }

    def results(self) -> list[TransferResult]:
        """Give the results."""
        return [fact for fact in self.facts if isinstance(fact, TransferResult)]

    def add(self, facts: Iterable[TransferFact]) -> None:
        """Append the facts that the file lacks, behind the fact about what makes them.

        Raises
        ------
        RecordError
            The file cannot be written.
        """
        fresh = {_identity(fact): fact for fact in (self._run, *facts)}
        fresh = {which: fact for which, fact in fresh.items() if which not in self._known}
        with RecordFile(self.path) as file:
            file.append_all(fresh.values())
        self._known |= fresh.keys()
        self.facts += fresh.values()


def _identity(fact: TransferFact) -> str:
    return fact.model_dump_json(include=None if isinstance(fact, TransferRun) else set(_WHICH))
