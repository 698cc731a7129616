"""Finds a Vulkan device that wgpu can use, or installs lavapipe, Mesa's Vulkan on the CPU: system-wide as root, else in the cache.

As a plain user on Debian or Ubuntu the packages are fetched by `apt-get download` and unpacked below the user's cache; two
environment variables then point the loader at them. Nothing outside the cache is touched.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .paths import cache_directory
from .system import apt_install, has_apt, is_root

PACKAGES = ["mesa-vulkan-drivers", "libvulkan1"]

_PROBE = """
import wgpu
kinds = [adapter.info["backend_type"] for adapter in wgpu.gpu.enumerate_adapters_sync()]
print(sum(kind in ("Vulkan", "Metal", "D3D12") for kind in kinds))
"""


def find_device() -> dict[str, str] | None:
    """The environment variables under which wgpu sees a device: none, or those of the lavapipe in the cache. None: no device."""
    if sees_device({}):
        return {}
    variables = _cached_variables(_folder())
    return variables if variables is not None and sees_device(variables) else None


def install_device() -> dict[str, str]:
    """Install lavapipe and return the variables to set. RuntimeError names what could not be installed and how a person can."""
    print("py_gemm: no Vulkan device; installing lavapipe", file=sys.stderr, flush=True)
    wish = f"a Vulkan driver (Debian and Ubuntu: apt-get install {' '.join(PACKAGES)})"
    if not has_apt():
        raise RuntimeError(f"wgpu finds no device, and this machine has no apt-get. Install {wish}.")
    if is_root():
        if not apt_install(PACKAGES):
            raise RuntimeError(f"wgpu finds no device, and apt-get could not install {' and '.join(PACKAGES)}.")
    else:
        _unpack(_folder())
    variables = find_device()
    if variables is None:
        raise RuntimeError(f"wgpu finds no device, even with lavapipe installed. Install {wish}.")
    return variables


def sees_device(variables: dict[str, str]) -> bool:
    """Whether wgpu, in a fresh process with these variables added, lists a device."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE], env={**os.environ, **variables}, check=False, capture_output=True, text=True
    )
    return done.returncode == 0 and done.stdout.strip().isdigit() and int(done.stdout) > 0


def _folder() -> Path:
    return cache_directory() / "lavapipe"


def _cached_variables(folder: Path) -> dict[str, str] | None:
    driver = folder / "lavapipe.json"
    if not driver.is_file():
        return None
    path = str(Path(json.loads(driver.read_text())["ICD"]["library_path"]).parent)
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {
        "VK_DRIVER_FILES": str(driver),
        "VK_ICD_FILENAMES": str(driver),
        "LD_LIBRARY_PATH": f"{path}:{inherited}" if inherited else path,
    }


def _unpack(folder: Path) -> None:
    """Fetch and unpack lavapipe with whatever of its closure the system lacks, without a privilege."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="lavapipe-") as scratch_name:
        scratch = Path(scratch_name)
        for name in ("lists/partial", "cache/archives/partial", "debs", "root"):
            (scratch / name).mkdir(parents=True)
        options = [
            f"-oDir::State::lists={scratch}/lists",
            f"-oDir::Cache={scratch}/cache",
            "-oAPT::Install-Recommends=0",
            "-oAcquire::Languages=none",
            "-oDebug::NoLocking=1",
        ]
        _apt([*options, "--quiet", "update"], scratch)
        plan = _apt([*options, "--simulate", "install", "--reinstall", *PACKAGES], scratch)
        packages = sorted({line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")})
        _apt([*options, "--quiet", "download", *packages], scratch / "debs")
        for package in sorted((scratch / "debs").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(scratch / "root")], check=True)
        (library,) = (scratch / "root").rglob("libvulkan_lvp.so")
        place = folder / library.relative_to(scratch / "root")
        driver = {"file_format_version": "1.0.0", "ICD": {"library_path": str(place), "api_version": "1.3.0"}}
        (scratch / "root" / "lavapipe.json").write_text(json.dumps(driver))
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "root").rename(folder)


def _apt(words: list[str], folder: Path) -> str:
    done = subprocess.run(["apt-get", *words], cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"lavapipe cannot be had for {platform.node()}: apt-get {' '.join(words[-3:])}: {done.stderr.strip()}")
    return done.stdout
