"""The command line: `tabtorch run`, `tabtorch serve`, `tabtorch info`."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

__all__ = ["main"]

ENVIRONMENT = """\
environment:
  TABTORCH_DEVICE       webgpu, cpu or auto: the default device
  TABTORCH_NODE         the path of Node
  TABTORCH_CHROMIUM     the path of Chromium, Chrome or Edge
  TABTORCH_FIREFOX      the path of Firefox
  TABTORCH_GPU          software or hardware: what Chromium computes on (hardware, where there is a graphics card)
  TABTORCH_DAWN_FEATURES  of Chromium and Node: what Dawn enables besides, such as allow_unsafe_apis,vulkan_enable_f16_on_nvidia
  TABTORCH_GPU_DISPLAY  set: Firefox opens its window on this desktop, and uses the graphics card
  TABTORCH_SITE         the folder of the built site
  TABTORCH_KEEP_S       seconds for which `run --keep` keeps a browser that nobody uses (900)
  TABTORCH_TRACEBACK    full: tracebacks with the frames inside tabtorch
  TABTORCH_DEBUG        schedule: prints each window's kernels, and why they are not fewer; else, if set: what the runtime's
                        Node process says goes to standard error
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tabtorch",
        description="PyTorch in a browser tab, on WebGPU.",
        epilog=ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print the version, and that of PyTorch's interface"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a PyTorch script in a headless browser tab, or in Node",
        description="Run FILE as __main__ in a headless browser tab. Its output is streamed, and its exit status is "
        "that of this command; 124 means that it did not end in time. FILE - is standard input.",
        usage="tabtorch run FILE [options] [-- ARGS ...]",
    )
    run.add_argument("file", metavar="FILE")
    run.add_argument("--browser", choices=["chromium", "firefox", "node"], default="chromium")
    run.add_argument("--device", choices=["webgpu", "cpu"], help="the default device (the GPU, where there is one)")
    run.add_argument("--mount", metavar="DIR", help="the working directory in there; what the script writes comes back")
    run.add_argument("--timeout", metavar="S", type=float, help="give up after so many seconds")
    run.add_argument("--watch", action="store_true", help="run it again whenever it, or a file in its folder, changes")
    run.add_argument("--keep", action="store_true", help="keep the browser for the next run, which then starts at once")
    run.add_argument(
        "--screenshot", metavar="FILE.png", help="run it in the page with the editor, of which this is a picture"
    )
    run.add_argument("-v", "--verbose", action="store_true", help="say what is being done, also to a file or a pipe")

    commands.add_parser("stop", help="end the browsers that `run --keep` has kept")

    serve = commands.add_parser("serve", help="serve the page on this machine")
    serve.add_argument("--port", type=int, default=8000, help="0 takes any that is free (default 8000)")
    serve.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: nobody else")

    info = commands.add_parser("info", help="print adapter, limits, features and versions")
    info.add_argument("--browser", choices=["chromium", "firefox", "node"], default="node", help="where to look")
    info.add_argument("--json", action="store_true", help="print JSON")

    export = commands.add_parser(
        "export",
        help="write a model to a file that runs without Python",
        description="Writes plans: FILE is a script that defines `exports` (the arguments of plan_files.save), or a model: "
        ".pt2, TorchScript, ONNX. Nothing of a model is run, so there need be no GPU.",
    )
    export.add_argument("file", metavar="FILE")
    export.add_argument("-o", "--output", metavar="OUT.safetensors", required=True)
    export.add_argument(
        "--input", action="append", default=[], metavar="NAME=DTYPE[SIZES]", help="of a model: x=float32[batch,3,8,8]"
    )
    export.add_argument(
        "--dynamic", action="append", default=[], metavar="INPUT:DIM=NAME", help="a size that varies: x:0=batch"
    )
    export.add_argument("--device", action="append", choices=["webgpu", "cpu"], help="for which (default: for both)")
    export.add_argument("--method", default="predict", help="what the method of a model is called (default predict)")

    completion = commands.add_parser(
        "completion",
        help="print what makes a shell complete this command",
        description="""For bash: eval "$(tabtorch completion bash)", in ~/.bashrc; for zsh the same with zsh, in ~/.zshrc,
        after compinit; for fish: tabtorch completion fish > ~/.config/fish/completions/tabtorch.fish""",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
    return parser


class _Version(argparse.Action):
    """Prints it, and ends; the packages are looked at only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        from tabtorch.version import __version__

        print(f"tabtorch {metadata.version('tabtorch')} (torch {__version__})")
        parser.exit()


def _run(options: argparse.Namespace, rest: list[str]) -> int:
    from tabtorch.cli.run import Script, print_output, run_once, runner
    from tabtorch.cli.status import Status

    _check(options)
    load = partial(Script.load, options.file, rest, options.device, options.mount)
    status = Status(options.verbose)
    picture = Path(options.screenshot).resolve() if options.screenshot else None
    running = runner(options.browser, print_output, status, options.keep, picture)
    if options.watch:
        from tabtorch.cli.watch import watch

        return watch(load, running, options.timeout, print_output, status)
    script = load()
    with running as once:
        return run_once(once, script, options.timeout, print_output)


def _check(options: argparse.Namespace) -> None:
    """Raises Missing for what cannot go together."""
    from tabtorch.cli.browsers import Missing

    if options.keep and options.browser == "node":
        raise Missing("--keep keeps a browser: --browser chromium, or firefox")
    if options.watch and options.file == "-":
        raise Missing("--watch needs a file: standard input does not change")
    if options.screenshot and options.browser == "node":
        raise Missing("--screenshot is of a page: --browser chromium, or firefox")
    if options.screenshot and options.keep:
        raise Missing("--screenshot opens a page of its own, and --keep has another")
    if options.screenshot and not options.screenshot.endswith(".png"):
        raise Missing(f"--screenshot writes a PNG: {options.screenshot} does not end in .png")


def main(argv: list[str] | None = None) -> int:
    """Do what `argv` (default: the process's) says; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    rest: list[str] = []
    if "--" in argv:
        at = argv.index("--")
        argv, rest = argv[:at], argv[at + 1 :]
    options = _parser().parse_args(argv)
    from tabtorch.cli.browsers import Missing

    try:
        if options.command == "run":
            return _run(options, rest)
        if options.command == "serve":
            from tabtorch.cli.site import serve

            return serve(options.host, options.port)
        if options.command == "stop":
            from tabtorch.cli.keep import stop_kept

            return stop_kept()
        if options.command == "export":
            from tabtorch.cli.export import export

            return export(
                options.file, options.output, options.input, options.dynamic, options.device or (), options.method
            )
        if options.command == "completion":
            from tabtorch.cli.completion import completion

            print(completion(_parser(), options.shell), end="")
            return 0
        from tabtorch.cli.info import info

        return info(options.browser, options.json)
    except BrokenPipeError:  # as in `tabtorch info | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (Missing, OSError, RuntimeError) as error:
        print(f"tabtorch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
