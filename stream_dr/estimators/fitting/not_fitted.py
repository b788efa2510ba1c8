"""not_fitted: the errors of an estimator that has learned too little, which are scikit-learn's `NotFittedError` too.

`stream_dr.errors` has their classes without scikit-learn, which a client need not load.
"""

from sklearn.exceptions import NotFittedError

from stream_dr import errors


class NotFitted(errors.NotFitted, NotFittedError):
    """`errors.NotFitted` of an estimator."""


class NeedsRefine(errors.NeedsRefine, NotFitted):
    """`errors.NeedsRefine` of an estimator."""
