"""compiled: kernels run without the GIL, cached, and without a cache where none is possible."""

import warnings

import pytest

from stream_dr import compiled as module
from stream_dr.compiled import compiled

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
