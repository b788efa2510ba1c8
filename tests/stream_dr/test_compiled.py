"""compiled: kernels run without the GIL, cached, and without a cache where none is possible; and give the same bits."""

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from stream_dr import compiled as module
from stream_dr.compiled import compiled

ROOT = Path(__file__).parents[2]
STATES = """
import numpy as np, stream_dr
from stream_dr.models.snapshot import state_sha256
rng = np.random.default_rng(1)
for estimator in (stream_dr.IncrementalSKM(n_components=5), stream_dr.CCIPCA(n_components=5)):
    for batch in range(25):
        rows = int(rng.integers(1, 60))
        X, y = rng.normal(size=(rows, 13)), rng.integers(0, min(7, 2 + batch), rows)
        X[:, 0] += y
        estimator.partial_fit(X, y)
        print(state_sha256(estimator.fitted_.accumulator.freeze()))
"""
SOURCE = "def add(a, b):\n    return a + b\n"


def function_of_a_file(path):
    """A function whose source file is `path`; numba caches beside it, or nowhere."""
    names = {}
    exec(compile(SOURCE, path, "exec"), names)
    return names["add"]


def test_no_cache_directory_is_a_warning_not_an_error(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        add = compiled()(function_of_a_file("/nowhere/at/all.py"))
    assert add(1, 2) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled()(function_of_a_file("/nowhere/at/all.py"))  # said once a process


def test_options_reach_numba():
    add = compiled(cache=False, fastmath={"reassoc"})(function_of_a_file("/nowhere/at/all.py"))
    assert add(1.0, 2.0) == 3.0
    assert add.targetoptions["nogil"] is True


def test_what_a_compiled_loop_calls_is_inlined():
    compiled_functions, calls = {}, []
    for file in (ROOT / "stream_dr").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            options = options_of(node)
            if options is None:
                continue
            compiled_functions[node.name] = bool({"inline", "forceinline"} & options)
            called = (n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
            calls += [(file.name, node.name, name) for name in called]
    assert len(compiled_functions) > 20
    assert [c for c in calls if compiled_functions.get(c[2]) is False] == []


def options_of(node):
    """The names of the options a function is compiled with; None where it is not."""
    for decorator in getattr(node, "decorator_list", []):
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "compiled":
            return {k.arg for k in decorator.keywords}
    return None


@pytest.mark.test_all
def test_a_kernel_from_the_cache_gives_the_bits_of_one_just_compiled(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def states():
        return subprocess.run(
            [sys.executable, "-c", STATES], env=environment, capture_output=True, text=True, timeout=300, check=True
        ).stdout

    cold = states()
    assert len(cold.split()) == 50
    assert list(tmp_path.rglob("*.nbc"))
    assert states() == cold
