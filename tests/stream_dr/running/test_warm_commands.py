"""Commands compile before they show progress, so that the time left has no compiling in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


COMMAND = """
import sys

from numba.core.dispatcher import Dispatcher

import stream_dr
from stream_dr.cli import main
from stream_dr.commands.output import ProgressBar


def kernels():
    modules = [m for name, m in sys.modules.items() if name.startswith("stream_dr")]
    found = {(m.__name__, name): v for m in modules for name, v in vars(m).items() if isinstance(v, Dispatcher)}
    return {(*name, types) for name, kernel in found.items() for types in kernel.signatures}


begun = []
enter = ProgressBar.__enter__
ProgressBar.__enter__ = lambda self: begun.append((self, kernels())) or enter(self)
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code
before = begun[-1][1]
assert kernels() <= before, kernels() - before
"""


@pytest.mark.test_all
@pytest.mark.parametrize("name", ["numbers", "mixed", "texts"])
@pytest.mark.parametrize("command", [["learn", "--dir", "D"], ["evaluate", "--probes", "mean"]])
def test_nothing_is_compiled_once_progress_is_shown(tmp_path: Path, name: str, command: list[str]) -> None:
    row = {"numbers": "{n},{i}.5", "mixed": "{n},c{n}", "texts": "{n},word{i} of {n} and more"}[name]
    rows = [f"{row.format(i=i, n=i % 37)},{'uv'[i % 3 == 0]}" for i in range(2_500)]
    (tmp_path / "rows.csv").write_text("\n".join(["n,c,y", *rows, ""]))
    map = ["--drop", "n"] if name == "texts" else []
    line = [*command, "rows.csv", "--label", "y", "--model", "lda=lda:n_components=1", *map]
    run = [sys.executable, "-c", COMMAND, *line]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
