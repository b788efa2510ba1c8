"""Warm up: runs every compiled kernel before the first request needs it.

Two tiny batches of each form that can arrive go through every registered estimator: parse, learn,
solve, project, refine. The forms are Arrow and JSON, dense and sparse, float64 and float32, and
tables if a model's feature map takes them.

Numba compiles per argument type, and a read-only array over an Arrow buffer is another type than
one from JSON. Only bytes that went through the codec compile what a request will use. An estimator
without a solution on such rows is compiled as far as it went.

Cost: about a second if the kernels are in numba's cache, otherwise up to a minute.
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

ROWS = 16
FEATURES = 6
WIDE = 100
"""Number of features of sparse rows with few values."""

log = logging.getLogger("stream_dr.warm_up")


def warm_up(
    estimators: Iterable[Estimator] | None = None, say: Callable[[str], object] = log.info, json: bool = True
) -> None:
    """Compile what estimators use.

    Parameters
    ----------
    estimators : iterable of Estimator or None
        None: each registered one with its defaults.
    say : callable
        Receives a line for each estimator that takes longer than two seconds. None does once it is
        in the cache.
    json : bool
        Compile for JSON rows too.

    Examples
    --------
    >>> import stream_dr
    >>> stream_dr.warm_up([stream_dr.LDA()], say=[].append, json=False)
    """
    chosen = list(estimators if estimators is not None else [kind() for kind in ESTIMATORS.values()])
    for number, estimator in enumerate(chosen, start=1):
        line = f"compiling for {type(estimator).__name__}, {number} of {len(chosen)}: once on this machine"
        timer = threading.Timer(2.0, say, [line])
        timer.start()
        try:
            for kind in estimator.target_kinds or (None,):
                for block in chain(_table_blocks(estimator, kind), _number_blocks(kind, json)):
                    _exercise(estimator, block)
        finally:
            timer.cancel()


def _exercise(estimator: Estimator, block: Block) -> None:
    """Learn, solve, project and refine a block."""
    try:
        # A map may not suit these made-up rows, which says nothing about the stream's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            accumulator = estimator.accumulator()
            accumulator.add(block_for(estimator, block))
            accumulator.add(block_for(estimator, block))
            estimator.solve(accumulator.freeze()).apply(block.X)
            # Refining has a loop of its own over sparse rows.
            if block.sparse and estimator.refined_by is not None:
                refined = clone(estimator).set_params(scatter="diagonal").fit(block_for(estimator, block))
                refined.refine([block], max_passes=1)
    except StreamDRError as e:
        log.debug("%s has no answer on the rows it is warmed with (%s): %s", type(estimator).__name__, e.code, e)


def _table_blocks(estimator: Estimator, kind: str | None) -> Iterator[Block]:
    """Yield rows of categories and of texts, if the feature map takes a table."""
    spec = estimator.get_params().get("feature_map")
    if spec is None or not feature_map(spec).learns:
        return
    words = [{"a": f"w{i}", "b": f"v{i}"} for i in range(ROWS)]
    texts = [{spec.get("column") or "text": f"w{i} and so on"} for i in range(ROWS)]
    for rows in (raw_from_dicts(words), raw_from_dicts(texts)):
        yield Block(rows, _made_up_targets(kind), names=rows.names)


def _number_blocks(kind: str | None, json: bool) -> Iterator[Block]:
    """Yield dense, sparse and wide sparse rows in each form that can arrive."""
    dense = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    filled = sp.csr_matrix(np.where(dense > 0, dense, 0.0))
    wide = sp.csr_matrix((filled.data, filled.indices, filled.indptr), shape=(ROWS, WIDE))
    for rows in (dense, filled, wide):
        for dtype in (np.float64, np.float32):
            block = Block(rows.astype(dtype), _made_up_targets(kind))
            yield _parsed(write_arrow([arrow_from_block(block)]), "arrow")
        if json:
            yield _parsed(orjson.dumps(json_rows(Block(rows, _made_up_targets(kind)))), "json")


def _parsed(body: bytes, media: str) -> Block:
    """Return the block of a body, parsed as a service does."""
    block = rows_draft(body, media).block
    assert block is not None
    return block


def _made_up_targets(kind: str | None) -> Targets | None:
    if kind is None:
        return None
    if kind == "continuous":
        return continuous_targets(np.arange(ROWS, dtype=np.float64) % 5)
    # Texts and a class of one row have kernels of their own.
    labels = [*("abc"[i % 3] for i in range(1, ROWS)), "d"]
    return class_targets(labels) if kind == "class" else multilabel_targets([[label, "e"] for label in labels])
