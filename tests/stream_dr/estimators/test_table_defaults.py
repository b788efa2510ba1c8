"""What the map of tables does by default: how many words, FAMD, and the memory it reports."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stream_dr
from stream_dr import CCIPCA, LDA, LLE, LPP, NPE, PCA, LaplacianEigenmaps
from stream_dr.errors import OnlyDiagonal
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.widths import max_table_width, max_width_of_kinds
from stream_dr.statistics.protocol import pack


def prose(rows: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers, a category, a gap and a note, in float64 and strings; classes (rows,) of 3."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    note = [" ".join(f"w{w}" for w in random.integers(0, 300, 9)) for _ in range(rows)]
    a = np.where(random.random(rows) < 0.1, np.nan, random.normal(size=rows) + y)
    colour = np.array(["red", "green", "blue"])[random.integers(0, 3, rows)]
    return pd.DataFrame({"a": a, "b": random.normal(size=rows) * 50, "colour": colour, "note": note}), y


X, Y = prose()


@pytest.mark.parametrize(("texts", "words"), [(1, 1_024), (2, 512), (3, 341)])
def test_texts_share_1024_hashed_words(texts: int, words: int) -> None:
    rows = X.assign(**{f"note{i}": X.note for i in range(1, texts)})
    model = LDA(feature_map=stream_dr.table()).fit(rows, Y)
    assert sum("note #" in name for name in model.mapped_names_) == words
    assert sum("#" in name for name in model.mapped_names_) == texts * words
    assert model.state_.inner.scatter == "exact"
    assert f"{words:,} hashed words" in str(stream_dr.describe_table(rows))


def test_words_are_hashed_without_idf_so_that_their_order_does_not_matter() -> None:
    rows = X[["b", "note"]]
    model = LDA(gamma=1.0, feature_map=stream_dr.table()).fit(rows[:100], Y[:100])
    model.partial_fit(rows[100:], Y[100:]).unlearn(rows[:100], Y[:100])
    expected = LDA(gamma=1.0, feature_map=stream_dr.table()).fit(rows[100:], Y[100:])
    assert np.allclose(np.abs(model.transform(rows)), np.abs(expected.transform(rows)), atol=1e-7)


def test_a_column_without_a_value_counts_as_a_category() -> None:
    empty = {f"c{i}": [None] * 200 for i in range(70)}
    model = LDA(gamma=1.0, feature_map=stream_dr.table()).fit(X[["b", "note"]].assign(**empty), Y)
    assert model.state_.inner.scatter == "exact"  # 2 + 1,025 + 70 · 41 columns at most
    making = feature_map(stream_dr.table())
    assert max_table_width(making, model.state_.table.columns) == 2 + 1_025 + 70 * 41
    assert max_width_of_kinds(making, dict.fromkeys(empty, "")) == 70 * 41


def test_a_table_that_falls_to_the_diagonal_says_why_and_learns() -> None:
    rows = X[["b", "note"]].assign(title=X.note)
    spec = stream_dr.table(n_words=4_000)
    reason = r"up to 8004 columns may be made of this table's 3 \(of note 4001\).* n_words .*diagonal"
    with pytest.warns(OnlyDiagonal, match=reason):
        model = LDA(gamma=1.0, feature_map=spec).fit(rows, Y)
    assert model.solution_ == "diagonal"
    model.partial_fit(rows, Y)  # said once
    assert re.search(reason, str(stream_dr.describe_table(rows, n_words=4_000)))
    assert "note:" not in str(stream_dr.describe_table(rows))
    LDA(gamma=1.0, scatter="diagonal", feature_map=spec).fit(rows, Y)


def feature_map_rows(model: Any, rows: pd.DataFrame) -> np.ndarray:
    """What the model's map makes of rows (rows, mapped), as it stands."""
    from stream_dr.batch.matrix import read_table
    from stream_dr.feature_maps.table import map_table_rows

    return map_table_rows(feature_map(model.feature_map), model.state_.table, read_table(rows)).toarray()


def test_pca_of_a_table_is_factor_analysis_of_mixed_data() -> None:
    rows = X[["a", "b", "colour"]]
    pca = PCA(n_components=3, feature_map=stream_dr.table()).fit(rows)
    M = feature_map_rows(pca, rows)
    names = list(pca.mapped_names_)
    numbers, gap = [names.index("a"), names.index("b")], names.index("a missing")
    categories = [i for i, name in enumerate(names) if name.startswith("colour=")]
    expected = M - M.mean(0)
    expected[:, numbers] /= M[:, numbers].std(0)
    expected[:, categories] /= np.sqrt(M[:, categories].mean(0))
    expected[:, gap] = 0.0
    values = np.linalg.svd(expected, compute_uv=False)[:3] ** 2
    assert np.allclose(pca.explained_variance_, values / (len(rows) - 1))
    assert np.allclose(np.cov(pca.transform(rows).T), np.diag(values / (len(rows) - 1)), atol=1e-9)
    kept = pca.get_covariance()[np.ix_([*numbers, *categories], [*numbers, *categories])]
    full = PCA(feature_map=stream_dr.table()).fit(rows)
    assert np.allclose(full.get_covariance()[:, gap], 0.0)
    assert np.allclose(full.get_covariance()[numbers], np.cov(M.T)[numbers] * (np.arange(len(names)) != gap))
    assert np.isfinite(kept).all()


@pytest.mark.parametrize("standardize", [False, True])
def test_pca_of_a_table_scales_its_columns_as_standardize_says(standardize: bool) -> None:
    rows = X[["a", "b", "colour"]]
    pca = PCA(n_components=3, standardize=standardize, feature_map=stream_dr.table()).fit(rows)
    M = feature_map_rows(pca, rows)
    expected = np.linalg.svd((M - M.mean(0)) / (M.std(0) if standardize else 1.0), compute_uv=False)[:3] ** 2
    assert np.allclose(pca.explained_variance_, expected / (len(rows) - 1))
    arrays = [PCA(n_components=2, standardize=given).fit(M).explained_variance_ for given in (None, False)]
    assert np.array_equal(*arrays)


def test_a_category_whose_rows_are_gone_is_zero() -> None:
    rows = X[["b", "colour"]].assign(colour=["odd", *X.colour[1:]])
    pca = PCA(n_components=2, feature_map=stream_dr.table()).fit(rows).unlearn(rows[:1])
    at = list(pca.mapped_names_).index("colour=odd")
    assert not pca.components_[:, at].any()
    assert np.isfinite(pca.transform(rows)).all()


def test_state_bytes_count_only_texts_as_words() -> None:
    lda = LDA(feature_map=stream_dr.table())
    numbers = {f"x{i}": "number" for i in range(20)}
    few = lda.max_state_bytes(20, 3, numbers)
    some = lda.max_state_bytes(21, 3, numbers | {"note": "text"})
    assert few < 1e6 < some < 1e9
    assert max_width_of_kinds(feature_map(stream_dr.table()), numbers) == 40
    learned = LDA(feature_map=stream_dr.table()).fit(X[["a", "b"]], Y)
    assert learned.max_state_bytes(2, 3, learned.state_.table) < 1e5


@pytest.mark.parametrize("columns", [["a", "b"], ["note"], ["a", "b", "colour", "note"]])
def test_state_bytes_are_an_upper_bound(columns: list[str]) -> None:
    lda = LDA(gamma=1.0, feature_map=stream_dr.table()).fit(X[columns], Y)
    size = sum(array.nbytes for array in pack(lda.state_)[0].values())
    kinds = {name: "text" if name in ("note", "colour") else "number" for name in columns}
    for known in (kinds, lda.state_.table):
        assert size <= lda.max_state_bytes(len(columns), 3, known) + 4096


@pytest.mark.parametrize("make", [CCIPCA, LPP, NPE, LaplacianEigenmaps, LLE])
def test_other_methods_without_targets_take_a_tables_columns_as_they_are(make: Any) -> None:
    rows = X[["a", "b", "colour"]]
    model = make(n_components=2, feature_map=stream_dr.table()).fit(rows)
    M = feature_map_rows(model, rows)
    Z, expected = model.transform(rows), make(n_components=2).fit(M).transform(M)
    assert np.allclose(np.abs(Z), np.abs(expected), atol=1e-6 * np.abs(expected).max())
