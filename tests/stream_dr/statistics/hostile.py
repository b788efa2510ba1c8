"""hostile: streams made to break sums: offsets, duplicated and constant columns, scales 1e±8, one class, weights of zero."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.state import Centred, MomentState
from tests.naive import moments as naive

EPS = np.finfo(float).eps

FEATURES = ("plain", "offset 1e6", "offset 1e9", "rank one", "duplicated", "badly scaled", "mostly zero", "constant")
TARGETS = ("class", "one class", "multilabel", "no labels", "continuous", "far continuous", "none")
WEIGHTS = ("none", "random", "some zero", "unequal")


class Stream(NamedTuple):
    """Rows (n, d) float64 or float32, targets as a list or (n, q) array, weights (n,) or None."""

    X: np.ndarray
    y: Any
    weights: np.ndarray | None
    kind: str
    seed: int

    def block(self, rows: Any, sparse: bool) -> Block:
        """Rows of an index array or slice as a Block."""
        rows = np.arange(len(self.X))[rows]
        X = sp.csr_matrix(self.X[rows]) if sparse else np.ascontiguousarray(self.X[rows])
        if self.kind == "none":
            return Block(X, None, None if self.weights is None else self.weights[rows])
        own = self.y[rows] if self.kind == "continuous" else [self.y[i] for i in rows]
        parse = {"class": class_targets, "multilabel": multilabel_targets, "continuous": continuous_targets}[self.kind]
        return Block(X, parse(own), None if self.weights is None else self.weights[rows])

    @property
    def encoding(self) -> str:
        """How a supervised learner encodes these targets."""
        return "none" if self.kind == "none" else "indicator"

    def columns(self, labels: tuple[Any, ...]) -> np.ndarray:
        """Targets as the (n, k) columns of a state with these labels."""
        if self.kind == "none":
            return np.zeros((len(self.X), 0))
        return self.y if self.kind == "continuous" else naive.indicator(list(self.y), list(labels))


@st.composite
def streams(draw: Any, most: int = 40) -> Stream:
    """A stream of 0 to `most` rows."""
    seed = draw(st.integers(0, 2**32 - 1))
    n, d = draw(st.integers(0, most)), draw(st.integers(1, 6))
    return stream(
        seed, n, d, draw(st.sampled_from(FEATURES)), draw(st.sampled_from(TARGETS)), draw(st.sampled_from(WEIGHTS))
    )


def stream(seed: int, n: int, d: int, features: str = "plain", targets: str = "class", weights: str = "none") -> Stream:
    """The stream of these choices."""
    random = np.random.default_rng(seed)
    X = _features(random, n, d, features)
    y, kind = _targets(random, n, targets)
    w: np.ndarray | None = random.random(n) + 0.1
    if weights == "none":
        w = None
    elif weights == "some zero":
        w *= random.random(n) < 0.6
    elif weights == "unequal":
        w = 10.0 ** random.integers(-4, 5, n)
    return Stream(X, y, w, kind, seed)


def _features(random: np.random.Generator, n: int, d: int, features: str) -> np.ndarray:
    X = random.normal(size=(n, d)).round(3)
    if features.startswith("offset"):
        return X + float(features.split()[1])
    if features == "rank one":
        return np.outer(random.normal(size=n), random.normal(size=d))
    if features == "duplicated":
        return X[:, random.integers(0, d, d)]
    if features == "badly scaled":
        return X * 10.0 ** random.integers(-8, 9, d)
    if features == "mostly zero":
        return np.where(random.random((n, d)) < 0.8, 0.0, X)
    if features == "constant":
        return np.tile(X[:1], (n, 1)) if n else X
    return X.astype(np.float32)


def _targets(random: np.random.Generator, n: int, targets: str) -> tuple[Any, str]:
    if targets == "class":
        return random.choice(["a", "b", "c"], n).tolist(), "class"
    if targets == "one class":
        return ["a"] * n, "class"
    if targets == "multilabel":
        return [random.choice(4, random.integers(0, 4), replace=False).tolist() for _ in range(n)], "multilabel"
    if targets == "no labels":
        return [[] for _ in range(n)], "multilabel"
    if targets == "none":
        return None, "none"
    return random.normal(size=(n, 2)) + (1e9 if targets.startswith("far") else 0.0), "continuous"


def learned(stream: Stream, rows: Any, sparse: bool, scatter: str, decay: float = 1.0) -> MomentState:
    """The state of those rows in one batch."""
    accumulator = MomentAccumulator(stream.encoding, scatter, decay)
    accumulator.add(stream.block(rows, sparse))
    return accumulator.freeze()


def assert_same(a: MomentState, b: Any, rtol: float = 1e-11, before: MomentState | None = None) -> None:
    """Both states, or a state and naive moments, agree: every sum to rtol of its columns' spread.

    Sums about zero (sparse rows without exact scatter) may also lose 100 eps of the columns' size. before: what rows
    were unlearned from; errors are then relative to its spread.
    """
    ours = a.centred()
    theirs, order = _other(ours, b)
    assert ours.weight == _near(theirs.weight, 1e-12 * (before.centred().weight if before else theirs.weight))
    if not theirs.weight > 0.0:
        return
    spread, size = _spread(a, before), np.sqrt(ours.weight) * np.abs(ours.mean)
    target_spread, target_size = _target_spread(a, before), np.sqrt(ours.weight) * np.abs(ours.target_mean)
    raw = 1e-17 if a.scatter == "exact" else 100 * EPS
    floor = 1e-30 * size * size.max()
    near = rtol * spread + 1e-14 * size + 1e-300
    np.testing.assert_array_less(np.abs(ours.mean - theirs.mean) * np.sqrt(ours.weight), near + 1e-300)
    _close(
        ours.cross,
        theirs.cross[:, order],
        np.outer(spread, target_spread),
        rtol,
        raw * np.outer(size, target_spread + target_size),
    )
    _close(
        ours.target_scatter,
        theirs.target_scatter[np.ix_(order, order)],
        np.outer(target_spread, target_spread),
        rtol,
        1e-30 * np.outer(target_size, target_size),
    )
    if ours.diagonal is not None:
        diagonal = theirs.diagonal if isinstance(theirs, Centred) else np.diagonal(theirs.scatter)
        _close(ours.diagonal, diagonal, spread**2, rtol, floor)
    if ours.scatter is not None:
        _close(ours.scatter, theirs.scatter, np.outer(spread, spread), rtol, 1e-30 * np.outer(size, size))


def _other(ours: Centred, b: Any) -> tuple[Any, np.ndarray]:
    """The other's sums, and its columns in our order; a label it has not seen must weigh nothing."""
    if isinstance(b, naive.Moments):
        return b, np.arange(len(b.target_mean))
    theirs = b.centred()
    if not ours.labels:
        return theirs, np.arange(len(theirs.target_mean))
    missing = [label for label in ours.labels if label not in theirs.labels]
    pad = len(missing)
    theirs = theirs._replace(
        labels=(*theirs.labels, *missing),
        target_mean=np.pad(theirs.target_mean, (0, pad)),
        cross=np.pad(theirs.cross, ((0, 0), (0, pad))),
        target_scatter=np.pad(theirs.target_scatter, ((0, pad), (0, pad))),
    )
    for label in set(theirs.labels) - set(ours.labels):
        assert theirs.label_weights[theirs.labels.index(label)] == 0.0
    return theirs, np.array([theirs.labels.index(label) for label in ours.labels])


def _near(value: float, tolerance: float) -> Any:
    import pytest

    return pytest.approx(value, abs=tolerance + 1e-300, rel=1e-12)


def _spread(a: MomentState, before: MomentState | None) -> np.ndarray:
    c = (before or a).centred()
    return np.sqrt(np.maximum(c.diagonal, 0.0))


def _target_spread(a: MomentState, before: MomentState | None) -> np.ndarray:
    """√Cyy; labels count as 1 each row, since their sums are kept about zero."""
    if a.target_kind == "continuous":
        return np.sqrt(np.maximum(np.diagonal((before or a).centred().target_scatter), 0.0))
    return np.full(a.n_target_columns, np.sqrt((before or a).centred().weight))


def _close(ours: np.ndarray, theirs: np.ndarray, scale: Any, rtol: float, extra: Any) -> None:
    allowed = rtol * scale + extra + 1e-300
    worst = np.max(np.abs(ours - theirs) / allowed, initial=0.0)
    assert worst <= 1.0, f"{worst:.1f} times what is allowed"
