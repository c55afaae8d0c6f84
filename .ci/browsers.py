"""Get the browsers that the tests need: `browsers.py chromium firefox`.

One that is there is taken. Chromium is else Playwright's, or Debian's; Firefox is Debian's, with the X server and the
Vulkan driver that it needs. Says in one line what is missing, and ends with 1, where it cannot get it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tabtorch.cli.browsers import missing

DEBIAN = {"chromium": ["chromium"], "firefox": ["firefox-esr", "xvfb", "mesa-vulkan-drivers"]}


def debian(packages: list[str]) -> None:
    """Install Debian packages, as root only."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print(f"tabtorch: installing {' '.join(packages)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *command], env=env, stdout=subprocess.DEVNULL)


def playwright() -> None:
    """Install Playwright's Chromium, as root with the libraries that it needs."""
    print("tabtorch: installing Playwright's Chromium", flush=True)
    deps = ["--with-deps"] if os.geteuid() == 0 and shutil.which("apt-get") else []
    command = [sys.executable, "-m", "playwright", "install", *deps, "chromium"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)


def main(names: list[str]) -> int:
    """Get each of `names`; 0 if all are there."""
    if missing("chromium") and "chromium" in names:
        playwright()
    for name in names:
        if missing(name):
            debian(DEBIAN[name])
    lacks = [f"{name}: {lack}" for name in names if (lack := missing(name))]
    for lack in lacks:
        print(f"tabtorch: {lack}", file=sys.stderr)
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
