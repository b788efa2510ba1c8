"""γ of random Fourier features where none is given: decided by the first batch, kept in the state."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import LDA, PCA, random_fourier
from stream_dr.errors import CannotMerge, DamagedFile, InvalidParameter, StreamDRError
from stream_dr.estimators.fitting.mapping import merges_parts
from stream_dr.models.snapshot import snapshot
from stream_dr.running.advance import backfill
from tests.stream_dr.directory.batches import dense, opened, put


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
    assert LDA(gamma=1.0, feature_map=random_fourier(300, gamma=1.0)).fit(X, Y).score(test, expected) < 0.6
    given = LDA(gamma=1.0, feature_map=random_fourier(300, gamma=1 / 30)).fit(X, Y)
    assert np.array_equal(given.transform(test), model.transform(test))


@pytest.mark.parametrize("sparse", [False, True])
def test_scale_is_scikit_learns_of_the_first_batch_and_stays(sparse: bool) -> None:
    rows = sp.csr_matrix(X * (X > 1)) if sparse else X + 3.0
    model = LDA(feature_map=random_fourier(20, gamma="scale")).partial_fit(rows[:200], Y[:200])
    first = rows[:200].toarray() if sparse else rows[:200]
    assert gamma_of(model) == pytest.approx(1.0 / (30 * first.var()), rel=1e-12)
    model.partial_fit(100.0 * rows[200:], Y[200:])
    assert gamma_of(model) == pytest.approx(1.0 / (30 * first.var()), rel=1e-12)
    constant = LDA(feature_map=random_fourier(20, gamma="scale")).partial_fit(np.ones((4, 5)), [0, 1, 0, 1])
    assert gamma_of(constant) == 0.2


def test_a_refused_batch_decides_nothing() -> None:
    model = LDA(feature_map=random_fourier(20, gamma="scale"))
    for rows, y in ((np.full((4, 3), np.nan), [0, 1, 0, 1]), (np.eye(4), [0, 1, 0])):
        with pytest.raises(StreamDRError):
            model.partial_fit(rows, y)
    model.partial_fit(np.eye(4), [0, 1, 0, 1])
    assert gamma_of(model) == pytest.approx(1.0 / (4 * np.eye(4).var()))


def test_two_that_differ_do_not_merge_and_an_empty_one_always_does() -> None:
    spec = random_fourier(20, gamma="scale")
    parts = [PCA(feature_map=spec).fit(X[:300]), PCA(feature_map=spec).fit(2 * X[300:])]
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
    assert not merges_parts(PCA(feature_map=spec))
    assert merges_parts(PCA(feature_map=random_fourier(20, gamma=0.1)))


def test_it_is_saved_and_gone_on_with(tmp_path: Path) -> None:
    model = LDA(feature_map=random_fourier(20, gamma="scale")).fit(X[:300], Y[:300])
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
        snapshot(directory.model("m"), directory.model("m").freeze(), directory.path)
    with opened(tmp_path) as directory:
        put(directory, dense(1))
        backfill(directory, [directory.model("m")], directory.position)
        assert directory.model("m").failure is None
        assert directory.model("m").describe(0)["params"] == params


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), "auto", True])
def test_no_other_gamma(gamma: object) -> None:
    with pytest.raises(InvalidParameter, match="a finite number > 0, None or 'scale'"):
        random_fourier(20, gamma=gamma)  # type: ignore[arg-type]
