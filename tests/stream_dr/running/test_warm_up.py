"""Warming up: what common batches need is compiled by then, whatever their labels, layout and columns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stream_dr

ROOT = Path(__file__).parents[3]
CHECK = '''
import sys
from contextlib import suppress

import numpy as np
import orjson
import scipy.sparse as sp
from numba.core.dispatcher import Dispatcher

import stream_dr
from stream_dr.batch.block import Block
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.json_rows import json_from_block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets


def kernels():
    """Of each kernel, the types it is compiled for."""
    modules = [m for name, m in sys.modules.items() if name.startswith("stream_dr")]
    found = {(m.__name__, name): v for m in modules for name, v in vars(m).items() if isinstance(v, Dispatcher)}
    return {(*name, types) for name, kernel in found.items() for types in kernel.signatures}


def forms(block):
    """Bodies of a batch, with their media."""
    changes = {"weights": np.ones(30)}, {"ids": [str(i) for i in range(30)]}
    blocks = [block, *(block._replace(**change) for change in changes)]
    if not block.sparse:
        blocks.append(block._replace(names=tuple(f"c{i}" for i in range(9))))
    batches = [arrow_from_block(b) for b in blocks]
    if "label" in batches[0].schema.names:
        at = batches[0].schema.names.index("label")
        batches.append(batches[0].set_column(at, "label", batches[0].column("label").dictionary_encode()))
    yield from ((bytes(write_arrow([batch])), "arrow") for batch in batches)
    yield orjson.dumps(json_from_block(block)), "json"


def use(estimator, body, media):
    with suppress(stream_dr.errors.StreamDRError):  # weights are refused, or there is no answer on rows like these
        block = estimator.block_to_learn(stream_dr.rows_draft(body, media).block)
        accumulator = estimator.accumulator()
        accumulator.add(block)
        accumulator.add(block)
        estimator.solve(accumulator.freeze())
        if block.sparse and getattr(estimator, "refines", False):
            diagonal = type(estimator)(scatter="diagonal").fit(block)
            diagonal.refine([block], max_passes=1)


stream_dr.warm_up()
before = kernels()
assert len(before) > 15, before

dense = np.random.default_rng(1).normal(size=(30, 9))
rows = [kind(dense).astype(dtype) for kind in (np.asarray, sp.csr_matrix) for dtype in (np.float64, np.float32)]
texts, numbers = list("abcde") * 6, list(range(5)) * 6
targets = {
    "class": [class_targets(texts), class_targets(numbers), class_targets([f"l{i}" for i in range(30)])],
    "multilabel": [multilabel_targets([[a, "z"] for a in texts]), multilabel_targets([[a, 9] for a in numbers])],
    "continuous": [continuous_targets(np.arange(30.0))],
}
for kind in stream_dr.ESTIMATORS.values():
    estimator = kind()
    for y in [y for name in estimator.target_kinds for y in targets[name]] or [None]:
        for X in rows:
            for body, media in forms(Block(X, y)):
                use(estimator, body, media)
assert kernels() <= before, kernels() - before
'''


@pytest.mark.test_all
def test_what_common_batches_need_is_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.test_all
def test_it_says_what_it_compiles_where_nothing_is_cached(tmp_path) -> None:
    program = "import stream_dr; stream_dr.warm_up([stream_dr.CCIPCA()], print)"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240)
        for _ in range(2)
    ]
    assert told[0].stdout == "compiling for CCIPCA, 1 of 1: once on this machine\n", told[0].stderr
    assert told[1].returncode == 0


class Broken(stream_dr.CCIPCA):
    """An estimator with an error that is not of its rows."""

    def accumulator(self, state=None):
        raise ZeroDivisionError


def test_an_error_on_the_made_up_rows_is_no_error_of_the_caller() -> None:
    said: list[str] = []
    stream_dr.warm_up([Broken()], say=said.append)
    assert said == []
