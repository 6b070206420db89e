"""Loading a matrix in a process of its own: a file that ends its reader, or fills the memory, ends no command.

``python -m spmark.datasets.loading_child`` is the child. It reads what to load from standard input, writes the matrix
as arrays without pickle, and answers in JSON on standard output.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.mirror import at_origin
from spmark.datasets.readers.npz import read_npz, write_npz
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.table import FILES, find_source
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import Csr
from spmark.records.schema import MatrixKind, MatrixSource

# -P: the working directory may hold folders called datasets or report that must not shadow packages.
_COMMAND = (sys.executable, "-P", "-m", "spmark.datasets.loading_child")
_SPEC = {"source", "name", "args", "orientation", "values", "folder"}
_MATRIX = "matrix.npz"


def load_in_child(spec: MatrixSource, seed: int) -> LoadedMatrix:
    """Load a matrix with the user's cache; what stands in a file is read by a child, within the memory that is free.

    Parameters
    ----------
    spec : MatrixSource
        A matrix by a formula needs no child: nobody else's bytes are read.
    seed : int
        As `load_matrix`.

    Raises
    ------
    DatasetError
        As `load_matrix`; or the child was killed, or needed more memory than is free.
    MatrixError
        As `load_matrix`.
    """
    cache = Cache.default()
    if spec.source not in FILES.values() and not find_source(at_origin(spec, cache.mirror).source).network:
        return load_matrix(spec, cache, seed)
    with tempfile.TemporaryDirectory(prefix="spmark-") as folder:
        asked = {"spec": spec.model_dump(mode="json", include=_SPEC), "seed": seed, "folder": folder}
        child = subprocess.run(_COMMAND, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=False)
        if child.returncode:
            killed = f"killed by {signal.Signals(-child.returncode).name}" if child.returncode < 0 else "a failure"
            raise DatasetError(
                f"{spec.id}: expected a matrix, found that its reader ended by {killed}; the file is not used: memory "
                "may have run out, or the file is damaged"
            )
        answer = json.loads(child.stdout)
        if "error" in answer:
            raise {"MatrixError": MatrixError}.get(answer["error"], DatasetError)(answer["text"])
        raw = read_npz(Path(folder) / _MATRIX)
    assert raw.values is not None
    csr = Csr.checked(raw.shape, raw.indptr, raw.indices, raw.values, where=spec.id)
    return LoadedMatrix(csr, raw.kind, MatrixKind(answer["source_kind"]), spec)


def main() -> None:
    """Load the matrix that standard input asks for."""
    asked = json.load(sys.stdin)
    spec, free = MatrixSource.model_validate(asked["spec"]), psutil.virtual_memory().available
    most = psutil.Process().memory_info().vms + free
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        loaded = load_matrix(spec, Cache.default(), asked["seed"])
        csr = loaded.csr
        write_npz(
            Path(asked["folder"]) / _MATRIX,
            RawMatrix(csr.shape, csr.indptr, csr.indices, csr.values, loaded.kind),
        )
        answer = {"source_kind": str(loaded.source_kind)}
    except (DatasetError, MatrixError) as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    except (MemoryError, OSError) as error:
        text = f"{spec.id}: expected a matrix that fits into {free / 2**30:.3g} GiB of free memory and into "
        answer = {"error": "", "text": f"{text}{tempfile.gettempdir()}, found more ({error})"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
