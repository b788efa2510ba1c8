"""Score an estimator before and after refine, on rows that it has not learned.

A diagonal solution assumes that features are uncorrelated. Refining uses the correlations of the
features. With many features and few rows, the measured correlations are mostly noise, and refining
can lower the accuracy. Scores on learned rows do not show this, so every tenth row is held out.

Cost: one more state, one pass of learning, the passes of refine, and two passes of prediction.
"""

import warnings
from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np

from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.source import Source
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import labelled_rows

HOLD_OUT_EVERY = 10
"""Every row whose number plus 1 is a multiple of this number is held out."""


class _Predictor(Protocol):
    """Estimator that can predict targets."""

    def predict(self, X: Block) -> np.ndarray: ...

    def score(self, X: Block, y: list[Label]) -> float: ...


class _SplitSource:
    """Source of the held-out rows of another source, or of its other rows.

    Rows without a target are in neither.

    held_out: True for the held-out rows, False for the other rows.
    """

    def __init__(self, source: Source, held_out: bool) -> None:
        self._source = source
        self._held_out = held_out

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of the chosen rows, for after < position ≤ until."""
        rows = 0
        # The number of a row, counted from the start of the source, decides if it is held out.
        # So events up to `after` are read too.
        for position, block in self._source.events(until=until):
            block = labelled_rows(block)[0]
            numbers = np.arange(rows, rows + block.rows)
            rows += block.rows

            is_held_out = numbers % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1
            chosen = np.flatnonzero(is_held_out == self._held_out)
            if position > after and len(chosen):
                yield position, block.take(chosen)


def scores_of_refining(estimator: Estimator, source: Source, tol: float, max_passes: int) -> tuple[float, float]:
    """Return an estimator's scores on held-out rows before and after refine.

    A score is the accuracy of labels or the R² of numbers. It is NaN if no row is held out. Raises
    the errors of learning and refining.

    Parameters
    ----------
    estimator : Estimator
        Unfitted estimator that can predict. It learns all rows that are not held out.
    source : Source
        Rows to learn and to score. They are read several times. Rows without a target are ignored.
    tol, max_passes
        As in `Estimator.refine`.
    """
    learned = _SplitSource(source, held_out=False)
    held_out = _SplitSource(source, held_out=True)

    with warnings.catch_warnings():
        # Warnings are suppressed, because the caller does not use this fit. It only gives scores.
        warnings.simplefilter("ignore")
        for _, block in learned.events():
            estimator.partial_fit(block)
        before = _score(estimator, held_out)

        estimator.refine(learned, tol=tol, max_passes=max_passes)
        return before, _score(estimator, held_out)


def _score(estimator: Estimator, source: Source) -> float:
    """Return an estimator's score on the rows of a source.

    The score is the accuracy of labels, or the R² of numbers. It is NaN if there are no rows.
    """
    from sklearn.metrics import r2_score

    predictor = cast(_Predictor, estimator)
    accuracies: list[float] = []
    rows: list[int] = []
    truth: list[Rows] = []
    predicted: list[Rows] = []
    for _, block in source.events():
        if block.y.values is None:
            accuracies.append(predictor.score(block._replace(y=None), block.y.row_labels()))
            rows.append(block.rows)
        else:
            truth.append(block.y.values)
            predicted.append(predictor.predict(block).reshape(block.y.values.shape))

    if truth:
        return float(r2_score(np.concatenate(truth), np.concatenate(predicted)))
    return float(np.average(accuracies, weights=rows)) if rows else float("nan")
