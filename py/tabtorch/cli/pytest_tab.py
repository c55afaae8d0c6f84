"""The half of `pytest --tabtorch` that runs in the tab: pytest, which tells the host all that it finds and does.

What it tells are pairs of a name and details, as JSON: the methods of `pytest_host.TabSession` that are called `_on_NAME`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import js
import pytest
from _pytest.config import ConftestImportFailure

from tabtorch.cli.inside import is_internal

__all__ = ["main"]


def tell(name: str, *details: Any) -> None:
    js.tabtorchReport(json.dumps([name, details], default=repr))  # type: ignore[attr-defined]


def _cut(error: BaseException, seen: set[int]) -> None:
    """Take tabtorch's frames out of the traceback of `error`, and of those that led to it."""
    entries, at = [], error.__traceback__
    while at is not None:
        entries.append(at)
        at = at.tb_next
    shown = [entry for entry in entries if not is_internal(entry.tb_frame.f_code.co_filename)]
    cut = None
    for entry in reversed(shown or entries):
        cut = types.TracebackType(cut, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = cut
    seen.add(id(error))
    for other in (error.__cause__, error.__context__):
        if other is not None and id(other) not in seen:
            _cut(other, seen)


class Reporter:
    """A plugin that tells what pytest's terminal would show."""

    def __init__(self, config: pytest.Config, only: list[str] | None) -> None:
        self._config = config
        self._only = only
        self._numbers: dict[Any, int] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        import torch

        self._numbers[session] = 0
        accelerator = torch.accelerator.current_accelerator()
        device = accelerator.type if accelerator is not None else "cpu"
        version = ".".join(map(str, sys.version_info[:3]))
        tell("started", f"Python {version}, torch {torch.__version__}, device {device}")

    # -- collecting

    def _number(self, node: Any) -> int:
        """What the host calls `node`; it hears of each node once, after its parent."""
        if node not in self._numbers:
            parent = self._number(node.parent)
            self._numbers[node] = len(self._numbers)
            location = node.location if isinstance(node, pytest.Item) else None
            known = [type(node).__name__, node.name, node.nodeid, str(node.path), location]
            tell("node", self._numbers[node], parent, *known)
        return self._numbers[node]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        items = [self._number(node) for node in report.result or () if isinstance(node, pytest.Item)]
        tell("collectreport", self._serialised(report), items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only is not None:
            wanted = set(self._only)
            items[:] = [item for item in items if item.nodeid in wanted]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        tell("deselected", [self._number(item) for item in items])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        config = self._config
        said = config.hook.pytest_report_collectionfinish(
            config=config, start_path=config.invocation_params.dir, items=session.items
        )
        lines = [line for some in reversed(said) for line in ([some] if isinstance(some, str) else some)]
        tell("collected", [self._number(item) for item in session.items], lines)

    # -- running

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        tell("logstart", nodeid, location)

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        tell("logfinish", nodeid, location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tell("report", self._serialised(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """As below PyTorch's operations, which are C++, no frames are shown below ours."""
        if call.excinfo is not None and os.environ.get("TABTORCH_TRACEBACK") != "full":
            _cut(call.excinfo.value, set())
            call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value)

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        category = warning_message.category
        kind = [category.__module__, category.__qualname__]
        where = [warning_message.filename, warning_message.lineno]
        tell("warning", kind, str(warning_message.message), where, when, nodeid, location)

    def _serialised(self, report: Any) -> Any:
        return self._config.hook.pytest_report_to_serializable(config=self._config, report=report)

    # -- ending

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        error = excinfo.value
        if isinstance(error, pytest.exit.Exception):
            tell("exit", error.msg, error.returncode)
        elif isinstance(error, pytest.Session.Interrupted):
            tell("interrupted", str(error))
        else:
            tell("keyboard_interrupt")

    def pytest_internalerror(self, excrepr: object) -> bool:
        tell("internalerror", str(excrepr))
        return True  # it is not printed here

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        tell("finished", str(session.shouldfail or ""))


def _set_up(given: dict[str, Any]) -> None:
    sys.argv = ["pytest"]
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    for name, text in given["cache"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def main(given: dict[str, Any]) -> int:
    """Run pytest as `pytest_host.TabSession` has put it: its exit status."""
    _set_up(given)
    config = None
    try:
        config = pytest.Config.fromdictargs(given["options"], given["arguments"])
        config.pluginmanager.register(Reporter(config, given["only"]), "tabtorch-reporter")
        return int(config.hook.pytest_cmdline_main(config=config))
    except ConftestImportFailure as error:
        cause = "".join(traceback.format_exception_only(error.cause)).strip()
        tell("usage", f"{error.path}, in the tab: {cause}")
    except pytest.UsageError as error:
        tell("usage", *map(str, error.args))
    finally:
        if config is not None:
            config._ensure_unconfigure()
    return int(pytest.ExitCode.USAGE_ERROR)
