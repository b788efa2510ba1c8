"""A state whose arrays do not fit each other is refused by the array's name, before anything computes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import HSL, LPP, PCA, InformationGain, KNearest, LaplacianEigenmaps, checks, errors
from stream_dr.models.saved import saved_file_bytes
from stream_dr.models.snapshot_file import read_bytes, safetensors_bytes

RANDOM = np.random.default_rng(7)
Y = RANDOM.choice(["a", "b", "c"], 30)
X = RANDOM.normal(size=(30, 4))
SPARSE = sp.csr_matrix(np.where(X > 0.0, X, 0.0))

Arrays = dict[str, np.ndarray]


class Rows(NamedTuple):
    values: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray | None


def csr(values: Any, indices: Any, indptr: Any) -> Rows:
    return Rows(np.array(values, float), np.array(indices, np.int32), np.array(indptr, np.int64))


def test_csr_arrays_in_order_are_let_through() -> None:
    checks.check_stored_rows(csr([1, 2, 3], [1, 2, 0], [0, 2, 2, 3]), 3, 3)
    checks.check_stored_rows(csr([], [], [0]), 0, 0)
    checks.check_stored_rows(Rows(np.zeros((2, 3)), None, None), 2, 3)


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (csr([1, 2], [1, 1], [0, 2]), "indices"),
        (csr([1, 2], [1, 0], [0, 2]), "indices"),
        (csr([1, 2], [0, 3], [0, 2]), "indices"),
        (csr([1, 2], [-1, 2], [0, 2]), "indices"),
        (csr([1, 2], [0, 1], [1, 2]), "indptr"),
        (csr([1, 2], [0, 1], [0, 3]), "indptr"),
        (csr([1, 2], [0, 1], [0, 2, 2]), "indptr"),
        (csr([1, np.inf], [0, 1], [0, 2]), "values"),
        (Rows(np.zeros((1, 2)), None, None), "values"),
        (Rows(np.zeros(2), np.zeros(2, np.int64), np.array([0, 2])), "indices"),
        (Rows(np.zeros(2), np.zeros(2, np.int32), None), "indptr"),
    ],
)
def test_csr_arrays_out_of_order_are_named(rows: Rows, name: str) -> None:
    with pytest.raises(errors.DamagedFile, match=rf"Rows\.{name} is .* must be"):
        checks.check_stored_rows(rows, 1, 3)


def test_a_descending_row_pointer_is_named() -> None:
    with pytest.raises(errors.DamagedFile, match=r"Rows\.indptr"):
        checks.check_stored_rows(csr([1, 2], [0, 1], [0, 2, 1, 2]), 3, 3)


def changed(estimator: Any, change: Callable[[Arrays, Any], None]) -> bytes:
    """The estimator's file with arrays or facts changed, and the checksum of what they are now."""
    arrays, facts = read_bytes(saved_file_bytes(estimator))
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays, facts)
    return safetensors_bytes(arrays, facts)


def entry(name: str, value: float) -> Callable[[Arrays, Any], None]:
    """The change of an array's last entry."""

    def change(arrays: Arrays, facts: Any) -> None:
        arrays[name].flat[-1] = value

    return change


def fact(name: str, value: Any) -> Callable[[Arrays, Any], None]:
    """The change of a number of the state."""

    def change(arrays: Arrays, facts: Any) -> None:
        facts["state"][name] = value

    return change


@pytest.mark.parametrize(
    ("estimator", "change", "name"),
    [
        (KNearest(1).fit(X, Y), entry("state.codes", 3), "codes"),
        (KNearest(1).fit(SPARSE, Y), entry("state.indices", 4), "indices"),
        (KNearest(1).fit(SPARSE, Y), entry("state.indptr", 2**40), "indptr"),
        (KNearest(1).fit(X, Y), fact("labels", {"tuple": ["a", "a", "b"]}), "labels"),
        (LPP().fit(X), entry("state.numbers", -5), "numbers"),
        (LPP().fit(X), fact("capacity", 3), "numbers"),
        (PCA().fit(X), entry("state.features.mean", np.nan), "mean"),
        (PCA().fit(X), fact("n_features", 5), "CentredPart"),
        (PCA().fit(X), fact("rows", -1), "rows"),
        (PCA().fit(X), fact("decay", 0.5), "decay"),
        (HSL("clique").fit(SPARSE, Y), entry("state.label_sets.stack.0.indices", 2**30), "indices"),
        (InformationGain().fit(SPARSE, Y), entry("state.features.features", np.nan), "features"),
        (stream_dr.CCIPCA().fit(X), fact("n_features", 3), "columns"),
        (stream_dr.IncrementalSKM().fit(X, Y), entry("state.basis.counts", -1.0), "counts"),
        (PCA(feature_map=stream_dr.nystroem(5)).fit(X), entry("state.landmarks.factor", 0.0), "factor"),
    ],
)
def test_a_file_with_wrong_arrays_is_damaged_whatever_its_checksum(estimator: Any, change: Any, name: str) -> None:
    stream_dr.load(saved_file_bytes(estimator))
    with pytest.raises(errors.DamagedFile, match=name):
        stream_dr.load(changed(estimator, change))


def test_a_wrong_projection_is_damaged() -> None:
    estimator = LaplacianEigenmaps().fit(SPARSE)
    estimator.transform(SPARSE)
    stream_dr.load(saved_file_bytes(estimator))
    for name, value in (("shown.landmarks.indices", 9), ("shown.places", np.inf), ("shown.radii", -1.0)):
        with pytest.raises(errors.DamagedFile, match=name.split(".")[-1]):
            stream_dr.load(changed(estimator, entry(name, value)))


def test_a_state_of_other_parameters_is_damaged() -> None:
    def widened(arrays: Arrays, facts: Any) -> None:
        facts["spec"]["params"]["n_components"] = 7

    with pytest.raises(errors.DamagedFile, match="components"):
        stream_dr.load(changed(stream_dr.CCIPCA(3).fit(X), widened))


def test_a_state_that_may_take_too_much_is_refused_by_what_it_declares() -> None:
    content = changed(KNearest(1).fit(SPARSE, Y), fact("n_features", 2**30))
    with pytest.raises(errors.LimitExceeded, match="max_bytes"):
        stream_dr.load(content)
    with pytest.raises(errors.LimitExceeded):
        stream_dr.load(saved_file_bytes(PCA().fit(X)), max_bytes=100)
    assert stream_dr.load(saved_file_bytes(PCA().fit(X)), max_bytes=None).n_samples_seen_ == 30
