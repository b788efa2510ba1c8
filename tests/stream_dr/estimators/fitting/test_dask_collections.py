"""Dask arrays and dataframes: learned in blocks as in one, projected lazily, and what cannot be taken."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import errors

pytest.importorskip("dask", reason="needs the extra [distributed]")
import dask
import dask.array as da
import pandas as pd

dask.config.set(scheduler="synchronous")
RNG = np.random.default_rng(3)
LABELS = np.array(["a", "b", "c"])[RNG.integers(0, 3, 90)]
X = RNG.normal(size=(90, 5)) + (LABELS == "b")[:, None] * np.arange(5)
NUMBERS = X @ RNG.normal(size=(5, 2))


@pytest.mark.parametrize("chunks", [(90, 5), (20, 5), ((1, 50, 39), 5)])
def test_as_one_batch(chunks: Any) -> None:
    given = da.from_array(X, chunks=chunks)
    made = stream_dr.LDA().fit(given, da.from_array(LABELS, chunks=20))
    wanted = stream_dr.LDA().fit(X, LABELS)
    assert made.classes_.tolist() == ["a", "b", "c"]
    assert made.n_samples_seen_ == 90
    assert made.get_params() == wanted.get_params()
    shown = made.transform(given)
    assert isinstance(shown, da.Array)
    assert shown.chunks[0] == given.chunks[0]
    signs = np.sign((made.components_ * wanted.components_).sum(axis=1))
    np.testing.assert_allclose(shown.compute(), wanted.transform(X) * signs, atol=1e-9)


def test_continuous_targets_weights_and_going_on() -> None:
    w = RNG.random(90)
    y = da.from_array(NUMBERS, chunks=(30, 2))
    made = stream_dr.OPLS().fit(da.from_array(X, chunks=(30, 5)), y, sample_weight=da.from_array(w, chunks=30))
    np.testing.assert_allclose(made.mean_, stream_dr.OPLS().fit(X, NUMBERS, sample_weight=w).mean_)
    made.partial_fit(da.from_array(X, chunks=(45, 5)), da.from_array(NUMBERS, chunks=(45, 2)))
    assert made.n_samples_seen_ == 180


def test_the_first_block_decides_the_kind_of_targets() -> None:
    """An array of zeros and ones has labels; the next block's other numbers are none."""
    y = (NUMBERS > 0).astype(float)
    given = da.from_array(X, chunks=(45, 5))
    made = stream_dr.OPLS().fit(given, da.from_array(y, chunks=(45, 2)))
    assert made.state_.target_kind == "multilabel"
    y[45:] = NUMBERS[45:]
    with pytest.raises(errors.StreamDRError, match="0 and 1"):
        stream_dr.OPLS().fit(given, da.from_array(y, chunks=(45, 2)))


def test_sparse_blocks() -> None:
    rows = sp.csr_matrix(np.where(X > 0.5, X, 0.0))
    blocks = [da.from_delayed(dask.delayed(rows[i : i + 30]), shape=(30, 5), meta=rows[:0]) for i in (0, 30, 60)]
    made = stream_dr.OPLS().fit(da.concatenate(blocks), da.from_array(LABELS, chunks=30))
    np.testing.assert_allclose(made.mean_, np.asarray(rows.mean(axis=0)).ravel())


def test_dataframes_go_by_name() -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    given, labels = dd.from_pandas(frame, npartitions=3), dd.from_pandas(pd.Series(LABELS), npartitions=3)
    made = stream_dr.LDA().fit(given, labels)
    assert made.feature_names_in_.tolist() == list("vwxyz")
    shown = made.transform(given[list("zyxwv")])
    assert list(shown.columns) == ["lda0", "lda1"]
    np.testing.assert_allclose(shown.compute().to_numpy(), made.transform(frame))
    np.testing.assert_array_equal(shown.compute().index, frame.index)

    # Columns without names go by their position, as those of an array do.
    again = (
        stream_dr.LDA()
        .partial_fit(given, labels)
        .partial_fit(da.from_array(X, chunks=(45, 5)), da.from_array(LABELS, 45))
    )
    assert again.feature_names_in_.tolist() == list("vwxyz")
    np.testing.assert_allclose(again.mean_, X.mean(axis=0))


def test_what_cannot_be_taken_says_what_to_do() -> None:
    given, labels = da.from_array(X, chunks=(30, 5)), da.from_array(LABELS, chunks=30)
    with pytest.raises(errors.CannotMerge, match="Use PCA, whose"):
        stream_dr.CCIPCA().fit(given)
    with pytest.raises(errors.CannotMerge, match="give them"):
        stream_dr.PCA(feature_map=stream_dr.nystroem(10)).fit(given)
    with pytest.raises(errors.InvalidRows, match=r"X\.rechunk\(\{1: -1\}\)"):
        stream_dr.LDA().fit(da.from_array(X, chunks=(30, 2)), labels)
    with pytest.raises(errors.InvalidTargets, match="y is a ndarray"):
        stream_dr.LDA().fit(given, LABELS)
    with pytest.raises(errors.InvalidTargets, match="compute_chunk_sizes"):
        stream_dr.LDA().fit(given[given[:, 0] > 0], labels[:60])
    with pytest.raises(errors.TargetsRequired):
        stream_dr.LDA().fit(given)
    made = stream_dr.LDA().fit(given, labels)
    before = made.state_
    with pytest.raises(errors.CannotMerge, match=r"5 and 4 features"):
        made.partial_fit(given[:, :4].rechunk((30, 4)), labels)
    assert made.state_.rows == before.rows


def test_unknown_sizes_are_taken_in_blocks_of_the_same_rows() -> None:
    chosen = X[:, 0] > 0
    given, labels = da.from_array(X, chunks=(30, 5)), da.from_array(LABELS, chunks=30)
    made = stream_dr.LDA().fit(given[given[:, 0] > 0], labels[given[:, 0] > 0])
    assert made.n_samples_seen_ == chosen.sum()
