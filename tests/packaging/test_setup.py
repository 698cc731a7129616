"""Setting up on machines that lack something: what is found, what is passed over, and that what is missing is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import browser, bundle, pytorch, test, vulkan
from scripts.paths import ROOT


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the whole search path, and a Playwright that has no browser."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    return folder


def test_browser_is_found_on_the_path(no_browser: Path) -> None:
    assert browser.find_browser() is None
    found = program(no_browser / "google-chrome-stable", "#!/bin/sh\n")
    assert browser.find_browser() == str(found)


def test_stub_of_a_snap_is_no_browser(no_browser: Path) -> None:
    program(no_browser / "chromium-browser", '#!/bin/sh\nexec /snap/bin/chromium "$@"\n')
    assert browser.find_browser() is None
    (no_browser / "chromium").symlink_to(program(no_browser.parent / "usr" / "bin" / "snap", "\x7fELF"))
    assert browser.find_browser() is None


def test_named_browser_comes_first(no_browser: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(no_browser / "chromium", "#!/bin/sh\n")
    monkeypatch.setenv(browser.VARIABLE, "/opt/mine")
    assert browser.find_browser() == "/opt/mine"


def test_browser_that_cannot_start_says_why(no_browser: Path) -> None:
    broken = program(no_browser / "chromium", "#!/bin/sh\necho 'libnss3.so: cannot open shared object file' >&2\nexit 127\n")
    assert "libnss3.so" in (browser.start_failure(str(broken)) or "")
    assert browser.start_failure(str(no_browser / "absent")) is not None


def test_everything_that_is_lacking_is_named_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(words: str) -> object:
        def fail() -> object:
            raise RuntimeError(words)

        return fail

    monkeypatch.setattr(test, "pyodide_bundle", fails("no bundle"))
    monkeypatch.setattr(test, "find_browser", fails("no browser"))
    monkeypatch.setattr(test, "find_device", fails("no device"))
    assert test.run_tests([], {}) == 1
    said = capsys.readouterr().err
    assert all(words in said for words in ("no bundle", "no browser", "no device"))


def test_altered_bundle_is_not_complete(tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle.folder(), copy)
    assert bundle.is_complete(copy)
    altered = copy / "pyodide.mjs"
    altered.write_bytes(altered.read_bytes() + b"\n")
    assert not bundle.is_complete(copy)
    altered.unlink()
    assert not bundle.is_complete(copy)


def test_lavapipe_without_root_or_apt_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "has_apt", lambda: False)
    with pytest.raises(RuntimeError, match=r"mesa-vulkan-drivers libvulkan1"):
        vulkan.install_device()


def starter(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the starter in a checkout without an environment, with `folder` as the whole search path."""
    checkout = folder.parent / "checkout"
    (checkout / "scripts").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "scripts" / "run.mjs", checkout / "scripts")
    node = shutil.which("node")
    assert node is not None
    environment = {**os.environ, "PATH": str(folder)}
    command = [node, str(checkout / "scripts" / "run.mjs"), *words]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_starter_lists_its_commands(tmp_path: Path) -> None:
    done = starter(tmp_path / "bin", "strat")
    assert done.returncode == 1
    assert 'unknown command "strat"; known: start, build, test' in done.stderr


def test_starter_names_the_python_it_needs(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3", "#!/bin/sh\necho\n")
    done = starter(tmp_path / "bin", "start")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


def test_starter_names_the_package_with_venv(tmp_path: Path) -> None:
    text = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *d.%d*) echo 3.12;; *) echo "$0";; esac\n'
    program(tmp_path / "bin" / "python3", text)
    done = starter(tmp_path / "bin", "start")
    assert done.returncode == 1
    assert "apt-get install python3.12-venv" in done.stderr


@pytest.fixture
def no_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without PyTorch that nobody has looked for."""
    monkeypatch.setattr(pytorch, "NOTE", tmp_path / "pytorch.txt")
    monkeypatch.setattr(pytorch, "installed", lambda: None)
    return tmp_path / "pytorch.txt"


def pip(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str]) -> list[str]:
    """A pip that gives these exit statuses and errors in turn; the list fills with the options it was given."""
    asked: list[str] = []
    left = iter(answers)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        asked.append(" ".join(options))
        status, said = next(left)
        return subprocess.CompletedProcess([], status, "", said)

    monkeypatch.setattr(pytorch, "_pip", run)
    return asked


def test_pytorch_is_installed_where_pip_finds_its_cpu_build(no_pytorch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pip(monkeypatch, (0, ""), (0, ""))
    pytorch.install()
    assert asked == ["--dry-run", ""]
    monkeypatch.setattr(pytorch, "installed", lambda: "2.13.0+cpu")
    pytorch.install()
    assert asked == ["--dry-run", ""], "what is noted is not looked for again"
    assert pytorch.status() == "PyTorch 2.13.0+cpu"


def test_pytorch_that_is_not_at_hand_is_named_and_not_looked_for_again(no_pytorch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "WARNING: slow\nERROR: Could not find a version\nERROR: No matching distribution found for torch==2.13.0+cpu\n"
    asked = pip(monkeypatch, (1, said), (0, ""), (0, ""))
    assert "`npm test` looks for it" in pytorch.status()
    pytorch.install()
    pytorch.install()
    assert asked == ["--dry-run"]
    assert "deselected (No matching distribution found for torch==2.13.0+cpu; to look again, delete pytorch.txt" in pytorch.status()
    monkeypatch.setattr(pytorch, "REQUIREMENTS", ROOT / "requirements-dev.txt")
    pytorch.install()
    assert asked == ["--dry-run", "--dry-run", ""], "other requirements are looked for anew"


def test_pytorch_that_is_at_hand_and_fails_stops_the_run(no_pytorch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, (0, ""), (1, "ERROR: No space left on device"))
    with pytest.raises(RuntimeError, match=r"requirements-torch.txt:\nERROR: No space left on device"):
        pytorch.install()
    assert not no_pytorch.exists()
