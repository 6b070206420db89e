"""Pack models of `spmark study train dash` as they ship: in float16, a featuriser for all platforms of an operator.

    python scripts/ship_models.py cpu-spmm.safetensors cuda-spmm.safetensors spade_sim-spmm.safetensors

The models are of one operator and were fine-tuned from one pre-trained model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from spmark.impls.dash.finding import SHIPPED
from spmark.impls.dash.weights import load, pack


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
