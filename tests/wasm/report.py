"""How many tests ran in Pyodide, and why the others did not: what cannot be there is a skip with a reason, and is counted."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

#: what a program in WebAssembly cannot do, by the words of the error
CANNOT = {
    "emscripten does not support processes": "no processes",
    "can't start new thread": "no threads",
}


class Report:
    """A plugin of pytest."""

    def __init__(self, spec: dict[str, Any], peer: Any) -> None:
        self.spec, self.peer = spec, peer
        self.passed: Counter[str] = Counter()
        self.skipped: Counter[tuple[str, str]] = Counter()
        self.failed: list[str] = []
        self.seconds: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leave out what is listed."""
        kept, gone = [], []
        listed = dict(self.spec["left_out"])
        for item in items:
            name = item.nodeid
            if listed.pop(name, None):
                self.skipped[name.partition("::")[0], self.spec["left_out"][name]] += 1
                gone.append(item)
            else:
                kept.append(item)
        collected = {i.nodeid.partition("::")[0] for i in items}
        stale = [n for n in listed if n.partition("::")[0] in collected]
        if stale and not config.option.keyword:
            raise pytest.UsageError(f"left out, and not there: {stale}")
        items[:] = kept
        config.hook.pytest_deselected(items=gone)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = yield
        if call.excinfo is not None and report.outcome == "failed":
            text = repr(call.excinfo.value)
            for words, reason in CANNOT.items():
                if words in text:
                    report.outcome = "skipped"
                    report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        if report.outcome == "skipped":
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[file, re.sub("^Skipped: ", "", reason)] += 1
        elif report.outcome == "failed":
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed[file] += 1

    def save(self) -> None:
        """Write it where the other side looks for it."""
        skipped = [[file, reason, n] for (file, reason), n in self.skipped.items()]
        found = {
            "passed": self.passed,
            "skipped": skipped,
            "failed": self.failed,
            "seconds": self.seconds,
            "requests": self.peer.count,
            "end": time.time(),
        }
        Path(self.spec["scratch"], "report.json").write_text(json.dumps(found))
