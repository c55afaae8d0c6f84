"""`pytest --tabtorch chromium|firefox|node`: the tests run in a browser tab, or in Pyodide in Node, with tabtorch as torch.

This file is all of it that other runs of pytest load; the rest is `tabtorch.cli.pytest_host`.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tabtorch", "tests in a browser tab")
    group.addoption(
        "--tabtorch",
        choices=["chromium", "firefox", "node"],
        help="run the tests in a headless tab, or in Pyodide in Node; `import torch` is tabtorch there",
    )
    group.addoption(
        "--tabtorch-device", choices=["webgpu", "cpu"], help="the default device (the GPU, where there is one)"
    )
    group.addoption(
        "--tabtorch-timeout",
        type=float,
        metavar="S",
        help="a test that takes longer fails, and the ones after it run in another tab",
    )
    group.addoption(
        "--tabtorch-keep", action="store_true", help="keep the browser for the next run (`tabtorch stop` ends it)"
    )
    parser.addini("tabtorch_packages", "pure Python packages installed here that the tests need in the tab", "args", [])


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """A conftest.py gives options and hooks to both sides; one that only loads in a tab is left to that."""
    if not early_config.known_args_namespace.tabtorch:
        return (yield)
    from tabtorch.cli.pytest_host import excuse

    with excuse(early_config):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    if config.option.tabtorch:
        from tabtorch.cli.pytest_host import TabSession

        config.pluginmanager.register(TabSession(config), "tabtorch-session")
