"""The demo site as one table, from an address below its root to what lies there. `npm start` serves it, `npm run build` copies it.

Every address in it is relative, so the site works under any path of any host. Nothing in it comes from another host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from . import bundle
from .paths import NODE_MODULES, ROOT
from .wheel import version

Content = Path | bytes
Table = dict[str, Content]

# What the page asks Pyodide to load; micropip installs the wheel.
PACKAGES = ("numpy", "micropip")

_FONTS = NODE_MODULES / "@fontsource-variable"

_NOTICE = """\
This site carries the work of others, unchanged:
pyodide/           Pyodide 0.27.7, Mozilla Public License 2.0, with CPython 3.12.7, PSF License
pyodide/numpy-*    NumPy, BSD 3-Clause
pyodide/micropip-* micropip, Mozilla Public License 2.0; packaging, Apache 2.0 or BSD 2-Clause
fonts/             Inter, JetBrains Mono and STIX Two Text, SIL Open Font License 1.1
"""

# Read by static hosts such as Netlify and Cloudflare Pages; others are told the same in their own settings.
_HEADERS = """\
/*
  Cross-Origin-Opener-Policy: same-origin
  Cross-Origin-Embedder-Policy: require-corp
"""


@dataclass(frozen=True)
class Site:
    """The table and the name of the wheel in it."""

    files: Table
    wheel: str


def site(wheel: Path, pyodide: Path, peers: Table | None = None) -> Site:
    """The whole site, with this wheel, the Pyodide in this folder, and the libraries that its benchmark page compares with, if any.
    FileNotFoundError names what is missing."""
    demo = tree(ROOT / "web" / "demo")
    demo.pop("screenshot.png", None)  # the README's picture of the page
    ours = library_files(wheel, pyodide)
    twice = demo.keys() & ours.keys()
    if twice:
        raise ValueError(f"web/demo has files whose place in the site is taken: {', '.join(sorted(twice))}")
    files: Table = {**demo, **ours}
    missing = [address for address, content in files.items() if isinstance(content, Path) and not content.is_file()]
    missing += [] if "index.html" in files else ["index.html"]
    if missing:
        raise FileNotFoundError(f"the site lacks {', '.join(sorted(missing))}")
    files["site.json"] = _description(files, wheel, bool(peers))
    return Site({**files, **(peers or {})}, wheel.name)


def library_files(wheel: Path, pyodide: Path) -> Table:
    """What any page needs that runs py_gemm in Pyodide, and the fonts: the site without the demo itself."""
    files: Table = {
        "bridge.js": ROOT / "web" / "bridge.js",
        "thread.js": ROOT / "web" / "thread.js",
        "pygemm.js": ROOT / "web" / "index.js",
        f"wheels/{wheel.name}": wheel,
        "fonts/inter.woff2": _FONTS / "inter" / "files" / "inter-latin-wght-normal.woff2",
        "fonts/mono.woff2": _FONTS / "jetbrains-mono" / "files" / "jetbrains-mono-latin-wght-normal.woff2",
        "fonts/serif.woff2": _FONTS / "stix-two-text" / "files" / "stix-two-text-latin-wght-normal.woff2",
        "fonts/serif-italic.woff2": _FONTS / "stix-two-text" / "files" / "stix-two-text-latin-wght-italic.woff2",
        **{f"fonts/LICENSE-{name}.txt": _FONTS / name / "LICENSE" for name in ("inter", "jetbrains-mono", "stix-two-text")},
        f"pyodide/{bundle.LOCK}": bundle.lock_for(pyodide, PACKAGES),
        "THIRD-PARTY.txt": _NOTICE.encode(),
        "_headers": _HEADERS.encode(),
    }
    for name in (*bundle.RUNTIME, *bundle.package_files(pyodide, PACKAGES)):
        files[f"pyodide/{name}"] = pyodide / name
    return files


def _description(files: Table, wheel: Path, has_peers: bool) -> bytes:
    """site.json: what the page must know about its surroundings. `bytes` lets it show honest progress."""
    sizes = {address: len(content) if isinstance(content, bytes) else content.stat().st_size for address, content in files.items()}
    description = {
        "version": version(),
        "wheel": f"wheels/{wheel.name}",
        "pyodide": "pyodide/",
        "packages": list(PACKAGES),
        "peers": has_peers,
        "bytes": dict(sorted(sizes.items())),
    }
    return json.dumps(description, indent=1).encode()


def tree(folder: Path, prefix: str = "") -> Table:
    """Every file below `folder` that a page can load, by its address below `prefix`; notes in Markdown and caches are not."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".md", ".pyc")]
    return {prefix + path.relative_to(folder).as_posix(): path for path in files}
