"""The Deep Learning Matrix Collection: one archive of pruned weights, by ``network/pruning/sparsity/layer``."""

from __future__ import annotations

from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.origins import listed
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked_files
from spmark.datasets.source import Args, RawMatrix, only
from spmark.datasets.sources.downloaded import EdgeSource
from spmark.datasets.sources.files import Smtx
from spmark.impls.core.errors import DatasetError


class Dlmc(EdgeSource):
    """Patterns of pruned layers of ResNet-50 and a Transformer; any layer of the archive can be named."""

    name = "dlmc"
    title = "Deep Learning Matrix Collection"
    licence = "none stated"
    citation = "Gale, Zaharia, Young and Elsen, Sparse GPU kernels for deep learning, SC 2020"
    url = "https://storage.googleapis.com/sgk-sc2020/dlmc.tar.gz"

    def address(self, name: str) -> str:
        """Give the archive, which is the same for all layers."""
        return self.url

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read a layer out of the archive."""
        for _, file in unpacked_files(path, _member(name).__eq__, FETCH_AGAIN):
            return Smtx().read(file)
        raise DatasetError(f"{path}: expected {_member(name)}, found no such file in it")

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch the archive and read a layer; one pass over the archive puts all listed layers into the cache."""
        only(f"dlmc/{name}", args)
        path = cache.fetch(self.address(name), self.place(name))
        members = {_member(one): one for one in listed("dlmc")}
        if name in members.values():
            for member, file in unpacked_files(path, members.__contains__, FETCH_AGAIN):
                cache.keep("dlmc", members[member], {}, Smtx().read(file))
            kept = cache.parsed("dlmc", name, {})
            if kept is not None:
                return kept
        return self.read(path, name)


def _member(name: str) -> str:
    return f"dlmc/{name}.smtx"
