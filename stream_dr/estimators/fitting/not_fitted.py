"""Errors of an estimator that has learned too little.

Each of these errors is also scikit-learn's `NotFittedError`. The base classes in
`stream_dr.errors` do not import scikit-learn, so a client can catch these errors without
scikit-learn.
"""

from sklearn.exceptions import NotFittedError

from stream_dr import errors


class NotFitted(errors.NotFitted, NotFittedError):
    """Error of an estimator that has learned no row.

    It is also scikit-learn's NotFittedError.
    """


class NeedsRefine(errors.NeedsRefine, NotFitted):
    """Error of an estimator that has no projection before `refine`.

    It is also scikit-learn's NotFittedError.
    """
