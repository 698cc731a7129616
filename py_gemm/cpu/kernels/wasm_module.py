"""Reads what a WebAssembly module or object imports, exports and contains, and changes its import of memory. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

_CUSTOM, _IMPORT, _EXPORT, _START, _ELEMENT, _DATA, _DATA_COUNT = 0, 2, 7, 8, 9, 11, 12
FUNCTION, TABLE, MEMORY, GLOBAL = 0, 1, 2, 3
_SHARED_WITH_MAXIMUM = 3


@dataclass(slots=True)
class Contents:
    """imports: (module, name, kind); exports: (name, kind); kinds as the binary format numbers them."""

    imports: list[tuple[str, str, int]] = field(default_factory=list)
    exports: list[tuple[str, int]] = field(default_factory=list)
    sections: set[int] = field(default_factory=set)

    @property
    def has_data(self) -> bool:
        return bool(self.sections & {_DATA, _DATA_COUNT})

    @property
    def runs_at_start(self) -> bool:
        return _START in self.sections

    @property
    def has_function_table(self) -> bool:
        return _ELEMENT in self.sections


def read_module(module: bytes) -> Contents:
    """ValueError where `module` is no WebAssembly of version 1."""
    if module[:8] != b"\0asm\1\0\0\0":
        raise ValueError("no WebAssembly module of version 1")
    contents = Contents()
    position = 8
    while position < len(module):
        section = module[position]
        length, start = _unsigned(module, position + 1)
        position = start + length
        contents.sections.add(section)
        if section == _IMPORT:
            _read_imports(module, start, contents)
        elif section == _EXPORT:
            count, at = _unsigned(module, start)
            for _ in range(count):
                name, at = _text(module, at)
                contents.exports.append((name, module[at]))
                _, at = _unsigned(module, at + 1)
    return contents


def with_shared_memory(module: bytes, most_pages: int) -> bytes:
    """The same module on a memory that threads share, of at most `most_pages` pages. ValueError where it imports anything else.

    Loads and stores are the same on both kinds of memory; only the import says which one it is.
    """
    position = 8
    while position < len(module):
        length, start = _unsigned(module, position + 1)
        if module[position] == _IMPORT:
            count, at = _unsigned(module, start)
            _, at = _text(module, at)
            _, at = _text(module, at)
            if count != 1 or module[at] != MEMORY:
                raise ValueError("the module imports more than a memory")
            _, limits = _unsigned(module, at + 1)
            least, _ = _unsigned(module, limits)
            body = module[start : at + 1] + bytes([_SHARED_WITH_MAXIMUM]) + _as_unsigned(least) + _as_unsigned(most_pages)
            return module[: position + 1] + _as_unsigned(len(body)) + body + module[start + length :]
        position = start + length
    raise ValueError("the module imports no memory")


def _as_unsigned(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _read_imports(module: bytes, start: int, contents: Contents) -> None:
    count, at = _unsigned(module, start)
    for _ in range(count):
        from_module, at = _text(module, at)
        name, at = _text(module, at)
        kind = module[at]
        contents.imports.append((from_module, name, kind))
        at += 1
        if kind == FUNCTION:
            _, at = _unsigned(module, at)
        elif kind == GLOBAL:
            at += 2
        elif kind in (TABLE, MEMORY):
            at += 1 if kind == TABLE else 0
            flags, at = _unsigned(module, at)
            for _ in range(2 if flags & 1 else 1):
                _, at = _unsigned(module, at)
        else:
            raise ValueError(f"an import of kind {kind}")


def _unsigned(module: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = module[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _text(module: bytes, at: int) -> tuple[str, int]:
    length, at = _unsigned(module, at)
    return module[at : at + length].decode(), at + length
