"""Scores before and after refine, on rows that the method has not learned.

A diagonal solution assumes that features are uncorrelated. Refining uses their correlations. With
many features and few rows these are mostly noise, so that refining can lower the accuracy. Only
rows that were not learned show this, so every tenth row is held out.

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
"""One row of this many is held out."""


class _Predictor(Protocol):
    """An estimator that predicts."""

    def predict(self, X: Block) -> np.ndarray: ...

    def score(self, X: Block, y: list[Label]) -> float: ...


class _SplitSource:
    """Source of the held-out rows of a source, or the others.

    Rows without a target are left out.
    """

    def __init__(self, source: Source, held_out: bool) -> None:
        self._source = source
        self._held_out = held_out

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for after < position ≤ until."""
        rows = 0
        # Rows are numbered from the start of the stream, so events up to `after` are read too.
        for position, block in self._source.events(until=until):
            block = labelled_rows(block)[0]
            numbers = np.arange(rows, rows + block.rows)
            rows += block.rows

            is_held_out = numbers % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1
            chosen = np.flatnonzero(is_held_out == self._held_out)
            if position > after and len(chosen):
                yield position, block.take(chosen)


def scores_of_refining(estimator: Estimator, source: Source, tol: float, max_passes: int) -> tuple[float, float]:
    """Return the scores on the held-out rows before and after refining.

    The score is the accuracy of labels or the R² of numbers, NaN if no row is held out. Raises
    what learning and refining raise.

    Parameters
    ----------
    estimator : Estimator
        Unfitted estimator that predicts. It learns all rows that are not held out.
    source : Source
        Read several times. Rows without a target are left out.
    tol, max_passes
        See `Estimator.refine`.
    """
    learned = _SplitSource(source, held_out=False)
    held_out = _SplitSource(source, held_out=True)

    with warnings.catch_warnings():
        # Warnings about rows that are learned only for a comparison are no use to the caller.
        warnings.simplefilter("ignore")
        for _, block in learned.events():
            estimator.partial_fit(block)
        before = _score(estimator, held_out)

        estimator.refine(learned, tol=tol, max_passes=max_passes)
        return before, _score(estimator, held_out)


def _score(estimator: Estimator, source: Source) -> float:
    """Return the accuracy or R² on the rows of a source, NaN if there are none."""
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
