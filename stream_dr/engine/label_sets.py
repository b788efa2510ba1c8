"""LabelSetLimit: refuses, before the append, a batch that would give a model more label sets than it can keep.

HSL's clique and star Laplacians keep sums for each distinct label set. The sets such a model will have met once it has
applied the whole log are those it has met and those admitted since, which are counted here.

Cost: O(labels) a batch, and only where such a model is alive; near its bound O(sets).

Why this way: what advancing would refuse must not be in the log, and the log itself does not say which sets it holds. While
a model catches up with events that were admitted before it was made, or by an earlier process, their sets are not known
here yet: one that has too many of those is failed when it meets them.
"""

from collections.abc import Iterable, Set
from typing import Any

import numpy as np

from stream_dr.block import Block
from stream_dr.engine.model import Model
from stream_dr.engine.schema import Schema
from stream_dr.errors import LimitExceeded
from stream_dr.targets import Targets

LabelSets = Set[frozenset[Any]]
"""Distinct, non-empty sets of labels."""


class LabelSetLimit:
    """What has been admitted for each model and may not be in its state yet. One caller at a time."""

    def __init__(self) -> None:
        self._admitted: dict[int, set[frozenset[Any]]] = {}
        self._pending: list[tuple[set[frozenset[Any]], LabelSets]] = []

    def check(self, block: Block | None, schema: Schema, models: Iterable[Model]) -> LabelSets:
        """The batch's label sets, where a model keeps them; else none. Raises LimitExceeded."""
        limited = [(model, most) for model in models if (most := _most(model, schema)) is not None]
        if not limited or block is None:
            return frozenset()
        given = label_sets(block.y)
        for model, most in limited:
            self._check(model, given, most)
        return given

    def add(self, given: LabelSets, models: Iterable[Model]) -> None:
        """Count label sets that `check` gave and that are now going into the log."""
        for model in models if given else ():
            admitted = self._admitted.setdefault(model.id, set())
            self._pending.append((admitted, given - admitted))
            admitted |= given

    def settle(self, appended: bool) -> None:
        """What was added since the last call is in the log, or else did not come to be there and is not counted."""
        for admitted, new in self._pending if not appended else ():
            admitted -= new
        self._pending.clear()

    def _check(self, model: Model, given: LabelSets, most: int) -> None:
        admitted = self._admitted.setdefault(model.id, set())
        learner = getattr(model.accumulator, "inner", model.accumulator)
        if learner.label_set_count + len(admitted) + len(given) <= most:
            return
        known = learner.label_sets()
        admitted -= known
        new = given - admitted - known
        needed = len(known) + len(admitted) + len(new)
        if new and needed > most:
            raise LimitExceeded(
                f"the batch would make {needed} distinct label sets; model {model.name!r} (HSL, clique or star) keeps sums "
                f'for at most {most} at this width. Use laplacian="zhou", which needs none, or remove the model.',
                needed=needed,
                limit=most,
            )


def label_sets(targets: Targets | None) -> LabelSets:
    """The distinct, non-empty label sets of a batch's rows; none where targets are not labels."""
    if targets is None or targets.values is not None:
        return frozenset()
    if targets.indptr is None:
        codes = targets.codes if targets.present is None else targets.codes[targets.present]
        return {frozenset((targets.labels[c],)) for c in np.unique(codes).tolist()}
    codes, at = targets.codes.tolist(), targets.indptr.tolist()
    sets = {tuple(codes[at[i] : at[i + 1]]) for i in range(targets.rows)} - {()}
    return {frozenset(targets.labels[c] for c in s) for s in sets}


def _most(model: Model, schema: Schema) -> int | None:
    most: int | None = model.estimator.most_label_sets(schema.features, schema.layout == "sparse")
    return most
