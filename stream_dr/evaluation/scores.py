"""Scores of predictions, updated batch by batch.

`ClassScores` is for rows with one label. It counts predictions in a confusion matrix (labels,
labels). `LabelScores` is for rows with several labels. It counts the true positives, false
positives and false negatives of each label, and has histograms of the predicted scores for the
area under the ROC curve (AUC).

The scores have the same definitions as in river: `metrics.Accuracy`, `MicroF1`, `MacroF1` (over
the labels that occur as true or predicted labels), `multioutput.ExactMatch`,
`MicroAverage(F1)` and `MacroAverage(F1)`. AUC is averaged over labels, without labels that no row
has or that every row has.

river updates its metrics for one row and one label at a time, which takes 83 million calls for the
data set RCV1. The classes here update the counts for a whole batch. The histograms have 1,000 bins
over [−1, 1], and AUC treats scores in the same bin as equal. Memory does not grow with the number
of rows.

`score_before_after_refine` scores an estimator before and after refine. A "diagonal"
solution ignores the correlations between features. Refine (an exact solution by further passes
over the rows) includes the correlations. With many features and few rows, the measured
correlations are mostly noise. Refine can then lower the accuracy. Scores on learned rows do not
show this, so a random tenth of the rows is held out.

The rows are read once for learning, several times for refine and twice for the scores.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np

from stream_dr.batch.block import Block, Rows
from stream_dr.batch.rows import Source
from stream_dr.batch.targets import Label, drop_rows_without_target
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.statistics.moments.centred_part import pad_to_shape

BINS = 1_000
"""Number of bins in each histogram of predicted scores, which are in [−1, 1]."""


def standard_error(accuracy: float, rows: int) -> float:
    """Return the binomial standard error of an accuracy.

    rows: number of tested rows.
    """
    return math.sqrt(accuracy * (1 - accuracy) / rows)


def weakness(accuracy: float, rows: int, most_frequent: float) -> str:
    """Return a note on a model that is hardly better than a baseline.

    The baseline always predicts the most frequent label. The note is "" if the accuracy is more
    than two standard errors above the baseline.

    rows: number of tested rows.
    most_frequent: accuracy of always predicting the most frequent label.
    """
    if accuracy > most_frequent + 2 * standard_error(accuracy, rows):
        return ""
    return f"no better than the most frequent label ({100 * most_frequent:.1f} %)"


class ClassScores:
    """Accuracy and F1 of predictions for rows with one label.

    Labels are given as label codes, which are integers from 0.
    """

    def __init__(self) -> None:
        # Array (labels, labels) of the number of rows, by true and by predicted label code.
        self._confusion = np.zeros((0, 0), np.int64)

    def add(self, true_codes: np.ndarray, predicted_codes: np.ndarray, n_labels: int) -> None:
        """Count the predictions for a batch of rows.

        true_codes: (rows,) true label codes.
        predicted_codes: (rows,) predicted label codes.
        n_labels: number of different labels so far. All label codes are below this number.
        """
        # The confusion matrix counts rows by true label (first axis) and predicted label.
        # Labels that are new get a row and a column of zeros.
        size = max(n_labels, len(self._confusion))
        self._confusion = pad_to_shape(self._confusion, (size, size))
        self._confusion += np.bincount(true_codes * size + predicted_codes, minlength=size * size).reshape(size, size)

    def scores_by_name(self) -> dict[str, float]:
        """Return the scores of all predictions so far.

        The keys are "accuracy", "micro_f1", "macro_f1", "rows" (number of rows) and
        "most_frequent" (share of the rows that have the most frequent label).
        """
        # The confusion matrix counts rows by true label (first axis) and predicted label.
        rows = int(self._confusion.sum())
        if rows:
            most_frequent = float(self._confusion.sum(1).max() / rows)
        else:
            most_frequent = float("nan")
        correct = np.diagonal(self._confusion)
        # For each label, add the numbers of rows that are predicted to have it and that have it.
        # The F1 of a label is 2 · correct / occurrences.
        occurrences = self._confusion.sum(0) + self._confusion.sum(1)
        seen = occurrences > 0

        # Micro-averaged F1 equals the accuracy if each row has exactly one label.
        accuracy = float(correct.sum() / rows) if rows else float("nan")
        macro = _mean_or_nan(2 * correct[seen] / occurrences[seen])
        scores = {"accuracy": accuracy, "micro_f1": accuracy, "macro_f1": macro, "rows": rows}
        return scores | {"most_frequent": most_frequent}


class LabelScores:
    """Accuracy, F1 and AUC for rows with several labels."""

    def __init__(self) -> None:
        # For each label, the numbers of true positives, false positives and false negatives.
        self._counts = np.zeros((0, 3), np.int64)

        # Array (2, labels, bins) of histograms of each label's predicted scores.
        # Entry 0 is for the rows that have the label, and entry 1 for the other rows.
        self._histograms = np.zeros((2, 0, BINS), np.int64)
        self._exact_matches = 0
        self._rows = 0

    def add(self, true_label_masks: np.ndarray, predicted_label_masks: np.ndarray, label_scores: np.ndarray) -> None:
        """Count the predictions for a batch of rows.

        Parameters
        ----------
        true_label_masks : ndarray (rows, labels), bool
            True if the row has the label.
        predicted_label_masks : ndarray (rows, labels), bool
            True if the row is predicted to have the label.
        label_scores : ndarray (rows, labels), float
            Predicted scores in [−1, 1]. A likelier label has a larger score.
        """
        # Labels that are new get zero counts. `_counts` (labels, 3) has one row for each label.
        self._grow_to_labels(true_label_masks.shape[1])
        true_positives = (true_label_masks & predicted_label_masks).sum(0)
        false_positives = (predicted_label_masks & ~true_label_masks).sum(0)
        false_negatives = (true_label_masks & ~predicted_label_masks).sum(0)
        self._counts += np.column_stack([true_positives, false_positives, false_negatives])
        self._exact_matches += int((true_label_masks == predicted_label_masks).all(1).sum())
        self._rows += len(true_label_masks)

        # Histograms have BINS bins for scores from −1 to 1. The score 1 belongs to the last bin.
        # Number the bins of all labels consecutively, so that one bincount fills all histograms.
        labels = np.arange(true_label_masks.shape[1])
        levels = ((label_scores + 1.0) * (BINS / 2)).astype(np.int64)
        bins = labels * BINS + np.clip(levels, 0, BINS - 1)
        # The first histogram is of the rows with the label, and the second of the rows without it.
        for side, mask in enumerate((true_label_masks, ~true_label_masks)):
            counts = np.bincount(bins[mask], minlength=len(labels) * BINS)
            self._histograms[side] += counts.reshape(len(labels), BINS)

    def scores_by_name(self) -> dict[str, float]:
        """Return the scores of all predictions so far.

        The keys are "accuracy", "micro_f1", "macro_f1", "auc" and "rows" (number of rows).
        "accuracy" is the share of the rows for which every label was predicted correctly.
        """
        # `_counts` (labels, 3) has the true positives TP, false positives FP and false negatives
        # FN. The F1 of a label is 2 TP / (2 TP + FP + FN), or 0 if the label never occurred.
        true_positives = self._counts[:, 0]
        denominators = 2 * true_positives + self._counts[:, 1] + self._counts[:, 2]
        f1 = np.where(denominators > 0, 2 * true_positives / np.maximum(denominators, 1), 0.0)

        # Micro-averaged F1 is the same formula for the sums over all labels.
        total = self._counts.sum(0)
        micro = 2 * total[0] + total[1] + total[2]
        accuracy = float("nan")
        if self._rows:
            accuracy = self._exact_matches / self._rows
        micro_f1 = float("nan")
        if micro:
            micro_f1 = float(2 * total[0] / micro)
        return {
            "accuracy": accuracy,
            "micro_f1": micro_f1,
            "macro_f1": _mean_or_nan(f1),
            "auc": self._mean_auc_over_labels(),
            "rows": self._rows,
        }

    def _mean_auc_over_labels(self) -> float:
        """Return the area under the ROC curve, averaged over labels.

        For one label, draw at random one row with the label and one row without the label. The
        area is the probability that the row with the label has the larger score. Scores are counted
        in the bins of histograms. Two scores in the same bin count as equal, which is one half.
        """
        # Histograms (labels, bins) of the scores of rows with the label, and of rows without it.
        # Labels that all rows have, or no row has, are excluded.
        present, absent = self._histograms
        known = (present.sum(1) > 0) & (absent.sum(1) > 0)
        present = present[known].astype(float)
        absent = absent[known].astype(float)

        # Count the pairs of rows in which the row without the label has the smaller score.
        # For each bin, `below` is the number of rows without the label in lower bins.
        below = np.cumsum(absent, axis=1) - absent
        ordered = (present * (below + absent / 2)).sum(1)
        pairs = present.sum(1) * absent.sum(1)
        return _mean_or_nan(ordered / np.maximum(pairs, 1))

    def _grow_to_labels(self, n_labels: int) -> None:
        """Add zero counts for new labels, up to `n_labels` labels."""
        known = len(self._counts)
        if n_labels > known:
            no_counts = np.zeros((n_labels - known, 3), np.int64)
            self._counts = np.vstack([self._counts, no_counts])
            # Histograms of the scores of rows with the label (0), and of rows without the label
            # (1).
            new = np.zeros((2, n_labels - known, BINS), np.int64)
            # No earlier row had the new label. Its score for each earlier row counts as −1.
            new[1, :, 0] = self._rows
            self._histograms = np.concatenate([self._histograms, new], axis=1)


def _mean_or_nan(values: np.ndarray) -> float:
    """Return the mean of the values, or NaN without values."""
    if len(values):
        return float(values.mean())
    return float("nan")


HELD_OUT_SHARE = 0.1
"""Share of the rows that are held out. The seed is fixed."""


class _Predictor(Protocol):
    """Estimator that can predict targets."""

    def predict(self, X: Block) -> np.ndarray: ...

    def score(self, X: Block, y: list[Label]) -> float: ...


class _OneSideOfSplit:
    """Source that yields one part of another source's rows.

    The part is either the held-out rows or the rows to learn. Rows without a target are skipped.

    source: the other source.
    held_out: True for the held-out rows. False for the rows to learn.
    """

    def __init__(self, source: Source, held_out: bool) -> None:
        self._source = source
        self._held_out = held_out

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield events as pairs (position, Block).

        Only events with after < position ≤ until are yielded. The Block has only the held-out rows,
        or only the rows to learn, as `held_out` says. Events without any of these rows are skipped.
        """
        # Read also events up to `after`, so that each row gets the same random number every time.
        rng = np.random.default_rng(0)
        for position, block in self._source.events(until=until):
            block = drop_rows_without_target(block)[0]
            is_held_out = rng.random(block.rows) < HELD_OUT_SHARE
            chosen = np.flatnonzero(is_held_out == self._held_out)
            if position > after and len(chosen):
                yield position, block.take(chosen)


def score_before_after_refine(estimator: Estimator, source: Source, tol: float, max_passes: int) -> tuple[float, float]:
    """Return an estimator's scores on held-out rows before and after refine.

    Returns two values:

    - Score before refine.
    - Score after refine.

    A score is the accuracy if targets are labels, and R² if targets are numbers. Both scores are
    NaN if no row is held out. Raises the errors of learning and refining.

    Parameters
    ----------
    estimator : Estimator
        Unfitted estimator that can predict. It learns all rows that are not held out.
    source : Source
        All rows, which are read several times. Rows without a target are ignored.
    tol : float
        Tolerance of the residual, as in `Estimator.refine`.
    max_passes : int
        Maximum number of passes over the rows, as in `Estimator.refine`.
    """
    learned = _OneSideOfSplit(source, held_out=False)
    held_out = _OneSideOfSplit(source, held_out=True)

    with warnings.catch_warnings():
        # Hide the warnings of this fit, because only the scores are returned to the caller.
        warnings.simplefilter("ignore")
        for _, block in learned.events():
            estimator.partial_fit(block)
        before = _score_on_source(estimator, held_out)

        estimator.refine(learned, tol=tol, max_passes=max_passes)
        return before, _score_on_source(estimator, held_out)


def _score_on_source(estimator: Estimator, source: Source) -> float:
    """Return an estimator's score on the rows of a source.

    The score is the accuracy if targets are labels, R² if targets are numbers, and NaN if there
    are no rows.
    """
    from sklearn.metrics import r2_score

    predictor = cast(_Predictor, estimator)
    accuracies: list[float] = []
    rows: list[int] = []
    truth: list[Rows] = []
    predicted: list[Rows] = []
    # Labels are scored batch by batch, and the accuracies are averaged over the rows.
    # R² needs the numbers of all batches together.
    # `y.values` has the numbers, and is None if the targets are labels.
    for _, block in source.events():
        if block.y.values is None:
            accuracies.append(predictor.score(block._replace(y=None), block.y.targets_by_row()))
            rows.append(block.rows)
        else:
            truth.append(block.y.values)
            predicted.append(predictor.predict(block).reshape(block.y.values.shape))

    if truth:
        return float(r2_score(np.concatenate(truth), np.concatenate(predicted)))
    if rows:
        return float(np.average(accuracies, weights=rows))
    return float("nan")
