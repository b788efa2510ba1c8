"""Admit, of saved estimators: whether one can go on in a stream, decided before a model begins with it."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from stream_dr.directory.admit import NONE, admit_model, try_batch
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.schema import Limits, Schema, columns_in_order, table_of, with_learned
from stream_dr.rows.block import Block
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS


def admit_saved(estimator: Estimator, schema: Schema, limits: Limits) -> Schema:
    """The schema with what a saved estimator has learned. Raises what keeps it from going on in a stream of this schema."""
    learned = estimator.holder().accumulator
    joined = with_learned(schema, learned, estimator.holder().names)
    admit_model(estimator, joined._replace(features=max(joined.features, learned.n_features)), limits)
    if schema.layout is not None:
        try_batch(estimator, columns_in_order(_zeros(joined), joined), learned.freeze())
    return joined


def _zeros(schema: Schema) -> Block:
    """A row of zeros, or a table's without values, as the stream might bring it, with its first label."""
    shape = (1, schema.features)
    X: Any = table_of(schema)
    if X is None:
        X = csr_matrix(shape) if schema.layout == "sparse" else np.zeros(shape)
    label = schema.labels[:1]
    given: Any = {
        "class": label,
        "multilabel": [label] if label else [],
        "continuous": np.zeros((1, schema.outputs)) if schema.outputs else [],
    }.get(schema.target_kind or NONE, [])
    y = parse_targets(given, 1, KINDS, known=schema.target_kind) if len(given) else None
    return Block(X, y, np.ones(1) if schema.weighted else None, names=schema.names)
