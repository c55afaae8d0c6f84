"""One rival's side of the comparison: times rows in a page of the browser that tabtorch is timed in, and prints a line of JSON each.

python -m bench.rivals tfjs|jax-js [--small] [NAME …]

Inputs are those of rows.py, made by real PyTorch: what the step of a row holds is given to the page. Each row has a browser of its
own, which ends with it, so that one that never comes back, or takes all of the memory, is no other's trouble.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
from typing import Any

from bench import rivals
from bench.rows import ROWS, Row

#: seconds that a row may take
_LIMIT = 180
_ORIGIN = "http://localhost/"
#: rows.py makes large inputs of so many numbers, again and again
_PERIOD = 1 << 20


def inputs(torch: Any, row: Row, sizes: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
    """What the row's step holds: of each tensor its name, shape and place among the bytes. A model's are `model.` and the name."""
    found: dict[str, Any] = {}
    held = [row.make(torch, "cpu", **sizes)]
    while held:
        for name, value in inspect.getclosurevars(held.pop()).nonlocals.items():
            if isinstance(value, torch.Tensor):
                found[name] = value
            elif isinstance(value, torch.nn.Module):
                found |= {f"{name}.{n}": p for n, p in value.named_parameters()}
            elif inspect.isfunction(value):
                held.append(value)
    entries, parts, at = [], [], 0
    for name, tensor in found.items():
        flat = tensor.detach().reshape(-1)
        if len(flat) > _PERIOD and torch.equal(flat[_PERIOD:], flat[:-_PERIOD]):
            flat = flat[:_PERIOD]
        whole = not flat.is_floating_point()
        data = flat.to(torch.int32 if whole else torch.float32).numpy().tobytes()
        shape = list(tensor.shape)
        entries.append(
            {"name": name, "shape": shape, "type": "int" if whole else "float", "at": at, "count": len(flat)}
        )
        parts.append(data)
        at += len(data)
    return entries, b"".join(parts)


def _page(browser: Any, script: str, data: bytes = b"") -> Any:
    """A page with the library, in a secure context, that nothing else is served to."""
    page = browser.new_page()

    def serve(route: Any) -> None:
        if route.request.url == _ORIGIN + "inputs":
            route.fulfill(body=data, content_type="application/octet-stream")
        else:
            # isolated, as tabtorch's page is: clocks are coarse otherwise
            headers = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
            route.fulfill(body="<!doctype html><title>bench</title>", content_type="text/html", headers=headers)

    page.route("**/*", serve)
    page.on("pageerror", lambda error: print(error, file=sys.stderr))
    page.goto(_ORIGIN)
    page.add_script_tag(content=script)
    return page


#: while the browser's GPU process starts, there is no adapter
_ADAPTER = """async () => {
  let adapter = null;
  for (let i = 0; adapter === null && i < 50; i++) {
    adapter = await navigator.gpu.requestAdapter();
    if (adapter === null) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const { vendor, architecture, device, description } = adapter.info;
  return { vendor, architecture, device, description };
}"""

_START = """([name, sizes, inputs]) => {
  measure(name, sizes, inputs).then(
    (found) => { globalThis.found = found; },
    (error) => { globalThis.found = { failed: `${error.name}: ${error.message}`.slice(0, 200) }; },
  );
}"""


def measure(torch: Any, script: str, row: Row, small: bool) -> dict[str, Any]:
    from playwright.sync_api import TimeoutError as Late

    from tabtorch.cli.browsers import alone

    sizes = row.small if small else row.sizes
    entries, data = inputs(torch, row, sizes)
    with alone("chromium") as browser:
        page = _page(browser, script, data)
        page.evaluate(_ADAPTER)
        page.evaluate(_START, [row.name, sizes, entries])
        try:
            done = page.wait_for_function("globalThis.found", polling=500, timeout=_LIMIT * 1000)
        except Late:
            return {"name": row.name, "failed": f"took more than {_LIMIT} s"}
        found: dict[str, Any] = done.json_value()
    return {"name": row.name, **found}


def main() -> None:
    import torch

    from tabtorch.cli.browsers import alone

    parser = argparse.ArgumentParser()
    parser.add_argument("rival", choices=rivals.NAMES)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    script = rivals.bundle(options.rival)
    with alone("chromium") as browser:
        page = _page(browser, script)
        known, adapter = page.evaluate("names"), page.evaluate(_ADAPTER)
    about = {"version": rivals.version(options.rival), "device": "webgpu", "adapter": adapter}
    print(json.dumps({"about": about}), flush=True)
    for name in options.names or known:
        if name not in known:
            continue
        begin = time.perf_counter()
        try:
            found = measure(torch, script, ROWS[name], options.small)
        except Exception as error:
            found = {"name": name, "failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        found["seconds"] = round(time.perf_counter() - begin, 1)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
