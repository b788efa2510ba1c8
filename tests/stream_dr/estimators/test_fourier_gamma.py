"""γ of random Fourier features where none is given: decided by the first batch, kept in the state."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist

import stream_dr
from stream_dr import LDA, PCA, random_fourier
from stream_dr.batch.block import Block
from stream_dr.errors import CannotMerge, DamagedFile, InvalidParameter, NarrowKernel, StreamDRError
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.running.advance import backfill
from tests.support.batches import dense, opened, put


def rings(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of one mean and other lengths, 30 features, which no linear method tells apart; float64."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, rows)
    return random.normal(size=(rows, 30)) * (1.0 + 0.8 * y)[:, None], y


X, Y = rings(600)


def gamma_of(model: LDA) -> float:
    """The γ in the model's state."""
    return float(json.loads(model.state_.feature_map)["gamma"])


def test_without_a_gamma_it_is_one_over_the_features_and_no_chance_level() -> None:
    test, expected = rings(1000, 1)
    model = LDA(gamma=1.0, feature_map=random_fourier(300)).fit(X, Y)
    assert gamma_of(model) == 1 / 30
    assert model.score(test, expected) > 0.85
    with pytest.warns(NarrowKernel):
        assert LDA(gamma=1.0, feature_map=random_fourier(300, gamma=1.0)).fit(X, Y).score(test, expected) < 0.6
    given = LDA(gamma=1.0, feature_map=random_fourier(300, gamma=1 / 30)).fit(X, Y)
    assert np.array_equal(given.transform(test), model.transform(test))


@pytest.mark.parametrize(("declared", "gamma"), [(True, 1 / 40), (False, 1.0)])
def test_sparse_rows_have_one_over_a_declared_width(declared: bool, gamma: float) -> None:
    rows = sp.csr_matrix((X * (X > 1)) / 40.0)
    rows.resize(600, 40)
    model = LDA(feature_map=random_fourier(20)).partial_fit(Block(rows[:200], width_stated=declared), Y[:200])
    assert gamma_of(model) == gamma
    model.partial_fit(Block(100.0 * rows[200:], width_stated=declared), Y[200:])
    assert gamma_of(model) == gamma


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_a_kernel_near_zero_is_warned_of_with_the_gamma_that_makes_it_a_half(kernel: str, sparse: bool) -> None:
    rows = 50.0 * X[:150] * (np.abs(X[:150]) > 1)
    distances = pdist(rows, "sqeuclidean" if kernel == "rbf" else "cityblock")
    given = sp.csr_matrix(rows) if sparse else rows + 1e6
    if sparse:
        given.indices, given.indptr = given.indices.astype(np.int64), given.indptr.astype(np.int64)
    with pytest.warns(NarrowKernel) as told:
        model = LDA(gamma=1.0, feature_map=random_fourier(20, kernel)).partial_fit(given, Y[:150])
    better = float(re.search(r"gamma=(\S+) makes it \.5", str(told[0].message))[1])  # type: ignore[index]
    assert better == pytest.approx(np.log(2.0) / np.median(distances), rel=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(given, Y[:150])  # only the first batch is looked at
        LDA(gamma=1.0, feature_map=random_fourier(20, kernel, gamma=better)).partial_fit(given, Y[:150])
    with pytest.warns(NarrowKernel, match="gamma=2"):
        LDA(gamma=1.0, feature_map=random_fourier(20, kernel, gamma=2.0)).partial_fit(given, Y[:150])


def test_a_refused_batch_decides_nothing() -> None:
    model = LDA(feature_map=random_fourier(20))
    for rows, y in ((np.full((4, 3), np.nan), [0, 1, 0, 1]), (np.eye(4), [0, 1, 0])):
        with pytest.raises(StreamDRError):
            model.partial_fit(rows, y)
    model.partial_fit(np.eye(4), [0, 1, 0, 1])
    assert gamma_of(model) == 0.25


def test_two_that_differ_do_not_merge_and_an_empty_one_always_does() -> None:
    spec = random_fourier(20)
    parts = [PCA(feature_map=spec).fit(X[:300]), PCA(feature_map=spec).fit(X[300:, :20])]
    before = parts[0].transform(X)
    with pytest.raises(CannotMerge, match="states of the maps"):
        parts[0].merge(parts[1])
    assert np.array_equal(parts[0].transform(X), before)
    empty = PCA(feature_map=spec).accumulator()
    for merged in (empty.freeze().merge(parts[0].state_), parts[0].state_.merge(empty.freeze())):
        assert merged.rows == 300
        assert merged.feature_map == parts[0].state_.feature_map
    same = [PCA(feature_map=random_fourier(20)).fit(part) for part in (X[:300], X[300:])]
    whole = PCA(feature_map=random_fourier(20)).fit(X)
    assert np.allclose(same[0].merge(same[1]).explained_variance_, whole.explained_variance_)
    assert not PCA(feature_map=spec).can_merge_parts()
    assert PCA(feature_map=random_fourier(20, gamma=0.1)).can_merge_parts()


def test_it_is_saved_and_gone_on_with(tmp_path: Path) -> None:
    model = LDA(feature_map=random_fourier(20)).fit(X[:300], Y[:300])
    model.save(tmp_path / "saved")
    loaded = stream_dr.load(tmp_path / "saved").partial_fit(X[300:], Y[300:])
    assert gamma_of(loaded) == gamma_of(model)
    assert np.array_equal(loaded.transform(X), model.partial_fit(X[300:], Y[300:]).transform(X))
    state = model.state_
    lost = json.dumps(json.loads(state.feature_map) | {"gamma": None})
    with pytest.raises(DamagedFile, match="with all its numbers"):
        state._replace(feature_map=lost).check()


def test_a_directory_tells_it_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    spec = {"feature_map": {"map": "random_fourier", "n_features": 20}}
    with opened(tmp_path, m=("lda", spec)) as directory:
        assert directory.model("m").describe(0)["params"] == spec
        put(directory, dense(0))
        backfill(directory, [directory.model("m")], directory.position)
        params = directory.model("m").describe(0)["params"]
        assert params["feature_map"]["gamma"] == 1 / dense(0).features
        write_snapshot_if_needed(directory.model("m"), directory.model("m").freeze(), directory.path)
    with opened(tmp_path) as directory:
        put(directory, dense(1))
        backfill(directory, [directory.model("m")], directory.position)
        assert directory.model("m").failure is None
        assert directory.model("m").describe(0)["params"] == params


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), "scale", True])
def test_no_other_gamma(gamma: object) -> None:
    with pytest.raises(InvalidParameter, match="a finite number > 0, or None"):
        random_fourier(20, gamma=gamma)  # type: ignore[arg-type]
