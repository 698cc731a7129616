"""Puts a kernel module on Pyodide's own linear memory. The one place that knows Pyodide's insides; everything else sees functions.

Two ways, tried in this order, because neither is a promise of Pyodide:
1. The WebAssembly.Memory is a property of the Emscripten module (Pyodide 314: `pyodide._module.memory`).
2. Where it is none (0.27: a variable of the module's closure), the dynamic linker hands it out: `loadWebAssemblyModule` gives it as
   env.memory to any side module. A kernel becomes one by a `dylink.0` section that asks for no memory and no table of its own. It
   costs nothing per call and can go when 0.27 does.
Where both fail, browser.py uses a memory of its own, with copies.
"""

from __future__ import annotations

from typing import Any

# A custom section "dylink.0" with one subsection, WASM_DYLINK_MEM_INFO: memory size and alignment, table size and alignment, all 0.
# https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md
_HEADER_BYTES = 8
_DYLINK = b"\x00\x0f\x08dylink.0" + b"\x01\x04\x00\x00\x00\x00"

_MEMORY_NAMES = ("memory", "wasmMemory")


def find_memory(emscripten: Any, js: Any) -> Any | None:
    """The WebAssembly.Memory among the properties of Pyodide's Emscripten module, or None."""
    for name in _MEMORY_NAMES:
        candidate = getattr(emscripten, name, None)
        if js.Object.prototype.toString.call(candidate) == "[object WebAssembly.Memory]":
            return candidate
    return None


def has_linker(emscripten: Any) -> bool:
    """Whether the second way is open."""
    return hasattr(emscripten, "loadWebAssemblyModule")


def link(emscripten: Any, js: Any, to_js: Any, code: bytes, name: str) -> Any:
    """The exports of a kernel module that the interpreter's dynamic linker has put on its memory."""
    side_module = code[:_HEADER_BYTES] + _DYLINK + code[_HEADER_BYTES:]
    flags = to_js({"loadAsync": False, "nodelete": True, "allowUndefined": False}, dict_converter=js.Object.fromEntries)
    return emscripten.loadWebAssemblyModule(to_js(side_module), flags, name, js.Object.new(), 0)
