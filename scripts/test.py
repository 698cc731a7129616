"""`npm test [-- PYTEST ARGUMENTS]`: installs what the tests lack (bundle, browser, Vulkan device), then runs every test.

`npm test -- -k NAME` runs one case by its id. What cannot be installed is named, and the command fails: nothing is skipped in
silence. Only PyTorch may be missing: the head of the run says so, and pytest counts its tests as deselected. When all is there, no
network is touched.
"""

from __future__ import annotations

import os
import subprocess
import sys

from . import pytorch
from .browser import VARIABLE, find_browser, install_browser, start_failure
from .bundle import pyodide_bundle
from .paths import ROOT
from .vulkan import find_device, install_device


def prepare() -> dict[str, str]:
    """Install what is missing; returns the environment variables for the tests. RuntimeError names all that is lacking."""
    variables: dict[str, str] = {}
    problems = []
    try:
        pyodide_bundle()
    except RuntimeError as error:
        problems.append(str(error))
    try:
        browser = find_browser() or install_browser()
        failure = start_failure(browser)
        if failure is not None:
            raise RuntimeError(f"{browser} does not start: {failure}")
        variables[VARIABLE] = browser
    except RuntimeError as error:
        problems.append(str(error))
    try:
        found = find_device()
        variables.update(install_device() if found is None else found)
    except RuntimeError as error:
        problems.append(str(error))
    if problems:
        raise RuntimeError("\n".join(problems))
    return variables


def run_tests(words: list[str], extra: dict[str, str]) -> int:
    """Prepare, then run pytest with these arguments and variables; returns its exit status."""
    try:
        variables = prepare()
        pytorch.install()
    except RuntimeError as error:
        print(f"py_gemm: the tests cannot run.\n{error}", file=sys.stderr)
        return 1
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, env={**os.environ, **variables, **extra}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:], {}))
