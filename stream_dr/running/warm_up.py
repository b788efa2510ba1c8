"""Warm up: every compiled kernel, once, before the first request needs it.

Two tiny batches of each form that can arrive (Arrow and JSON, dense and sparse, float64 and float32; tables where a model's
feature map takes them) go through every registered estimator: parse, learn, solve, project, refine.

Cost: about a second when the kernels are in numba's cache, up to a minute when they are not.

Why this way: numba compiles per argument type, and an array over an Arrow buffer (read-only) is another type than one
from JSON; so only bytes that went through the codec warm what a request will use. An estimator that has no answer on
rows like these is compiled as far as it went.
"""

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import orjson
import scipy.sparse as sp
from sklearn.base import clone

from stream_dr.arrow.codec import arrow_from_block, json_rows, write_arrow
from stream_dr.directory.draft import rows_draft
from stream_dr.errors import StreamDRError
from stream_dr.estimators import ESTIMATORS
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.feature_maps import feature_map
from stream_dr.models.schema import block_for
from stream_dr.rows.block import Block
from stream_dr.rows.table_rows import raw_from_dicts
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

ROWS, FEATURES = 16, 6
WIDE = 100
"""Features of sparse rows with few values."""

log = logging.getLogger("stream_dr.warm_up")


def warm_up(
    estimators: Iterable[Estimator] | None = None, say: Callable[[str], object] = log.info, json: bool = True
) -> None:
    """Compile what the given estimators (default: each registered one with its defaults) use. json: also of JSON's rows.

    say: called with a line for each one that takes longer than two seconds, which none does once it is in the cache.
    """
    chosen = list(estimators if estimators is not None else [kind() for kind in ESTIMATORS.values()])
    for number, estimator in enumerate(chosen, start=1):
        line = f"compiling for {type(estimator).__name__}, {number} of {len(chosen)}: once on this machine"
        telling = threading.Timer(2.0, say, [line])
        telling.start()
        try:
            for kind in estimator.target_kinds or (None,):
                for block in chain(_tables(estimator, kind), _blocks(kind, json)):
                    _use(estimator, block)
        finally:
            telling.cancel()


def _use(estimator: Estimator, block: Block) -> None:
    try:
        # A map may not suit these made-up rows, which says nothing about the stream's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            accumulator = estimator.accumulator()
            accumulator.add(block_for(estimator, block))
            accumulator.add(block_for(estimator, block))
            estimator.solve(accumulator.freeze()).apply(block.X)
            # Refining has a loop of its own over sparse rows.
            if block.sparse and getattr(estimator, "refined_by", None) is not None:
                refined = clone(estimator).set_params(scatter="diagonal").fit(block_for(estimator, block))
                refined.refine([block], max_passes=1)
    except StreamDRError as e:
        log.debug("%s has no answer on the rows it is warmed with (%s): %s", type(estimator).__name__, e.code, e)


def _tables(estimator: Estimator, kind: str | None) -> Iterator[Block]:
    """Yield rows of categories, and rows of texts, if the estimator's feature map takes a table."""
    spec = estimator.get_params().get("feature_map")
    if spec is None or not feature_map(spec).learns:
        return
    words = [{"a": f"w{i}", "b": f"v{i}"} for i in range(ROWS)]
    texts = [{spec.get("column") or "text": f"w{i} and so on"} for i in range(ROWS)]
    for rows in (raw_from_dicts(words), raw_from_dicts(texts)):
        yield Block(rows, _targets(kind), names=rows.names)


def _blocks(kind: str | None, json: bool) -> Iterator[Block]:
    dense = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    filled = sp.csr_matrix(np.where(dense > 0, dense, 0.0))
    wide = sp.csr_matrix((filled.data, filled.indices, filled.indptr), shape=(ROWS, WIDE))
    for rows in (dense, filled, wide):
        for dtype in (np.float64, np.float32):
            block = Block(rows.astype(dtype), _targets(kind))
            yield _parsed(write_arrow([arrow_from_block(block)]), "arrow")
        if json:
            yield _parsed(orjson.dumps(json_rows(Block(rows, _targets(kind)))), "json")


def _parsed(body: bytes, media: str) -> Block:
    """The block of a body taken in as a service takes it, digest included."""
    block = rows_draft(body, media).block
    assert block is not None
    return block


def _targets(kind: str | None) -> Targets | None:
    if kind is None:
        return None
    if kind == "continuous":
        return continuous_targets(np.arange(ROWS, dtype=np.float64) % 5)
    labels = [*("abc"[i % 3] for i in range(1, ROWS)), "d"]  # kernels of their own: text, a class of one row
    return class_targets(labels) if kind == "class" else multilabel_targets([[label, "e"] for label in labels])
