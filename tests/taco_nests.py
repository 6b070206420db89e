"""Every nest of an operator, with a small config for each."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op
from spmark.impls.taco_cpu.space import CSR, LOOPS, Nest, nest_of, why_illegal

SPLITS = {"isplit": (1, 2, 4), "ksplit": (1, 2), "jsplit": (1, 4, 8)}


@cache
def every_nest(op: Op) -> dict[Nest, Config]:
    """Give a config of each nest; nests of one order stand together."""
    nests: dict[Nest, Config] = {}
    for order, formats in product(permutations(LOOPS), product("CU", repeat=4)):
        for splits in product(*SPLITS.values()):
            named = {"order": " ".join(order), "formats": "".join(formats)}
            config = {**CSR, **dict(zip(SPLITS, splits, strict=True)), **named, "chunk": 2}
            if why_illegal(op, config) is None:
                nests.setdefault(nest_of(op, config), config)
    return nests
