"""fewer_components: an estimator tells, once a fit, that it has fewer components than it was asked for."""

import inspect
import warnings
from contextlib import suppress
from numbers import Integral
from typing import Any

from stream_dr.errors import FewerComponents, StreamDRError


def tell_fewer(estimator: Any, components: int, stacklevel: int = 4) -> None:
    """Warn FewerComponents where an estimator's projection has fewer than n_components, unless that was said."""
    holder = estimator.holder()
    if not _asks_for_more(estimator, components) or holder.told_fewer == estimator.n_components:
        return
    holder.told_fewer = estimator.n_components
    learned = holder.accumulator
    labels = f" and {len(learned.labels)} labels" if learned.labels else ""
    warnings.warn(
        f"{type(estimator).__name__} has {components} components, not the n_components={estimator.n_components} asked for: "
        f"{estimator.limit} (so far {learned.rows} rows of {learned.n_features} features{labels}). transform answers with "
        f"{components}.",
        FewerComponents,
        stacklevel=stacklevel,
    )


def tell_fewer_early(estimator: Any) -> None:
    """The same after a fit, which solves nothing unless n_components comes to the number of rows, features or labels."""
    learned = estimator.holder().accumulator
    enough = min(learned.rows, learned.n_features, len(learned.labels) if estimator.target_kinds else learned.rows)
    if _asks_for_more(estimator, enough - 1):
        with suppress(StreamDRError):  # that there is no solution is said when one is asked for
            tell_fewer(estimator, estimator.rank_, stacklevel=5)


def _asks_for_more(estimator: Any, components: int) -> bool:
    """Whether n_components is a number above this. A default was not asked for."""
    asked = getattr(estimator, "n_components", None)
    if not isinstance(asked, Integral) or asked <= components:
        return False
    return bool(asked != inspect.signature(type(estimator)).parameters["n_components"].default)
