"""An interpreter of the PTX that `spmark.impls.lo_spmm.emit_ptx` writes: one thread after the other, on two arrays.

It knows the instructions that the emitter uses and no more; an access outside of the arrays or to an element of a
misaligned vector fails, and so does a read of a register that nothing has written or a result that 32 bits do not hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

FROM, TO = 1 << 40, 1 << 41
"""Where the arrays lie."""
_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvta.to.global": lambda a: a,
    "add": lambda a, b: a + b,
    "mul.lo": lambda a, b: a * b,
    "mul.wide": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


_FLOATS: Mapping[str, Callable[..., float]] = {
    "mov.f32": lambda a: a,
    "fma.rn.f32": lambda a, b, c: np.float32(float(a) * float(b) + float(c)),
    "max.NaN.f32": lambda a, b: np.float32(np.maximum(a, b)),
}
_CHOICES: Mapping[str, Callable[..., int]] = {
    "setp.ge.u32": lambda a, b: a & 0xFFFFFFFF >= b,
    "setp.lt.u32": lambda a, b: a & 0xFFFFFFFF < b,
    "setp.ne.u32": lambda a, b: a != b,
    "selp.b32": lambda a, b, chosen: a if chosen else b,
}


def _value(word: str, given: list[float]) -> float:
    """Compute one instruction."""
    if word in _FLOATS:
        return _FLOATS[word](*given)
    whole = [int(one) for one in given]
    if word in _CHOICES:
        return _CHOICES[word](*whole)
    operation, _, kind = word.rpartition(".")
    result = _ARITHMETIC[operation](*whole)
    if kind.endswith("32") and operation != "mul.wide":
        assert -(1 << 31) <= result < 1 << 32, f"{word} of {whole} does not fit 32 bits"
    return result


def _functions(text: str) -> dict[str, list[str]]:
    """Split a module into bodies by name; a line holds one instruction or label."""
    found = {}
    for kind, name, body in re.findall(r"\.visible \.(entry|func) (\w+)\(.*?\n\{\n(.*?)\n\}", text, re.DOTALL):
        lines = (line.strip() for line in body.splitlines())
        found[name if kind == "func" else "entry"] = [line for line in lines if line and not line.startswith(".")]
    return found


class Machine:
    """A module with its arrays."""

    def __init__(self, text: str, operand: np.ndarray, out: np.ndarray) -> None:
        self._functions = _functions(text)
        self._arrays = {FROM: operand.reshape(-1), TO: out.reshape(-1)}
        self.warmed: set[int] = set()
        """Lines of the operand that were asked for early."""

    def launch(self, grid: Sequence[int], threads: int, tile_threads: int) -> None:
        """Run every thread."""
        for y in range(grid[1]):
            for x in range(grid[0]):
                self.block((x, y), grid, threads, tile_threads)

    def block(self, place: Sequence[int], grid: Sequence[int], threads: int, tile_threads: int) -> None:
        """Run the threads of one thread block."""
        for thread in range(threads):
            facts = {"%tid.x": thread, "%ctaid.x": place[0], "%ctaid.y": place[1], "%ntid.x": threads}
            facts |= {"%nctaid.x": grid[0], "%nctaid.y": grid[1]}
            facts |= {"[b]": FROM, "[c]": TO, "[threads]": tile_threads}
            self._run("entry", facts)

    def _run(self, name: str, registers: dict[str, float]) -> None:
        lines = self._functions[name]
        labels = {line.partition(":")[0]: at for at, line in enumerate(lines) if re.match(r"\w+:", line)}
        at = 0
        while True:
            line = lines[at]
            at += 1
            guard = re.match(r"@(%\w+) (.*)", line)
            if guard:
                if not registers[guard[1]]:
                    continue
                line = guard[2]
            word, _, rest = line.rstrip(";").partition(" ")
            if word.endswith(":") or word == "griddepcontrol.launch_dependents":
                continue  # a label, and when the next grid begins
            if word == "exit":
                return
            if word == "bra":
                at = labels[rest]
            elif word == "brx.idx":
                index, _, table = rest.partition(", ")
                (targets,) = (one.split(".branchtargets ")[1] for one in lines if one.startswith(f"{table}: "))
                at = labels[targets.rstrip(";").split(", ")[int(registers[index])]]
            elif word == "call":
                callee, given = re.match(r"(\w+), \((.*)\)", rest).groups()  # type: ignore[union-attr]
                names = ("%rd1", "%rd2", "%r1")
                self._run(callee, {n: registers[g] for n, g in zip(names, given.split(", "), strict=False)})
            else:
                self._step(word, rest, registers)

    def _step(self, word: str, rest: str, registers: dict[str, float]) -> None:
        if word.startswith("st.global"):
            place, _, names = rest.partition(", ")
            array, first = self._place(place, registers, names.count(",") + 1)
            for lane, name in enumerate(names.strip("{}").split(", ")):
                array[first + lane] = registers[name]
            return
        names, rest = (re.match(r"(\{.*?\}|\[.*?\]|%\w+)(?:, (.*))?", rest)).groups()  # type: ignore[union-attr]
        if word.startswith("ld.global"):
            array, first = self._place(rest, registers, names.count(",") + 1)
            for lane, name in enumerate(names.strip("{}").split(", ")):
                registers[name] = array[first + lane]
        elif word.startswith("prefetch"):
            address = int(registers[names.strip("[]")])
            if address < TO:
                self.warmed.add((address - FROM) // 128)
        elif word.startswith("ld.param"):
            registers[names] = registers[rest]
        else:
            registers[names] = _value(word, [self._read(one, registers) for one in rest.split(", ")])

    def _read(self, name: str, registers: Mapping[str, float]) -> float:
        if name.startswith("0f"):
            return np.array(int(name[2:], 16), np.uint32).view(np.float32)[()]
        if name.startswith("tile_"):
            return 1 << 42
        return registers[name] if name.startswith("%") else int(name)

    def _place(self, place: str, registers: Mapping[str, float], lanes: int) -> tuple[np.ndarray, int]:
        base, offset = re.match(r"\[(%\w+)\+(\d+)\]", place).groups()  # type: ignore[union-attr]
        address = int(registers[base]) + int(offset)
        start = TO if address >= TO else FROM
        first, rest = divmod(address - start, 4)
        assert rest == 0, "an address within an element"
        assert first % lanes == 0, "a vector that is not aligned"
        assert 0 <= first <= self._arrays[start].size - lanes, f"outside of the array: {first}"
        return self._arrays[start], first
