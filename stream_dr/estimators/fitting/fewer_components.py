"""Warnings that there are fewer components than n_components."""

import inspect
import warnings
from contextlib import suppress
from numbers import Integral
from typing import TYPE_CHECKING

from stream_dr.errors import FewerComponents, StreamDRError

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator


def warn_if_fewer_components(estimator: "Estimator", n_components: int, stacklevel: int = 4) -> None:
    """Issue the warning FewerComponents if there are too few components.

    The warning is issued if there are fewer components than the caller has set as n_components. It
    is not repeated until n_components changes.

    n_components: number of components of the projection.
    stacklevel: number of calls between this function and the line that the warning names.
    """
    fitted = estimator.fitted()
    if not _user_asked_for_more(estimator, n_components) or fitted.last_warned_n_components == estimator.n_components:
        return

    # Remember the value, so that the next call issues no second warning.
    fitted.last_warned_n_components = estimator.n_components
    learned = fitted.accumulator
    labels = f" and {len(learned.labels)} labels" if learned.labels else ""
    warnings.warn(
        f"{type(estimator).__name__} has {n_components} components, not the n_components={estimator.n_components} asked "
        f"for: {estimator.limit} (so far {learned.rows} rows of {learned.n_features} features{labels}). transform answers "
        f"with {n_components}.",
        FewerComponents,
        stacklevel=stacklevel,
    )


def warn_at_fit_if_few_components(estimator: "Estimator") -> None:
    """Issue the warning FewerComponents after `fit`, if needed.

    The warning says that there are fewer components than n_components. The number of components is
    known only after solving. To save time, the projection is solved here only if there are too few
    rows, features or labels for n_components.
    """
    learned = estimator.fitted().accumulator
    enough = min(learned.rows, learned.n_features, len(learned.labels) if estimator.target_kinds else learned.rows)
    if _user_asked_for_more(estimator, enough - 1):
        # Solve by reading `rank_`. If this raises an error, no warning is needed.
        with suppress(StreamDRError):
            warn_if_fewer_components(estimator, estimator.rank_, stacklevel=5)


def _user_asked_for_more(estimator: "Estimator", n_available: int) -> bool:
    """True if the caller set n_components above `n_available`.

    The default value of n_components does not count as set by the caller.
    """
    asked = estimator.n_components
    if not isinstance(asked, Integral) or asked <= n_available:
        return False
    return bool(asked != inspect.signature(type(estimator)).parameters["n_components"].default)
