"""Check whether a saved estimator can continue to learn from a stream.

The check is done before a model is made from the saved estimator.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from stream_dr.directory.admit import NONE, admit_model, try_batch
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.schema import Limits, Schema, columns_in_order, missing_table_row, with_learned
from stream_dr.rows.block import Block
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS


def admit_saved(estimator: Estimator, schema: Schema, limits: Limits) -> Schema:
    """Return the schema, extended by what a saved estimator has learned.

    These are the estimator's kind of targets, labels and column names.

    Raises an error if the estimator cannot continue to learn from a stream of this schema.
    """
    accumulator = estimator.fitted().accumulator
    new_schema = with_learned(schema, accumulator, estimator.fitted().names)

    admit_model(estimator, new_schema._replace(features=max(new_schema.features, accumulator.n_features)), limits)
    if schema.layout is not None:
        try_batch(estimator, columns_in_order(_zeros(new_schema), new_schema), accumulator.freeze())
    return new_schema


def _zeros(schema: Schema) -> Block:
    """Return a Block of one row that fits a stream's schema.

    The row has the stream's layout. Its values are zeros, or all missing for the row of a table.
    Its target is the stream's first label, or zeros if targets are continuous.
    """
    shape = (1, schema.features)
    X: Any = missing_table_row(schema)
    if X is None:
        X = csr_matrix(shape) if schema.layout == "sparse" else np.zeros(shape)
    label = schema.labels[:1]
    targets: Any = {
        "class": label,
        "multilabel": [label] if label else [],
        "continuous": np.zeros((1, schema.outputs)) if schema.outputs else [],
    }.get(schema.target_kind or NONE, [])
    y = parse_targets(targets, 1, KINDS, known=schema.target_kind) if len(targets) else None
    return Block(X, y, np.ones(1) if schema.weighted else None, names=schema.names)
