"""YAML as plain data within limits of size, depth, aliases and digits, so that no file takes long, whoever wrote it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml
from yaml.composer import Composer

from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.untrusted import reading

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
"""Values and keys, repeats by aliases included: some seconds of reading."""
MAX_DEPTH = 50
MAX_DIGITS = 100
"""Characters of a number: parsing takes time that grows with their square, and no key needs a longer number."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def parse_yaml(content: str | bytes, where: str, error: type[SpmarkError]) -> Any:
    """Read one YAML document; nothing in it is executed.

    Parameters
    ----------
    content : str or bytes
        Bytes are UTF-8.
    where : str
        The file, for errors.
    error : type of SpmarkError
        Raised where the content is not YAML or beyond the limits.
    """
    if len(content) > MAX_BYTES:
        raise error(f"{where}: expected YAML of at most {MAX_BYTES:,} bytes, found {len(content):,}")
    with reading(where, "YAML", error):
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()


class _Loader(Composer, yaml.CSafeLoader):
    """Counts while it composes: PyYAML itself takes any depth, any number of aliases of aliases, and a key twice.

    libyaml parses, many times as fast as PyYAML's own parser; composing stays in Python, where it can be counted.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, within the limits."""
        event: Any = self.peek_event()
        before, mark, is_alias = self._nodes, event.start_mark, isinstance(event, yaml.AliasEvent)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels inside each other", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._sizes:
            raise yaml.MarkedYAMLError(problem="an alias of a value that contains it", problem_mark=mark)
        self._nodes += self._sizes[id(node)] if is_alias else 1
        self._sizes[id(node)] = self._nodes - before
        if self._nodes > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_NODES:,} values, aliases counted", problem_mark=mark)
        if isinstance(node, yaml.MappingNode) and not is_alias:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(set(keys)) < len(keys):
                twice, _ = Counter(keys).most_common(1)[0]
                raise yaml.MarkedYAMLError(problem=f"the key {twice[:80]!r} more than once", problem_mark=mark)
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            raise yaml.MarkedYAMLError(problem=f"a number of {len(node.value):,} characters", problem_mark=mark)
        return node
