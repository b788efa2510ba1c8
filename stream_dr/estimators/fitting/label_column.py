"""Targets as scikit-learn's classifiers expect them, one label a row."""

import warnings

import numpy as np
from sklearn.exceptions import DataConversionWarning

from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.sklearn_bases import ClassifierMixin
from stream_dr.rows.batches import as_block, move_named_column_to_targets


class LabelScore(ClassifierMixin):
    """scikit-learn's classifiers, with labels that may be a column of X."""

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: WeightsLike = None) -> float:
        """Return the share of rows whose label is predicted correctly.

        y: labels (rows,), or the name of the column of X with the labels.
        """
        rows = move_named_column_to_targets(as_block(X, y, sample_weight))
        return super().score(rows.X, rows.y, rows.weights)


def flatten_column_with_warning(y: TargetsLike, stacklevel: int) -> TargetsLike:
    """Flatten targets y of shape (rows, 1) to shape (rows,).

    Flattening issues the warning DataConversionWarning, as in scikit-learn. Any other y is
    returned unchanged.

    stacklevel: as in `warnings.warn`, counted from the caller of this function.
    """
    if not isinstance(y, np.ndarray) or y.ndim != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; it is read as one label a row.",
        DataConversionWarning,
        stacklevel=stacklevel + 1,
    )
    return y[:, 0]
