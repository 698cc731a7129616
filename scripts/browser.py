"""Finds a Chromium for the tests, or installs one: Debian's as root, else Playwright's own. Starts no test.

Ubuntu's `chromium` packages are stubs that start a snap, which cannot be driven from outside: they count as not found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .system import apt_install, is_debian, is_root

# Debian's wrapper scripts, Google's packages, the Chromium of other distributions.
NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
VARIABLE = "PY_GEMM_TEST_BROWSER"


def find_browser() -> str | None:
    """The path of a Chromium: the one $PY_GEMM_TEST_BROWSER names, one on the path, or Playwright's; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    for name in NAMES:
        path = shutil.which(name)
        if path is not None and not _is_snap(Path(path)):
            return path
    return _playwright_browser()


def install_browser() -> str:
    """Install a Chromium and return its path. RuntimeError names what could not be installed and how a person can."""
    tried = []
    if is_root() and is_debian():
        print("py_gemm: installing Debian's chromium", file=sys.stderr, flush=True)
        tried.append("apt-get install chromium")
        if apt_install(["chromium"]) and (found := find_browser()):
            return found
    print("py_gemm: installing Playwright's chromium", file=sys.stderr, flush=True)
    command = ["playwright", "install", *(["--with-deps"] if is_root() else []), "chromium"]
    tried.append(" ".join(command))
    if subprocess.run([sys.executable, "-m", *command], check=False).returncode == 0 and (found := find_browser()):
        return found
    raise RuntimeError(
        f"no Chromium was found and none could be installed (tried: {'; '.join(tried)}).\n"
        f"Install Chromium (Debian: apt-get install chromium) or Google Chrome, or set {VARIABLE} to the path of one."
    )


def start_failure(path: str) -> str | None:
    """What the browser says when it cannot start, such as the shared library that it lacks; None where it starts."""
    try:
        done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or f"exit status {done.returncode}")


def _is_snap(path: Path) -> bool:
    if "/snap/" in str(path.resolve()) or path.resolve().name == "snap":
        return True
    with path.open("rb") as file:
        start = file.read(4096)
    return start.startswith(b"#!") and b"/snap/bin" in start


def _playwright_browser() -> str | None:
    ask = "from playwright.sync_api import sync_playwright as p\nwith p() as x: print(x.chromium.executable_path)"
    done = subprocess.run([sys.executable, "-c", ask], check=False, capture_output=True, text=True)
    path = done.stdout.strip()
    return path if done.returncode == 0 and Path(path).is_file() else None
