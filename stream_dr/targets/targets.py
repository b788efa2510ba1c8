"""Targets: what the rows of a Block are labelled with, parsed once.

Three kinds: `class` (one label a row), `multilabel` (a set of labels a row, perhaps none) and `continuous` (k numbers a
row). Labels are held once each, in order of first appearance in the batch, and rows point at them by code; so a batch is
small whatever its vocabulary, and a State merges vocabularies by name. A row without a target (null) is marked absent:
supervised accumulators skip and count it.

Why this way: the parsing of lists, arrays and Arrow columns happens in one place, and no numeric loop sees a string.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dr.errors import InvalidTargets, TargetKindMismatch, did_you_mean
from stream_dr.rows.block import LARGEST, Block
from stream_dr.targets.label_codes import Label, distinct_within, encode_labels, encode_sets

KINDS = ("class", "multilabel", "continuous")


class Targets(NamedTuple):
    """The targets of one batch.

    kind: "class", "multilabel" or "continuous".
    labels: distinct labels in order of first appearance (empty for continuous); all str, all int or all bool.
    codes: class: (rows,) int32 index into labels, −1 where absent; multilabel: (entries,) int32, row by row, distinct
        and ascending within a row; continuous: empty.
    indptr: (rows + 1,) int64, row i's codes are codes[indptr[i]:indptr[i + 1]] (multilabel); None otherwise.
    values: (rows, k) float64 (continuous; anything in absent rows); None otherwise.
    present: None when every row has its target, else (rows,) bool.
    """

    kind: str
    labels: tuple[Label, ...]
    codes: np.ndarray
    indptr: np.ndarray | None = None
    values: np.ndarray | None = None
    present: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        if self.values is not None:
            return len(self.values)
        return len(self.codes) if self.indptr is None else len(self.indptr) - 1

    def take(self, rows: np.ndarray) -> "Targets":
        """The targets of the given rows (integer or boolean index), same labels."""
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows, dtype=np.int64)
        present = None if self.present is None else self.present[rows]
        if present is not None and present.all():
            present = None
        if self.values is not None:
            return self._replace(values=self.values[rows], present=present)
        if self.indptr is None:
            return self._replace(codes=self.codes[rows], present=present)
        counts = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        picks = np.repeat(self.indptr[rows] - indptr[:-1], counts) + np.arange(indptr[-1])
        return self._replace(codes=self.codes[picks], indptr=indptr, present=present)

    def label_sets(self) -> frozenset[frozenset[Label]]:
        """The distinct, non-empty label sets of the rows; none where targets are numbers."""
        if self.indptr is None:
            return frozenset(frozenset((self.labels[c],)) for c in np.unique(self.codes[self.codes >= 0]).tolist())
        codes, at = self.codes.tolist(), self.indptr.tolist()
        sets = {tuple(codes[at[i] : at[i + 1]]) for i in range(self.rows)} - {()}
        return frozenset(frozenset(self.labels[c] for c in s) for s in sets)

    def row_labels(self) -> list[Any]:
        """One entry a row: its label, its list of labels, its list of numbers, or None where absent."""
        rows: list[Any]
        if self.values is not None:
            rows = self.values.tolist()
        elif self.indptr is None:
            rows = [self.labels[c] if c >= 0 else None for c in self.codes.tolist()]
        else:
            codes, at = self.codes.tolist(), self.indptr.tolist()
            rows = [[self.labels[c] for c in codes[at[i] : at[i + 1]]] for i in range(len(at) - 1)]
        if self.present is not None:
            rows = [r if p else None for r, p in zip(rows, self.present.tolist(), strict=True)]
        return rows


def class_targets(labels: Any) -> Targets:
    """Targets of kind "class" from one label a row (None = absent)."""
    table, codes, present = encode_labels(labels)
    return Targets("class", table, codes, present=present)


def multilabel_targets(label_sets: Sequence[Any]) -> Targets:
    """Targets of kind "multilabel" from one collection of labels a row (None = absent, [] = a row without labels).

    Raises InvalidTargets (labels of mixed types, a None among them) and TargetKindMismatch (a label, not a list).
    """
    plain = encode_sets(label_sets)
    if plain is not None:
        return Targets("multilabel", *plain)
    present = np.fromiter((s is not None for s in label_sets), dtype=bool, count=len(label_sets))
    sets = [_distinct(s, i) if s is not None else [] for i, s in enumerate(label_sets)]
    table, codes, named = encode_labels([label for s in sets for label in s])
    indptr = np.concatenate(([0], np.cumsum([len(s) for s in sets]))).astype(np.int64)
    if named is not None:
        row = int(np.searchsorted(indptr, np.flatnonzero(~named)[0], side="right")) - 1
        raise InvalidTargets(
            f"row {row} has the label None in its list; leave it out, or give None for the row.", row=row
        )
    codes, indptr = distinct_within(codes, indptr)
    return Targets("multilabel", table, codes, indptr, present=None if present.all() else present)


def continuous_targets(values: Any) -> Targets:
    """Targets of kind "continuous" from (rows,) or (rows, k) finite numbers."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as e:
        raise InvalidTargets(f"continuous targets are not numbers ({e}).") from e
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InvalidTargets(f"continuous targets have {array.ndim} dimensions; pass (rows,) or (rows, k).")
    if not np.all(np.abs(array) <= LARGEST):
        row = int(np.argwhere(~(np.abs(array) <= LARGEST))[0][0])
        raise InvalidTargets(f"Input y contains NaN or infinity: target of row {row} is not finite.", row=row)
    return Targets("continuous", (), np.empty(0, dtype=np.int32), values=array)


def refuse_kind(kind: str, kinds: Sequence[str]) -> None:
    """Raise TargetKindMismatch for an estimator that learns from `kinds` and was given `kind`."""
    if kind == "multilabel":
        raise TargetKindMismatch(
            "several labels a row were given; this estimator takes one label a row. "
            "Use OPLS, CCA or HSL for several labels a row."
        )
    raise TargetKindMismatch(
        f"{kind} targets were given; this estimator learns from {' or '.join(kinds)} targets. "
        'Pass such targets (target="class" reads whole numbers as classes), or use OPLS, CCA or PLSDA for continuous ones.'
    )


def labelled_rows(block: Block) -> tuple[Block, int]:
    """The block's rows that have a target, and how many were left out. The block itself when none is."""
    if block.y is None:
        return block._replace(X=block.X[:0], weights=None, ids=None), block.rows
    present = block.y.present
    if present is None or present.all():
        return block, 0
    keep = np.flatnonzero(present)
    return block.take(keep), block.rows - len(keep)


def _distinct(labels: Any, row: int) -> list[Any]:
    if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
        raise TargetKindMismatch(
            f"row {row} has the single label {labels!r} where a list of labels is needed (multilabel targets).", row=row
        )
    return list(dict.fromkeys(labels.tolist() if isinstance(labels, np.ndarray) else labels))


def all_absent(targets: Targets) -> bool:
    """Whether no row has a target; of which kind they are says nothing then."""
    return targets.present is not None and not targets.present.any()


def check_label_type(known: Sequence[Label], new: Sequence[Label]) -> None:
    """Raise InvalidTargets when new labels are of another type than the known ones."""
    if known and new and type(known[0]) is not type(new[0]):
        raise InvalidTargets(
            f"labels are {type(new[0]).__name__} ({new[0]!r}); rows so far had "
            f"{type(known[0]).__name__} labels ({known[0]!r}). Pass those, or start anew."
        )


def check_allowed(allowed: Sequence[Label], new: Sequence[Label]) -> None:
    """Raise InvalidTargets, naming the nearest allowed label, when a new label is not allowed.

    Any label is allowed when `allowed` is empty.
    """
    known = set(allowed)
    others = [label for label in new if label not in known]
    if allowed and others:
        named = ", ".join(map(repr, allowed[:5])) + (" …" if len(allowed) > 5 else "")
        raise InvalidTargets(
            f"the batch has the label {others[0]!r}{did_you_mean(others[0], allowed)}; this stream's labels are {named} "
            "(allowed_labels). Correct it, or allow it as well.",
            labels=others[:5],
        )
