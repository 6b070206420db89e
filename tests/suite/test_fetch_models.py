"""``spmark fetch models``: what is not installed comes from a folder or an address, with its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from file_server import serving

from spmark.impls.core.errors import DatasetError
from spmark.suite.cli.fetch import PACKAGES, PublishedModels, fetch_models

NAME, CONTENT = "cpu-spmm.safetensors", b"weights"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def packages(folder: Path, url: str | None = None) -> Path:
    manifest = folder / "impls" / "some" / "models" / "published.json"
    manifest.parent.mkdir(parents=True)
    told = {"url": url, "sha256": {NAME: hashlib.sha256(CONTENT).hexdigest()}}
    manifest.write_text(json.dumps(told))
    return folder / "impls"


def test_models_come_from_a_folder_and_are_there_the_next_time(tmp_path: Path, cache: Path) -> None:
    of, source = packages(tmp_path), tmp_path / "source"
    source.mkdir()
    (source / NAME).write_bytes(CONTENT)
    fetch_models(source, as_json=True, packages=of)
    assert (cache / "models" / "some" / "published" / NAME).read_bytes() == CONTENT
    fetch_models(None, as_json=True, packages=of)


def test_models_come_from_the_address(tmp_path: Path, cache: Path) -> None:
    with serving() as server:
        server.files[f"/models/{NAME}"] = CONTENT
        fetch_models(None, as_json=True, packages=packages(tmp_path, f"{server.url}models"))
    assert (cache / "models" / "some" / "published" / NAME).read_bytes() == CONTENT


def test_without_an_address_or_with_another_file_it_says_what_to_do(tmp_path: Path, cache: Path) -> None:
    of = packages(tmp_path)
    with pytest.raises(DatasetError, match=r"names no address of cpu-spmm.*--from FOLDER` takes them from impls/some"):
        fetch_models(None, as_json=True, packages=of)
    with pytest.raises(DatasetError, match=r"expected sha256 .*, found no such file: `spmark fetch models --from"):
        fetch_models(tmp_path, as_json=True, packages=of)
    (tmp_path / NAME).write_bytes(b"other")
    with pytest.raises(DatasetError, match="expected sha256"):
        fetch_models(tmp_path, as_json=True, packages=of)
    assert not (cache / "models").exists()


def test_the_manifests_of_the_checkout_name_its_models() -> None:
    manifests = list(PACKAGES.glob("*/models/published.json"))
    assert manifests
    for manifest in manifests:
        told = PublishedModels.model_validate_json(manifest.read_text())
        beside = {path.name: path for path in manifest.parent.glob("*.safetensors")}
        assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in beside.items()} == told.sha256
