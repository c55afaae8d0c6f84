"""`torch._dynamo.utils`: what compiled functions have done so far."""

from __future__ import annotations

from collections import Counter, defaultdict

#: `counters["stats"]["unique_graphs"]`: recordings that were made; `counters["frames"]["total"]`: calls that ran the Python of a
#: function, and "ok", those of them that could be recorded
counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
