"""What the first batch of a fresh machine costs: closed forms on dense rows compile nothing."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import stream_dr

CHECK = """
import sys

import numpy as np
from numba.core.dispatcher import Dispatcher

import stream_dr
from stream_dr.estimators.fitting.closed_form import ClosedForm

rng = np.random.default_rng(0)
X, y = rng.normal(size=(40, 6)), np.array(list("abcd"))[rng.integers(0, 4, 40)]
for kind in stream_dr.ESTIMATORS.values():
    if issubclass(kind, ClosedForm):
        kind().partial_fit(X[:30], y[:30]).partial_fit(X[30:31], y[30:31]).transform(X)
modules = [module for name, module in sys.modules.items() if name.startswith("stream_dr")]
kernels = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
assert len(kernels) > 10
print([kernel.py_func.__qualname__ for kernel in kernels if kernel.signatures])
"""


@pytest.mark.test_all
def test_closed_forms_compile_nothing_for_dense_rows() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_row_makes_few_calls() -> None:
    """What X is and which parameters are set is asked once, so one row makes at most 180 calls."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 20)), rng.choice(list("abc"), 300)
    lda = stream_dr.LDA()
    for rows in (slice(0, 200), slice(200, 201), slice(201, 202)):
        lda.partial_fit(X[rows], y[rows])

    # A profile adds up constructors of NamedTuples under one key, so its count varies between runs.
    calls = Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        lda.partial_fit(X[299:], y[299:])
    finally:
        sys.setprofile(None)
    assert calls["call"] + calls["c_call"] <= 180
