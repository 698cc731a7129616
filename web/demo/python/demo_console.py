"""The Python console of the demo page: runs what was typed, top-level await included, and sends what it prints line by line.

Tracebacks begin and end outside this machinery. Who reads the standard input is told that there is none.
Runs inside Pyodide only.
"""

from __future__ import annotations

import ast
import codeop
import contextlib
import io
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from pyodide.code import eval_code_async

FILE_NAME = "<console>"
# One output is cut at this many characters; a page that must lay out more of them stops answering.
MOST_CHARACTERS = 100_000


class _Stream(io.TextIOBase):
    """A text stream that hands on what is written to it, up to a limit for each piece of code."""

    def __init__(self, send: Callable[[str, str], None], kind: str) -> None:
        self._send = send
        self._kind = kind
        self._left = MOST_CHARACTERS

    def refill(self) -> None:
        """Allows the whole limit again."""
        self._left = MOST_CHARACTERS

    def writable(self) -> bool:
        """True: print() asks."""
        return True

    def write(self, text: str, /) -> int:
        """Sends the text; past the limit only a note that more was left out."""
        if self._left > 0:
            self._send(self._kind, text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                self._send(self._kind, f"\n… output cut after {MOST_CHARACTERS:,} characters\n")
        return len(text)


class _NoInput(io.TextIOBase):
    """The standard input: Python computes apart from the page and cannot wait for what somebody types there."""

    def readable(self) -> bool:
        """True, so that whoever reads gets as far as the words."""
        return True

    def read(self, size: int | None = -1, /) -> str:  # noqa: ARG002  the signature of every text stream
        """Raises UnsupportedOperation."""
        return self.readline()

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # noqa: ARG002
        """Raises UnsupportedOperation."""
        raise io.UnsupportedOperation(
            'this console cannot ask for input while code runs; write the value into the code, as in: answer = "42"'
        )


class Console:
    """Runs code in one namespace. `send(kind, text)` gets the output: kind is "out", "err" or "value"."""

    def __init__(self, namespace: dict[str, Any], send: Callable[[str, str], None]) -> None:
        self.namespace = namespace
        self._send = send
        self._out = _Stream(send, "out")
        self._err = _Stream(send, "err")
        sys.stdin = _NoInput()
        self._compile = codeop.CommandCompiler()
        self._compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def wants_more(self, code: str) -> bool:
        """True while the code can only be a beginning: an open bracket, or a block not yet ended by an empty line."""
        lines = code.split("\n")
        if len(lines) > 1 and lines[-1].startswith((" ", "\t")) and lines[-1].strip():
            return True
        try:
            return self._compile(code, FILE_NAME, "exec") is None
        except (SyntaxError, ValueError, OverflowError):
            return False

    async def run(self, code: str, began: Callable[[], None]) -> bool:
        """Runs the code, sends output, the last value's repr or the traceback. True if it ran through.

        `began` is called when an interrupt from then on ends the code and nothing else.
        """
        # Tracebacks quote the typed lines from here.
        linecache.cache[FILE_NAME] = (len(code), None, code.splitlines(keepends=True), FILE_NAME)
        self._out.refill()
        self._err.refill()
        with contextlib.redirect_stdout(self._out), contextlib.redirect_stderr(self._err):
            try:
                began()
                value = await eval_code_async(code, self.namespace, filename=FILE_NAME)
                if value is not None:
                    self.namespace["_"] = value
                    self._send("value", repr(value)[:MOST_CHARACTERS])
            except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  a console shows whatever is raised
                self._send("err", "".join(_traceback_of(error)).rstrip("\n"))
                return False
        return True


def _traceback_of(error: BaseException) -> Iterable[str]:
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != FILE_NAME:
        frame = frame.tb_next
    inner = frame
    while inner is not None and inner.tb_next is not None:
        if inner.tb_next.tb_frame.f_code.co_filename == __file__:
            inner.tb_next = None
        inner = inner.tb_next
    sys.last_value = error
    return traceback.format_exception(type(error), error, frame)
