"""`python -m py_gemm bench`: the benchmark from the command line. An installed package measures what runs in this interpreter;
browsers, Node and the libraries of pages are measured by the scripts of a checkout, to which this hands over.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import GemmError

CHECKOUT = Path(__file__).resolve().parent.parent
_EPILOG = """\
examples:
  python -m py_gemm bench --cpu                    the CPU road: wasmtime; in a checkout Chromium and Node, too
  python -m py_gemm bench --device wgpu            this machine's GPU, outside the browser
  python -m py_gemm bench --device webgpu          WebGPU in Chromium, next to other libraries (checkout only)
  python -m py_gemm bench --cpu --json figures.json --picture bars.svg
Progress goes to stderr, the tables to stdout as Markdown. Machines share their cores: only ratios within one run mean something."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(prog="python -m py_gemm", description="Matrix multiplication in the browser and outside it.")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    bench = commands.add_parser(
        "bench",
        help="measure speed and error next to other libraries",
        description="Measures speed and error next to other libraries: medians of interleaved, warm runs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(bench)
    return whole


def add_options(bench: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The options of `bench`, here and in scripts/bench.py."""
    what = bench.add_mutually_exclusive_group(required=required)
    what.add_argument("--cpu", action="store_true", help="the CPU road, one thread")
    what.add_argument("--device", choices=("webgpu", "wgpu"), help="a GPU: in Chromium, or outside the browser")
    size = bench.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small products and few turns: whether it works, not how fast it is")
    size.add_argument("--full", action="store_true", help="large products and more turns")
    bench.add_argument("--engine", choices=("chromium", "node", "wasmtime"), help="with --cpu: only this one")
    bench.add_argument("--json", metavar="FILE", type=Path, help="write the figures as well")
    bench.add_argument("--picture", metavar="FILE", type=Path, help="draw them as well: .svg, in a checkout also .png")


def extent_of(options: argparse.Namespace) -> str:
    """The extent: "quick", "usual" or "full"."""
    return "quick" if options.quick else "full" if options.full else "usual"


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 2 where something is needed that is not here."""
    words = sys.argv[1:] if words is None else list(words)
    options = parser().parse_args(words)
    if has_scripts(CHECKOUT):
        return subprocess.run([sys.executable, "-m", "scripts.bench", *words[1:]], cwd=CHECKOUT, check=False).returncode
    lacking = what_is_lacking(options)
    if lacking:
        print(f"py_gemm: {lacking}", file=sys.stderr)  # noqa: T201
        return 2
    return measure_here(options)


def has_scripts(folder: Path) -> bool:
    """Whether this is a checkout, whose scripts drive browsers."""
    return (folder / "scripts" / "bench.py").is_file() and (folder / "package.json").is_file()


def what_is_lacking(options: argparse.Namespace) -> str:
    """What an installed package cannot do by itself, and what to do instead; nothing where it can."""
    if options.device == "webgpu":
        return (
            "--device webgpu measures in Chromium, next to other libraries, and needs a checkout of py_gemm: there, "
            "`npm run bench -- --device webgpu`. In a page of your own: `print(await pg.bench_async('webgpu'))`. "
            "For this machine's GPU outside the browser: --device wgpu."
        )
    if options.engine in ("chromium", "node"):
        return f"--engine {options.engine} needs a checkout of py_gemm: there, `npm run bench -- --cpu --engine {options.engine}`."
    if options.picture and options.picture.suffix != ".svg":
        return "--picture: an installed package draws .svg only."
    return ""


def measure_here(options: argparse.Namespace) -> int:
    """Measure in this interpreter, print and write."""
    from .report.bench import bench

    if options.cpu and options.engine is None:
        say("measuring in this interpreter; a checkout of py_gemm also measures in Chromium and Node (npm run bench -- --cpu)")
    try:
        found = bench("cpu" if options.cpu else options.device, extent=extent_of(options), progress=say)
    except GemmError as error:
        print(f"py_gemm: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(found)  # noqa: T201
    if options.json:
        options.json.write_text(found.to_json(), encoding="utf-8")
    if options.picture:
        options.picture.write_text(found.to_svg(), encoding="utf-8")
    return 0


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
