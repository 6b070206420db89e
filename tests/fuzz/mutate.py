"""Damage to files: what bit rot, a cut download, another tool or a hostile author makes of a good one.

Everything is drawn from the generator that is handed in, so that a number names an input for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NUMBERS = (
    b"0", b"-1", b"1", b"2", b"", b"NaN", b"Infinity", b"-inf", b"1e999", b"1.5", b"2147483647", b"2147483648",
    b"-2147483649", b"4294967295", b"9223372036854775807", b"9223372036854775808", b"1" + b"0" * 30, b"9" * 5000,
    b"0x10", b"1_000", b"true", b"null", b'"1"', b"[]", b"{}", b"\xd9\xa3", b"1e-400", b"-0.0", b"010",
)  # fmt: skip
"""What stands where a number stood: the borders of integers, no number, a number that takes long to convert."""
TOKENS = (
    b"../../../escaped", b"/escaped/absolute", b"--output=escaped", b"HEAD; touch escaped", b"$(touch escaped)",
    b"=1+1", b"\x1b[2J\x1b]0;title\x07", b"\r\n", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"'", b'"',
    b"%", b"#", b"&a [*a]", b"*a", b"!!python/object/apply:os.system ['touch escaped']", b"<<: *a", b"2026-99-99",
    b"---", b"\t", b" " * 300, b"\\u0000", b"\\ud800", b"{{", b"__proto__",
)  # fmt: skip
"""What is put in anywhere: paths that lead out, options, shells, formulas, terminals, anchors, torn Unicode."""
OPENERS = (b"[", b'{"a":', b"(", b"- ", b"{", b"a: [", b"{a: ")
MOST_BYTES = 1 << 20
"""Inputs beyond are left as they are."""
Mutator = Callable[[Random, bytearray], None]


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Give a seed with one to eight faults, few of them most often."""
    data = bytearray(random.choice(seeds))
    if random.random() < 0.1:
        data = _spliced(random, data, random.choice(seeds))
    for _ in range(1 + min(int(random.expovariate(0.7)), 7)):
        if len(data) > MOST_BYTES:  # a file of one line is repeated as a whole
            break
        random.choice(MUTATORS)(random, data)
    return bytes(data)


def _place(random: Random, data: bytearray) -> int:
    """Draw a position; the first bytes, where headers stand, come up more often."""
    size = len(data)
    return random.randrange(min(size, 200) if random.random() < 0.3 else size) if size else 0


def _spliced(random: Random, data: bytearray, other: bytes) -> bytearray:
    return data[: _place(random, data)] + other[_place(random, bytearray(other)) :]


def _flip_bits(random: Random, data: bytearray) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        if data:
            data[_place(random, data)] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray) -> None:
    at, size = _place(random, data), random.choice((1, 2, 4, 8))
    data[at : at + size] = random.choice((random.randbytes(size), b"\0" * size, b"\xff" * size))


def _truncate(random: Random, data: bytearray) -> None:
    del data[_place(random, data) :]


def _remove(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    del data[at : at + random.choice((1, 2, 5, 20, 100))]


def _repeat(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = data[at : at + random.choice((1, 4, 30))] * random.choice((1, 2, 50))


def _insert_token(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = random.choice(TOKENS)


def _insert_bytes(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = random.randbytes(random.choice((1, 3, 16)))


def _replace_number(random: Random, data: bytearray) -> None:
    numbers = [match.span() for match in NUMBER.finditer(data)]
    if numbers:
        # Half of the time one of the first, which say how large things are.
        start, stop = random.choice(numbers[:6] if random.random() < 0.5 else numbers)
        data[start:stop] = random.choice(NUMBERS)


def _repeat_line(random: Random, data: bytearray) -> None:
    lines = data.splitlines(keepends=True)
    if lines:
        lines.insert(random.randrange(len(lines)), random.choice(lines) * random.choice((1, 2, 20)))
        data[:] = b"".join(lines)


def _remove_line(random: Random, data: bytearray) -> None:
    lines = data.splitlines(keepends=True)
    if lines:
        del lines[random.randrange(len(lines))]
        data[:] = b"".join(lines)


def _swap_words(random: Random, data: bytearray) -> None:
    words = [match.span() for match in re.finditer(rb"[\w.+-]+", data)]
    if len(words) > 1:
        (a, b), (c, d) = sorted(random.sample(words, 2))
        data[a:d] = data[c:d] + data[b:c] + data[a:b]


def _nest(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = random.choice(OPENERS) * random.choice((3, 100, 2000, 20_000))


MUTATORS: tuple[Mutator, ...] = (
    _flip_bits, _flip_bits, _overwrite, _truncate, _remove, _repeat, _insert_token, _insert_bytes, _replace_number,
    _replace_number, _replace_number, _repeat_line, _remove_line, _swap_words, _nest,
)  # fmt: skip
