"""Scores of predictions, counted as rows go by.

`ClassScores` has a confusion matrix (labels, labels). `LabelScores`, for several labels a row, has
four counts a label, and a histogram of scores for the area under the ROC curve (AUC).

The definitions are river's: `metrics.Accuracy`, `MicroF1`, `MacroF1` (labels seen in truth or
prediction), `multioutput.ExactMatch`, `MicroAverage(F1)`, `MacroAverage(F1)`. AUC is averaged over
labels that have rows both with and without them.

river updates one row and one label at a time, which is 83 million calls for RCV1's topics. The
counts here are the same. AUC is computed from 1,000 bins of scores in [−1, 1], and is exact except
for rows that share a bin. Memory does not grow with the rows.
"""

import numpy as np

BINS = 1_000
"""Number of bins in the histogram of scores."""


class ClassScores:
    """Scores of one label a row. Labels are codes."""

    def __init__(self) -> None:
        self._confusion = np.zeros((0, 0), np.int64)

    def add(self, truth: np.ndarray, predicted: np.ndarray, labels: int) -> None:
        """Count true and predicted codes (rows,), all below `labels`."""
        self._grow(labels)
        size = len(self._confusion)
        self._confusion += np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)

    def figures(self) -> dict[str, float]:
        """Return accuracy, micro_f1, macro_f1 and rows."""
        rows = int(self._confusion.sum())
        correct = np.diagonal(self._confusion)
        occurrences = self._confusion.sum(0) + self._confusion.sum(1)
        seen = occurrences > 0

        # For one label a row, micro-averaged F1 equals accuracy.
        accuracy = float(correct.sum() / rows) if rows else float("nan")
        return {
            "accuracy": accuracy,
            "micro_f1": accuracy,
            "macro_f1": _mean(2 * correct[seen] / occurrences[seen]),
            "rows": rows,
        }

    def _grow(self, labels: int) -> None:
        known = len(self._confusion)
        if labels > known:
            grown = np.zeros((labels, labels), np.int64)
            grown[:known, :known] = self._confusion
            self._confusion = grown


class LabelScores:
    """Scores of several labels a row."""

    def __init__(self) -> None:
        # Columns: true positives, false positives, false negatives.
        self._counts = np.zeros((0, 3), np.int64)

        # Histograms (2, labels, bins) of the scores of rows with the label, and of those without.
        self._histograms = np.zeros((2, 0, BINS), np.int64)
        self._exact_matches = 0
        self._rows = 0

    def add(self, truth: np.ndarray, predicted: np.ndarray, scores: np.ndarray) -> None:
        """Count the labels of a batch.

        Parameters
        ----------
        truth, predicted : ndarray (rows, labels), bool
        scores : ndarray (rows, labels), float
            In [−1, 1], larger for a likelier label.
        """
        self._grow(truth.shape[1])
        true_positives = (truth & predicted).sum(0)
        false_positives = (predicted & ~truth).sum(0)
        false_negatives = (truth & ~predicted).sum(0)
        self._counts += np.column_stack([true_positives, false_positives, false_negatives])
        self._exact_matches += int((truth == predicted).all(1).sum())
        self._rows += len(truth)

        # One bincount over label and bin together counts all histograms.
        labels = np.arange(truth.shape[1])
        bins = labels * BINS + np.clip(((scores + 1.0) * (BINS / 2)).astype(np.int64), 0, BINS - 1)
        for side, mask in enumerate((truth, ~truth)):
            counts = np.bincount(bins[mask], minlength=len(labels) * BINS)
            self._histograms[side] += counts.reshape(len(labels), BINS)

    def figures(self) -> dict[str, float]:
        """Return accuracy, micro_f1, macro_f1, auc and rows.

        Accuracy is the share of rows whose labels are all correct.
        """
        true_positives = self._counts[:, 0]
        denominators = 2 * true_positives + self._counts[:, 1] + self._counts[:, 2]
        f1 = np.where(denominators > 0, 2 * true_positives / np.maximum(denominators, 1), 0.0)

        total = self._counts.sum(0)
        micro = 2 * total[0] + total[1] + total[2]
        return {
            "accuracy": self._exact_matches / self._rows if self._rows else float("nan"),
            "micro_f1": float(2 * total[0] / micro) if micro else float("nan"),
            "macro_f1": _mean(f1),
            "auc": self._auc(),
            "rows": self._rows,
        }

    def _auc(self) -> float:
        """Return the AUC, averaged over labels.

        It is P(score with the label > score without) + half of P(both in one bin).
        """
        present, absent = self._histograms
        known = (present.sum(1) > 0) & (absent.sum(1) > 0)
        present = present[known].astype(float)
        absent = absent[known].astype(float)

        below = np.cumsum(absent, axis=1) - absent
        areas = (present * (below + absent / 2)).sum(1) / np.maximum(present.sum(1) * absent.sum(1), 1)
        return _mean(areas)

    def _grow(self, labels: int) -> None:
        """Make room for new labels."""
        known = len(self._counts)
        if labels > known:
            self._counts = np.vstack([self._counts, np.zeros((labels - known, 3), np.int64)])
            new = np.zeros((2, labels - known, BINS), np.int64)
            # No row so far has a new label, and its score is the lowest.
            new[1, :, 0] = self._rows
            self._histograms = np.concatenate([self._histograms, new], axis=1)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
