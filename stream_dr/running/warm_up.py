"""Warm up: compiles numba functions before requests need them.

Every estimator learns two small batches, is solved, projects rows and is refined. This is repeated
for each form of rows that a request can have: Arrow and JSON, dense and sparse, float64 and
float32, and tables if the estimator's feature map accepts tables.

Numba compiles a function again for each type of its arguments, and read-only arrays from Arrow
have a different type than arrays from JSON. The rows are therefore encoded and parsed like the
rows of a request. If an estimator has no solution for the made-up rows, its later functions are
not compiled.

Warm up takes about a third of a second an estimator if numba has the functions in its cache, and 1
to 5 seconds if not.
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

from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import json_from_block
from stream_dr.batch.matrix import table_from_dicts
from stream_dr.batch.targets import Targets, class_targets, continuous_targets, multilabel_targets
from stream_dr.directory.draft import rows_draft
from stream_dr.estimators import ESTIMATORS
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.feature_maps import feature_map

ROWS = 16
"""Number of rows of each made-up batch."""

FEATURES = 6
"""Number of features of the dense rows, and of the sparse rows with few features."""

WIDE_FEATURES = 100
"""Number of features of the sparse rows with many features."""

log = logging.getLogger("stream_dr.warm_up")


def warm_up(
    estimators: Iterable[Estimator] | None = None, say: Callable[[str], object] = log.info, json: bool = True
) -> None:
    """Compile the numba functions that estimators use.

    Parameters
    ----------
    estimators : iterable of Estimator or None
        Estimators to run. None: all registered estimators with their default parameters.
    say : callable
        Receives a line of text for each estimator whose compilation takes more than two seconds.
    json : bool
        True to compile for JSON rows in addition to Arrow rows.

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
                for block in chain(_table_blocks(estimator, kind), _numeric_blocks(kind, json)):
                    _compile_by_use(estimator, block)
        finally:
            timer.cancel()


def _compile_by_use(estimator: Estimator, block: Block) -> None:
    """Learn a block twice, then solve, project and refine."""
    try:
        # Suppress warnings of feature maps about the made-up rows, which the user has not sent.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            accumulator = estimator.accumulator()
            learned = estimator.block_to_learn(block)
            accumulator.add(learned)
            accumulator.add(learned)
            estimator.solve(accumulator.freeze()).apply(block.X)
            # Refining sparse rows uses functions that are compiled separately.
            if block.sparse and estimator.refines:
                refined = clone(estimator).set_params(scatter="diagonal").fit(learned)
                refined.refine([block], max_passes=1)
    # An error of the made-up rows says nothing about the rows of the stream.
    except Exception as e:
        log.debug("%s has no answer on the rows it is warmed with: %r", type(estimator).__name__, e)


def _table_blocks(estimator: Estimator, target_kind: str | None) -> Iterator[Block]:
    """Yield a table of categories and a table of texts.

    No table is yielded if the estimator's feature map does not accept tables.

    target_kind: kind of the targets. None: no targets.
    """
    spec = estimator.get_params().get("feature_map")
    if spec is None or not feature_map(spec).learns:
        return
    words = [{"a": f"w{i}", "b": f"v{i}"} for i in range(ROWS)]
    texts = [{spec.get("column") or "text": f"w{i} and so on"} for i in range(ROWS)]
    for rows in (table_from_dicts(words), table_from_dicts(texts)):
        yield Block(rows, _made_up_targets(target_kind), names=tuple(rows.schema.names))


def _numeric_blocks(target_kind: str | None, with_json: bool) -> Iterator[Block]:
    """Yield dense and sparse rows, encoded in each format and parsed.

    target_kind: kind of the targets. None: no targets.
    with_json: True to yield JSON rows in addition to Arrow rows.
    """
    dense = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    filled = sp.csr_matrix(np.where(dense > 0, dense, 0.0))
    wide = sp.csr_matrix((filled.data, filled.indices, filled.indptr), shape=(ROWS, WIDE_FEATURES))
    for rows in (dense, filled, wide):
        for dtype in (np.float64, np.float32):
            block = Block(rows.astype(dtype), _made_up_targets(target_kind))
            yield _parse_body(write_arrow([arrow_from_block(block)]), "arrow")
        if with_json:
            yield _parse_body(orjson.dumps(json_from_block(Block(rows, _made_up_targets(target_kind)))), "json")


def _parse_body(body: bytes, body_format: str) -> Block:
    """Parse the rows of a request's body like the service.

    body_format: "arrow" or "json".
    """
    block = rows_draft(body, body_format).block
    assert block is not None
    return block


def _made_up_targets(target_kind: str | None) -> Targets | None:
    """Return targets of ROWS rows.

    target_kind: "class", "multilabel" or "continuous". None: no targets.
    """
    if target_kind is None:
        return None
    if target_kind == "continuous":
        return continuous_targets(np.arange(ROWS, dtype=np.float64) % 5)
    # String labels, and a class with only one row, use functions that are compiled separately.
    labels = [*("abc"[i % 3] for i in range(1, ROWS)), "d"]
    return class_targets(labels) if target_kind == "class" else multilabel_targets([[label, "e"] for label in labels])
