"""What kind of machine this is, and Debian's package manager on it. Decides nothing about what is needed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess


def is_root() -> bool:
    """Whether this process may install packages of the system."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def has_apt() -> bool:
    """Whether this is Debian or one of its descendants, Ubuntu among them."""
    return shutil.which("apt-get") is not None


def is_debian() -> bool:
    """Whether this is Debian itself, where `chromium` is a real package."""
    try:
        return has_apt() and platform.freedesktop_os_release().get("ID") == "debian"
    except OSError:
        return False


def apt_install(packages: list[str]) -> bool:
    """Install packages as root, with fresh lists; False where apt-get fails (its own words went to the terminal)."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-oDpkg::Use-Pty=0"]
    for command in ([*apt, "update"], [*apt, "install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return False
    return True
