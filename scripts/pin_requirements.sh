#!/usr/bin/env bash
# Write requirements/*.txt anew from pyproject.toml: every package of the container with its version and the hashes of
# its files, for Python 3.11 and newer. Needs uv (pip install uv). Versions that are in use are kept: say --upgrade for
# new ones.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v uv >/dev/null || {
  echo "expected uv on the path, found none: pip install uv" >&2
  exit 1
}
# Keep this machine's settings out of the files: its package index and its folders of wheels.
export UV_NO_CONFIG=1
unset UV_INDEX UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS

pin() {
  local out=requirements/$1
  shift
  uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-annotate \
    --custom-compile-command scripts/pin_requirements.sh --output-file "$out" "$@"
  echo "$out: $(grep -c '==' "$out") packages"
}

pin build.txt "$@" requirements/build.in
pin cpu.txt "$@" pyproject.toml
# A package of two images has one version: cpu.txt constrains the other files.
pin gpu.txt "$@" --extra gpu --extra dash --extra dgl --extra nvcc --extra ogb --extra triton --constraint requirements/cpu.txt pyproject.toml
pin test.txt "$@" --extra test --constraint requirements/cpu.txt --constraint requirements/build.txt pyproject.toml
