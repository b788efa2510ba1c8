"""label_column: y in the shape that scikit-learn's classifiers take, one label a row."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning


def one_label_a_row(y: Any, stacklevel: int) -> Any:
    """Return y, with a single column (rows, 1) flattened to (rows,).

    Then it warns as scikit-learn does. Any other y is returned as it is.
    """
    if getattr(y, "ndim", 1) != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; it is read as one label a row.",
        DataConversionWarning,
        stacklevel=stacklevel + 1,
    )
    return y[:, 0] if isinstance(y, np.ndarray) else y
