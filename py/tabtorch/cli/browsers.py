"""Real browsers with WebGPU, found and started: for `tabtorch run`, and for the tests.

What each needs was found by trying, on Linux without a graphics card: Chromium takes SwiftShader, which it brings along;
Firefox takes Mesa's lavapipe, and has WebGPU only in a window, so it gets an X server of its own (Xvfb).
"""

from __future__ import annotations

import glob
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch.bridge.node import real_gpu

__all__ = ["NAMES", "Missing", "alone", "find", "launch", "missing"]

NAMES = ("chromium", "firefox")

_COMMANDS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"),
    "firefox": ("firefox-esr", "firefox"),
}
_APPS = {
    "chromium": (
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    ),
    "firefox": ("/Applications/Firefox.app/Contents/MacOS/firefox",),
}

CHROMIUM_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--disable-dawn-features=timestamp_quantization",  # as in js/src/host-node.ts
    "--ignore-gpu-blocklist",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# With SwiftShader below the rest of the GPU process too, a canvas that WebGPU drew can be read; else that process dies.
SOFTWARE_FLAGS = [
    "--use-webgpu-adapter=swiftshader",
    "--use-angle=swiftshader",
    "--use-vulkan=swiftshader",
    "--enable-features=Vulkan",
]
VULKAN_FLAGS = ["--use-angle=vulkan", "--enable-features=Vulkan", "--disable-vulkan-surface"]

FIREFOX_PREFS: dict[str, Any] = {
    "dom.webgpu.enabled": True,
    "dom.webgpu.workers.enabled": True,
    "gfx.webgpu.ignore-blocklist": True,
    "layers.acceleration.force-enabled": True,
    "layers.gpu-process.enabled": True,
    "layers.gpu-process.force-enabled": True,
    "security.sandbox.gpu.level": 0,
}


class Missing(RuntimeError):
    """Something on this machine is missing; the message says what, and how to get it."""


def find(name: str) -> str | None:
    """The path of the browser `name`: what `TABTORCH_CHROMIUM` or `TABTORCH_FIREFOX` says, else one that is installed."""
    named = os.environ.get(f"TABTORCH_{name.upper()}")
    if named:
        return named
    for command in _COMMANDS[name]:
        path = shutil.which(command)
        if path:
            return path
    return next((path for path in _APPS[name] if os.path.exists(path)), None)


def _playwrights_own() -> bool:
    """Whether Playwright has installed its Chromium."""
    cache = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or os.path.expanduser(
        "~/Library/Caches/ms-playwright" if platform.system() == "Darwin" else "~/.cache/ms-playwright"
    )
    return any("headless" not in path for path in glob.glob(f"{cache}/chromium-*"))


def missing(name: str) -> str | None:
    """What the browser `name` lacks on this machine and how to get it, in one line; None if it can be started."""
    if name == "chromium":
        if find("chromium") or _playwrights_own():
            return None
        return "no Chrome, Chromium or Edge: `apt-get install chromium`, or `playwright install --with-deps chromium`"
    wanted = [] if find("firefox") else ["firefox-esr"]
    if platform.system() == "Linux" and not os.environ.get("TABTORCH_GPU_DISPLAY"):
        wanted += [] if shutil.which("Xvfb") else ["xvfb"]
        wanted += [] if _lavapipe() else ["mesa-vulkan-drivers"]
    if not wanted:
        return None
    return f"no {' and no '.join(wanted)}: `apt-get install {' '.join(wanted)}`"


def has_gpu() -> bool:
    """Whether to let Chromium use the machine's graphics card. `TABTORCH_GPU=software|hardware` overrides."""
    wish = os.environ.get("TABTORCH_GPU", "")
    if wish in ("software", "hardware"):
        return wish == "hardware"
    if platform.system() != "Linux":
        return True
    return real_gpu()


def _lavapipe() -> str | None:
    return next(iter(sorted(glob.glob("/usr/share/vulkan/icd.d/lvp_icd*.json"))), None)


def _start_xvfb() -> tuple[subprocess.Popen[bytes], str]:
    """An X server, and its display once it answers: "" if it does not."""
    read, write = os.pipe()
    with open(read, "rb") as ready:
        server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x1024x24", "-nolisten", "tcp", "-noreset"],
            pass_fds=[write],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        number = ready.readline().decode().strip()
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(f"/tmp/.X11-unix/X{number}")
        except OSError:
            return server, ""
    return server, f":{number}"


@contextmanager
def _xvfb() -> Iterator[str]:
    """An X server with nobody watching: its display."""
    for _ in range(5):
        server, display = _start_xvfb()
        try:
            if display:
                yield display
                return
        finally:
            server.terminate()
            server.wait()
        time.sleep(0.2)  # another server was going down on the same display just then
    raise Missing("Xvfb does not start: is /tmp/.X11-unix writable?")


@contextmanager
def launch(
    playwright: Any, name: str, *, flags: tuple[str, ...] = (), prefs: dict[str, Any] | None = None
) -> Iterator[Any]:
    """Start `name` ("chromium" or "firefox") with WebGPU: a Playwright `Browser`.

    flags: more of Chromium's; prefs: more of Firefox's. Raises Missing.
    """
    lack = missing(name)
    if lack:
        raise Missing(lack)
    if name == "chromium":
        gpu = has_gpu()
        arguments = [*CHROMIUM_FLAGS, *(VULKAN_FLAGS if platform.system() == "Linux" else []) * gpu]
        arguments += [] if gpu else SOFTWARE_FLAGS
        features = os.environ.get("TABTORCH_DAWN_FEATURES")
        arguments += [f"--enable-dawn-features={features}"] if features else []
        browser = playwright.chromium.launch(executable_path=find(name), headless=True, args=[*arguments, *flags])
        try:
            yield browser
        finally:
            browser.close()
        return
    env = dict(os.environ)
    if platform.system() != "Linux" or os.environ.get("TABTORCH_GPU_DISPLAY"):
        yield from _firefox(playwright, env, prefs)
        return
    with _xvfb() as display:
        icd = _lavapipe()
        assert icd
        env |= {"DISPLAY": display, "XDG_RUNTIME_DIR": "/tmp", "VK_ICD_FILENAMES": icd}
        env.pop("WAYLAND_DISPLAY", None)
        yield from _firefox(playwright, env, prefs)


def _firefox(playwright: Any, env: dict[str, str], prefs: dict[str, Any] | None) -> Iterator[Any]:
    browser = playwright.firefox.launch(
        channel="moz-firefox",
        executable_path=find("firefox"),
        headless=False,
        firefox_user_prefs={**FIREFOX_PREFS, **(prefs or {})},
        env=env,
    )
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def alone(name: str) -> Iterator[Any]:
    """A fresh browser: a Playwright `Browser`. Raises Missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Missing("no Playwright: `pip install 'tabtorch[cli]'`") from None
    with sync_playwright() as playwright, launch(playwright, name) as browser:
        yield browser
