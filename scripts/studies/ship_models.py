"""Pack models of `spmark study train dash` as they ship: in float16, a featuriser for all platforms of an operator.

    python scripts/studies/ship_models.py cpu-spmm.safetensors cuda-spmm.safetensors spade_sim-spmm.safetensors

The models are of one operator and were fine-tuned from one pre-trained model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spmark.impls.core.files import digest_of_arrays
from spmark.impls.dash import tensorfile
from spmark.impls.dash.finding import SHIPPED
from spmark.impls.dash.weights import CARD, TrainedModel, load

FEATURISER = "network.featuriser."


def pack(models: Sequence[TrainedModel], folder: Path) -> list[Path]:
    """Write models of one operator as they ship: in float16, with the weights of their one featuriser in one file.

    Parameters
    ----------
    models : sequence of TrainedModel
        Fine-tuned from the same pre-trained model.
    folder : Path

    Raises
    ------
    ValueError
        The featurisers or the operators differ.
    BuildError
        A file cannot be written.
    """
    ops = {model.card.subject.op for model in models}
    rounded = [{name: array.astype(np.float16) for name, array in model.tensors().items()} for model in models]
    shared = [{name: array for name, array in one.items() if name.startswith(FEATURISER)} for one in rounded]
    if len(ops) != 1 or len({digest_of_arrays(one) for one in shared}) != 1:
        raise ValueError(f"expected models of one operator with one featuriser, found {', '.join(sorted(ops))}")
    common = folder / f"featuriser-{ops.pop()}.safetensors"
    tensorfile.write(common, shared[0], {})
    paths = [common]
    for model, tensors in zip(models, rounded, strict=True):
        card = model.card.model_copy(update={"featuriser": common.name}).sealed(tensors)
        own = {name: array for name, array in tensors.items() if name not in shared[0]}
        paths.append(folder / f"{card.subject.platform}-{card.subject.op}.safetensors")
        tensorfile.write(paths[-1], own, {CARD: card.model_dump_json()})
    return paths


def main() -> None:
    """Write the files, and say which."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=SHIPPED)
    asked = parser.parse_args()
    for path in pack([load(path) for path in asked.models], asked.into):
        sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")
    manifest = asked.into / "published.json"
    told = json.loads(manifest.read_text()) if manifest.is_file() else {"schema_version": 1, "url": None}
    files = sorted(asked.into.glob("*.safetensors"))
    told["sha256"] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    manifest.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
