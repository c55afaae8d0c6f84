"""The half of `pytest --tabtorch` that runs here: a session that collects and runs nothing itself, and shows what the tab does.

The same plugin as pytest-xdist has between its workers and the terminal, with one worker, in a tab (`pytest_tab`). What that
collects are items of the session here, and its reports go through the hooks here, so that whatever reports on a run of pytest
(the terminal, `--junitxml`, `--durations`, `--lf`) reports on this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import ConftestImportFailure

import pytest_tabtorch
from tabtorch.cli.browsers import Missing
from tabtorch.cli.packages import pack
from tabtorch.cli.run import BESIDE, Script, runner
from tabtorch.cli.status import Status

__all__ = ["TabSession", "excuse"]

#: what runs in there; its argument is what `pytest_tab.main` is given
LAUNCH = f"""\
import json, sys, zipfile
zipfile.ZipFile("{BESIDE}/packages.zip").extractall("{BESIDE}/packages")
sys.path[0] = "{BESIDE}/packages"
from tabtorch.cli.pytest_tab import main
raise SystemExit(main(json.loads(sys.argv[1])))
"""
CACHE = f"{BESIDE}/cache"
CACHED = ("cache/lastfailed", "cache/nodeids", "cache/stepwise")
#: what the host does itself, or has done
OURS = ("tabtorch", "basetemp", "cacheclear", "debug", "file_or_dir", "log_file", "pastebin", "plugins", "xmlpath")
#: plugins that are left to it
WITHOUT = ("terminal", "junitxml", "pastebin", "faulthandler")
#: that tabtorch is a plugin that is there already is nobody's concern
QUIET = "ignore:Module already imported so cannot be rewritten; tabtorch:pytest.PytestAssertRewriteWarning"
ENVIRONMENT = ("CI", "BUILD_NUMBER")  # with which pytest says more
STOPPED = 130
LAST_LINES, LONGEST_LINE = 20, 500
#: with these the time begins that `--tabtorch-timeout` allows
BEGINNINGS = ("started", "collected", "logstart", "logfinish")
#: what a second tab need not say again
COLLECTING = ("node", "collectreport", "deselected", "collected")

UNLOADED = pytest.StashKey[str]()


@contextlib.contextmanager
def excuse(config: pytest.Config) -> Iterator[None]:
    """Go on without a conftest.py that does not load here. Where there is no PyTorch, torch is tabtorch here too."""
    if importlib.util.find_spec("torch") is None:
        import tabtorch

        tabtorch.install()
    try:
        yield
    except ConftestImportFailure as error:
        config.stash[UNLOADED] = f"{error.path} is loaded in the tab only: {type(error.cause).__name__}: {error.cause}"


class Lost(Exception):
    """The tab has ended, or has not answered in time; the message says which."""


class _TerminalStatus(Status):
    """On the line of the terminal that says "collecting …", until the tab has something to say; nowhere else."""

    def __init__(self, reporter: Any) -> None:
        super().__init__()
        self._reporter = reporter if reporter is not None and reporter.isatty() else None
        self.in_place = False

    def say(self, text: str) -> None:
        if self._reporter:
            self._reporter.rewrite(text, erase=True)

    def clear(self) -> None:
        """pytest's next line replaces this one; from then on the lines are pytest's."""
        self._reporter = None


class Tab:
    """A run of `script` in a thread of its own; what it says waits to be read: pairs of a name and details."""

    def __init__(self, script: Script, browser: str, keep: bool, status: Status) -> None:
        self._events: queue.SimpleQueue[tuple[str, list[Any]]] = queue.SimpleQueue()
        self._end: int | None = None
        self._thread = threading.Thread(target=self._work, args=(script, browser, keep, status), daemon=True)
        self._thread.start()

    def _work(self, script: Script, browser: str, keep: bool, status: Status) -> None:
        try:
            with runner(browser, self._heard, status, keep) as once:
                once(script, lambda: self._end)
            self._events.put(("ended", []))
        except Exception as error:
            self._events.put(("broken", [error]))

    def _heard(self, stream: str, text: str) -> None:
        self._events.put(tuple(json.loads(text)) if stream == "report" else ("output", [stream, text]))

    def next(self, deadline: float | None) -> tuple[str, list[Any]] | None:
        """What it says next, or None if it has said nothing by then."""
        while deadline is None or time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=0.2)
        return None

    def stop(self) -> None:
        self._end = STOPPED
        self._thread.join(30)


class _Collector(pytest.Collector):
    """A module or a class, say, that was collected in the tab."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        return []  # the session has its items already


class _Item(pytest.Item):
    """A test that runs in the tab."""

    def runtest(self) -> None:
        raise NotImplementedError("it runs in the tab")


def _options(config: pytest.Config) -> dict[str, Any]:
    """The options of the command line, as the tab's pytest is to have them."""
    option, root = config.option, config.rootpath
    if option.usepdb or option.trace:
        raise pytest.UsageError("--tabtorch: there is no debugger in a tab (--pdb, --trace)")
    if option.tabtorch == "node" and option.tabtorch_keep:
        raise pytest.UsageError("--tabtorch-keep keeps a browser: --tabtorch chromium, or firefox")
    if getattr(option, "numprocesses", None):
        raise pytest.UsageError("--tabtorch: the tests run in one tab (-n)")
    if root == Path(root.anchor):
        raise pytest.UsageError(f"--tabtorch: pytest's rootdir is {root}: a pytest.ini in the project's folder sets it")
    if config.inipath and not config.inipath.is_relative_to(root):
        raise pytest.UsageError(f"--tabtorch: {config.inipath} is outside of pytest's rootdir, {root}")
    options = {name: value for name, value in vars(option).items() if name not in OURS and _is_plain(value)}
    plugins = [name for name in option.plugins if not name.startswith("no:")]
    without = [f"no:{name}" for name in WITHOUT] + [name for name in option.plugins if name.startswith("no:")]
    return options | {
        "rootdir": str(root),
        "inifilename": str(config.inipath) if config.inipath else None,
        "override_ini": [*(option.override_ini or ()), f"cache_dir={CACHE}"],
        "pythonwarnings": [*(option.pythonwarnings or ()), QUIET],
        "plugins": [pytest_tabtorch.__name__, *plugins, *without],
    }


def _cached(config: pytest.Config) -> dict[str, str]:
    """What `--lf` and its like know of the runs before: file in the tab -> text."""
    if not (cache := getattr(config, "cache", None)):
        return {}
    known = {name: cache.get(name, None) for name in CACHED}
    return {f"{CACHE}/v/{name}": json.dumps(value) for name, value in known.items() if value is not None}


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


class TabSession:
    """The plugin. One is registered for each run that has `--tabtorch`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._browser: str = config.option.tabtorch
        self._options = _options(config)
        config.option.lf = config.option.failedfirst = False  # the tab chooses
        self._folder = tempfile.TemporaryDirectory(prefix="tabtorch-pytest-")
        self._tab: Tab | None = None
        self._deadline: float | None = None
        self._session: Any = None
        self._nodes: dict[int, Any] = {}
        self._kinds: dict[str, type[Any]] = {}
        self._collected = False
        self._about = ""  # the tab: versions and device
        self._lines: list[str] = []  # what the plugins in the tab say of what was collected
        self._running: tuple[str, Any] | None = None  # the test: its node id and location
        self._done: set[str] = set()
        self._finished = False
        self._outcome: BaseException | None = None  # what ended pytest in the tab
        self._said: deque[str] = deque(maxlen=LAST_LINES)

    # -- hooks

    def pytest_report_header(self) -> list[str]:
        unloaded = self._config.stash.get(UNLOADED, None)
        return [f"tabtorch: in {self._browser}", *([unloaded] if unloaded else [])]

    def pytest_report_collectionfinish(self) -> list[str]:
        return [f"tabtorch: {self._about}", *self._lines]

    def pytest_collection(self, session: pytest.Session) -> bool:
        self._session = session
        self._nodes[0] = session
        self._start()
        try:
            self._follow(until="collected")
        except Lost as lost:
            raise session.Interrupted(f"while collecting, {lost}") from None
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            errors = f"{session.testsfailed} error{'s' * (session.testsfailed != 1)}"
            raise session.Interrupted(f"{errors} during collection")
        going_on = True
        while going_on:
            try:
                self._follow(until="ended")
                going_on = False
            except Lost as lost:
                self._fail_running(lost)
                going_on = self._start_for_the_rest()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def pytest_unconfigure(self) -> None:
        if self._tab:
            self._tab.stop()
        self._folder.cleanup()

    # -- the tab

    def _start(self, only: list[str] | None = None) -> None:
        try:
            script = self._script(only)
        except Missing as error:
            raise pytest.UsageError(f"--tabtorch: {error}") from None
        self._finished = False
        self._deadline = None
        self._said.clear()
        status = _TerminalStatus(self._config.pluginmanager.get_plugin("terminalreporter"))
        self._tab = Tab(script, self._browser, self._config.option.tabtorch_keep, status)

    def _script(self, only: list[str] | None) -> Script:
        """pytest in there, in a copy of rootdir that lies where rootdir does: so all paths are those of here."""
        config, root = self._config, self._config.rootpath
        folder = config.invocation_params.dir
        packages = Path(self._folder.name, "packages.zip")
        if not packages.exists():
            pack(["pytest", *config.getini("tabtorch_packages")], packages)
        allowed = config.option.maxfail
        given = {
            "options": self._options | {"maxfail": allowed and max(allowed - self._session.testsfailed, 1)},
            "arguments": config.args,
            "folder": str(folder if folder.is_relative_to(root) else root),
            "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            "cache": _cached(config),
            "only": only,
        }
        script = Script(LAUNCH, f"{BESIDE}/pytest", [json.dumps(given)], config.option.tabtorch_device)
        script.work, script.reports = str(root), True
        script.bring_whole(root)
        script.files[f"{BESIDE}/packages.zip"] = packages
        script.files[f"{BESIDE}/packages/pytest_tabtorch.py"] = Path(pytest_tabtorch.__file__)
        return script

    def _follow(self, until: str) -> None:
        """Do what the tab says, up to the event `until` or its end. Raises what ended pytest there, or Lost."""
        assert self._tab
        while True:
            event = self._tab.next(self._deadline)
            if event is None:
                self._tab.stop()
                raise Lost(f"it did not end within {self._config.option.tabtorch_timeout:g} s")
            name, details = event
            if name in BEGINNINGS and self._config.option.tabtorch_timeout:
                self._deadline = time.monotonic() + self._config.option.tabtorch_timeout
            if not (self._collected and name in COLLECTING):
                getattr(self, f"_on_{name}")(*details)
            if name in (until, "ended"):
                return

    def _fail_running(self, lost: Lost) -> None:
        """The test that took the tab with it has failed."""
        if self._running is None:
            raise self._session.Interrupted(str(lost)) from None
        nodeid, location = self._running
        report = pytest.TestReport(nodeid, location, {}, "failed", str(lost), "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        self._on_logfinish(nodeid, location)

    def _start_for_the_rest(self) -> bool:
        rest = [item.nodeid for item in self._session.items if item.nodeid not in self._done]
        if not rest or self._session.shouldfail:
            return False
        self._start(rest)
        return True

    # -- what it says

    def _on_started(self, about: str) -> None:
        self._about = about

    def _on_node(
        self, number: int, parent: int, kind: str, name: str, nodeid: str, path: str, location: list[Any] | None
    ) -> None:
        if kind not in self._kinds:
            self._kinds[kind] = type(kind, (_Item if location else _Collector,), {})  # `--collect-only` shows its name
        node = self._kinds[kind].from_parent(self._nodes[parent], name=name, nodeid=nodeid, path=Path(path))
        if location:
            node.location = tuple(location)
        self._nodes[number] = node

    def _on_collectreport(self, data: dict[str, Any], items: list[int]) -> None:
        report = self._report(data)
        report.result = [self._nodes[number] for number in items]
        self._config.hook.pytest_collectreport(report=report)

    def _on_deselected(self, items: list[int]) -> None:
        self._config.hook.pytest_deselected(items=[self._nodes[number] for number in items])

    def _on_collected(self, items: list[int], lines: list[str]) -> None:
        session, self._lines, self._collected = self._session, lines, True
        session.items = [self._nodes[number] for number in items]
        session.testscollected = len(items)
        self._config.hook.pytest_collection_finish(session=session)

    def _on_logstart(self, nodeid: str, location: list[Any]) -> None:
        self._running = (nodeid, tuple(location))
        self._config.hook.pytest_runtest_logstart(nodeid=nodeid, location=tuple(location))

    def _on_logfinish(self, nodeid: str, location: list[Any]) -> None:
        self._running = None
        self._done.add(nodeid)
        self._config.hook.pytest_runtest_logfinish(nodeid=nodeid, location=tuple(location))

    def _on_report(self, data: dict[str, Any]) -> None:
        self._config.hook.pytest_runtest_logreport(report=self._report(data))

    def _report(self, data: dict[str, Any]) -> Any:
        """The report that was made into `data`, whose tuples JSON has made into lists."""
        for name in ("location", "longrepr"):
            if isinstance(data.get(name), list):
                data[name] = tuple(data[name])
        for name in ("sections", "user_properties"):
            data[name] = [tuple(pair) for pair in data.get(name) or ()]
        return self._config.hook.pytest_report_from_serializable(config=self._config, data=data)

    def _on_warning(
        self, kind: list[str], text: str, where: list[Any], when: str, nodeid: str, location: list[Any] | None
    ) -> None:
        if self._collected and when != "runtest":
            return
        module, name = kind
        category = getattr(sys.modules.get(module), name, None) or type(name, (Warning,), {"__module__": module})
        message = warnings.WarningMessage(category(text), category, *where)
        known = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=known)

    def _on_output(self, stream: str, text: str) -> None:
        """What pytest there has not captured goes where it would go here."""
        to = sys.stderr if stream == "stderr" else sys.stdout
        to.write(text)
        to.flush()
        self._said.extend(line[:LONGEST_LINE] for line in text.splitlines())  # Node shows the line of a minified file

    # -- how it ends

    def _on_exit(self, reason: str, status: int | None) -> None:
        self._outcome = pytest.exit.Exception(reason, status)

    def _on_interrupted(self, reason: str) -> None:
        self._outcome = self._session.Interrupted(reason)

    def _on_keyboard_interrupt(self) -> None:
        self._outcome = KeyboardInterrupt()

    def _on_usage(self, *messages: str) -> None:
        self._outcome = pytest.UsageError(*messages)
        self._finished = True

    def _on_internalerror(self, text: str) -> None:
        self._outcome = RuntimeError(f"pytest failed in the tab:\n{text}")

    def _on_finished(self, shouldfail: str) -> None:
        self._finished = True
        self._session.shouldfail = self._session.shouldfail or shouldfail

    def _on_broken(self, error: Exception) -> None:
        if isinstance(error, Missing):
            raise pytest.UsageError(f"--tabtorch: {error}")
        raise Lost(f"the tab was lost: {error}")

    def _on_ended(self) -> None:
        if self._outcome:
            raise self._outcome
        if not self._finished:
            raise Lost("\n".join(["the tab ended", *self._said]))
