"""The papers' tables and figures: each prints the paper's figure, ours, a verdict and the reason.

python -m benchmarks.papers            what there is
python -m benchmarks.papers NAME …     these
python -m benchmarks.papers --all      all (make papers)
"""

import argparse
import importlib
import pkgutil
import sys
import time
from pathlib import Path
from types import ModuleType

import benchmarks.papers
from benchmarks.papers import pages
from benchmarks.papers.claims import WORDS, Options, as_markdown, told


def found() -> dict[str, ModuleType]:
    """The tables and figures: modules of this package that have a `run`."""
    names = [module.name for module in pkgutil.iter_modules(benchmarks.papers.__path__) if module.name != "__main__"]
    modules = {name: importlib.import_module(f"benchmarks.papers.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw into this folder (docs/papers)")
    parser.add_argument("--markdown", action="store_true", help="claims as tables for a page")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write the tables into the pages there (docs/papers)")
    options = parser.parse_args(arguments)
    modules = found()
    if unknown := [name for name in options.names if name not in modules]:
        parser.error(f"no {', '.join(unknown)}; there are {', '.join(modules)}")
    if not options.names and not options.all:
        for name, module in modules.items():
            print(f"{name:24s} {(module.__doc__ or '').splitlines()[0]}")
        return
    counts: dict[str, int] = dict.fromkeys(WORDS, 0)
    for name in modules if options.all else options.names:
        begun = time.monotonic()
        print(f"== {name}: {(modules[name].__doc__ or '').splitlines()[0]}", flush=True)
        claims = list(modules[name].run(Options(options.quick, options.pictures)))
        for claim in claims:
            counts[claim.verdict] += 1
        shown = as_markdown(claims) if options.markdown else told(claims)
        print(shown, f"({time.monotonic() - begun:.0f} s)", sep="\n", end="\n\n", flush=True)
        if options.pages:
            pages.write_table(options.pages, name, claims)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
