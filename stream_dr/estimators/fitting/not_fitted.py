"""not_fitted: errors of an estimator that has learned too little.

They are scikit-learn's `NotFittedError`, too. `stream_dr.errors` has their classes without
scikit-learn, which a client need not load.
"""

from sklearn.exceptions import NotFittedError

from stream_dr import errors


class NotFitted(errors.NotFitted, NotFittedError):
    """Raised as `errors.NotFitted` by an estimator."""


class NeedsRefine(errors.NeedsRefine, NotFitted):
    """Raised as `errors.NeedsRefine` by an estimator."""
