"""feature_map=table() and text(): every estimator learns a table's columns as they are, and texts."""

import datetime
import inspect
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

import stream_dr
from stream_dr import ESTIMATORS, LDA, PCA, hashing, random_fourier, table, text
from stream_dr.errors import (
    CannotMerge,
    CannotUnlearn,
    InvalidParameter,
    InvalidRows,
    OnlyDiagonal,
    OtherColumns,
    SchemaMismatch,
    StreamDRError,
    TooManyFeatures,
    WidthMismatch,
)
from stream_dr.statistics.protocol import pack, unpack

KEYS = [key for key in ESTIMATORS if "feature_map" in inspect.signature(ESTIMATORS[key]).parameters]
QUICK = ("lda", "ccipca", "hsl", "information_gain")
"""What one state each stands for; the others run in `make test-all`."""


def some(keys: list[str]) -> list[Any]:
    return [pytest.param(key, marks=() if key in QUICK else pytest.mark.test_all) for key in keys]


def frame(rows: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2020-02-29")
    return pd.DataFrame(
        {
            "id": np.arange(rows) + 1000 * seed,
            "age": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(40, 10, rows)),
            "sex": rng.choice(["female", "male", "räka"], rows),
            "when": [day + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 9999, rows)],
            "paid": rng.random(rows) < 0.5,
            "town": [None if rng.random() < 0.1 else f"town {i}" for i in rng.integers(0, 50, rows)],
            "note": [" ".join(rng.choice(["red", "green", "blue", "grey", "pink"], 5)) + f" {i}" for i in range(rows)],
        }
    )


X, SPEC = frame(), table(n_words=16, max_categories=6, n_hashed=4)
Y = np.where((X["sex"] == "female") | (X["age"] > 50), "yes", "no")
EXACT: dict[str, Any] = {**SPEC, "impute": 0.0}
"""No row is filled by a mean, so all can be unlearned and merged exactly."""


def targets(key: str, y: np.ndarray = Y) -> Any:
    kinds = ESTIMATORS[key].target_kinds
    return None if not kinds else y if "class" in kinds else [[str(v)] for v in y]


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-7) -> None:
    assert a.shape == b.shape
    assert a == pytest.approx(b, rel=tolerance, abs=tolerance * max(1.0, np.abs(b).max(initial=0.0)))


@pytest.mark.parametrize("key", some(KEYS))
def test_every_estimator_learns_projects_and_comes_back(key: str, tmp_path: Any) -> None:
    y = targets(key)
    model = ESTIMATORS[key](feature_map=SPEC)
    for start in range(0, 80, 40):
        part = slice(start, start + 40)
        model.partial_fit(X[part], *(() if y is None else (y[part],)))
    Z = model.transform(X)
    assert np.isfinite(Z).all()
    assert Z.shape[1] > 0
    assert np.array_equal(model.transform(pl.from_pandas(X)), Z)
    close(model.transform(X.iloc[:5][reversed(list(X))]), Z[:5])
    model.save(tmp_path / "m.safetensors")
    again = stream_dr.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.transform(X), Z)
    for m in (model, again):
        m.partial_fit(X[:7], *(() if y is None else (y[:7],)))
    assert np.array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize("key", some([key for key in KEYS if ESTIMATORS[key].additive]))
def test_unequal_parts_merge_to_the_whole_and_rows_go_out_again(key: str) -> None:
    y = targets(key)
    given = [() if y is None else (y[part],) for part in (slice(5), slice(5, 80), slice(80))]
    options: dict[str, Any] = {"feature_map": EXACT | {"max_categories": 100}}
    if "gamma" in inspect.signature(ESTIMATORS[key]).parameters:
        options["gamma"] = 1.0
    small, large = (
        ESTIMATORS[key](**options).partial_fit(X[p], *g) for p, g in zip((slice(5), slice(5, 80)), given, strict=False)
    )
    whole = ESTIMATORS[key](**options).partial_fit(X[:5], *given[0]).partial_fit(X[5:], *given[1])
    before = whole.transform(X)
    merged = small.merge(large)
    close(np.abs(merged.transform(X)), np.abs(before), 1e-5)
    assert set(merged.state_.table.names) == set(X)
    whole.partial_fit(X[20:30], *([y[20:30]] if y is not None else []))
    whole.unlearn(X[20:30], *([y[20:30]] if y is not None else []))
    close(np.abs(whole.transform(X)), np.abs(before), 1e-5)


def test_columns_have_names_and_numbers_are_those_of_the_table() -> None:
    model = PCA(feature_map=SPEC).fit(X)
    names = model.mapped_names_.tolist()
    assert model.feature_names_in_.tolist() == list(X)
    assert {
        "age",
        "age missing",
        "sex=räka",
        "when",
        "when week sin",
        "paid",
        "town #3",
        "town missing",
        "note #15",
    } <= set(names)
    assert not any(name.startswith("id") for name in names)
    assert model.components_.shape[1] == len(names)
    mean = dict(zip(names, model.mean_, strict=True))
    assert mean["age"] == pytest.approx(X["age"].mean())  # gaps are filled by it
    assert mean["sex=female"] == pytest.approx((X["sex"] == "female").mean())
    assert mean["age missing"] == pytest.approx(X["age"].isna().mean())
    assert mean["when"] == pytest.approx(20.16 + 9999 / 2 / 8766, abs=0.1)


def test_chosen_columns_are_named_and_texts_that_are_missing_are_rows() -> None:
    chosen = stream_dr.InformationGain(n_components=2, feature_map=SPEC).fit(X, Y).get_feature_names_out()
    assert "sex=female" in chosen.tolist()
    model = LDA(gamma=1.0, feature_map=text(64)).fit(X["note"], X["sex"])
    gone = pd.DataFrame({"text": pd.Series([None, None], dtype=object)})
    assert np.isfinite(model.transform(gone)).all()
    model.partial_fit(gone, ["male", "male"])
    assert model.mapped_names_[-1] == "text missing"


def test_what_later_rows_may_be() -> None:
    model = PCA(n_components=2, feature_map=SPEC).fit(X)
    one = X.iloc[[0]]
    never = one.assign(sex="other")
    apart = {
        n: c for n, c in zip(model.mapped_names_, model.components_.T, strict=True) if n == f"sex={one['sex'].iloc[0]}"
    }
    close(model.transform(one) - model.transform(never), np.array([*apart.values()]))
    with pytest.warns(OtherColumns, match=r"no column 'age', which is taken as missing"):
        gone = model.transform(one.drop(columns="age"))
    close(gone, model.transform(one.assign(age=np.nan)))
    with pytest.warns(OtherColumns, match=r"'new' was not among the first rows' columns"):
        close(model.transform(one.assign(new="column")), model.transform(one))
    close(model.transform(one.assign(age=str(one["age"].iloc[0]))), model.transform(one))
    with pytest.raises(SchemaMismatch, match=r"row 1, column age is 'old' \(text\), not a number"):
        model.transform(X[:2].assign(age=["30", "old"]))
    z = model.transform(one.assign(when=pd.Timestamp("2020-03-01 10:00")))
    for said in ("2020-03-01T10:00", "2020-03-01 12:00+02:00", "2020-03-01T10:00Z"):
        close(model.transform(one.assign(when=said)), z)
    for wrong in ("0001-01-01T00:00+23:00", "99999-01-01", "soon"):
        with pytest.raises(SchemaMismatch, match="row 0, column when is"):
            model.transform(one.assign(when=wrong))
    with pytest.raises(SchemaMismatch, match="row 0, column when is '3' "):
        model.transform(one.assign(when=3))
    with pytest.raises(WidthMismatch, match="3 features"):
        PCA(feature_map=SPEC).fit(np.eye(4)).transform(np.eye(3))
    with pytest.raises(InvalidRows, match="sparse rows are no table"):
        PCA(feature_map=SPEC).fit(__import__("scipy.sparse").sparse.csr_matrix(np.eye(3)))
    with pytest.raises(StreamDRError, match="no numbers"):
        PCA().fit(X)


def test_an_array_is_no_table_that_was_learned() -> None:
    rows = X[["age", "paid"]]
    model = PCA(feature_map=SPEC).fit(rows)
    before = model.transform(rows)
    for use in (model.transform, model.partial_fit, model.unlearn):
        for other in (np.zeros((3, 2)), rows.set_axis(["length", "width"], axis=1)):
            with pytest.raises(SchemaMismatch, match=r"none of the table's columns \['age', 'paid'\]"):
                use(other)
    assert np.array_equal(model.transform(rows), before)
    assert PCA(feature_map=SPEC).fit(np.eye(4)).partial_fit(np.eye(4)).n_samples_seen_ == 8


def test_vectors_beside_a_category_are_a_column_of_numbers_a_place() -> None:
    vectors = np.random.default_rng(5).normal(size=(80, 3)).round(2)
    rows = X[["sex"]].assign(v=list(vectors))
    apart = X[["sex"]].assign(v0=vectors[:, 0], v1=vectors[:, 1], v2=vectors[:, 2])
    model = LDA(feature_map=SPEC).fit(rows, Y)
    assert [name for name in model.mapped_names_ if name.startswith("v")] == ["v0", "v1", "v2"]
    assert np.array_equal(model.transform(rows), LDA(feature_map=SPEC).fit(apart, Y).transform(apart))
    report = stream_dr.describe_table(rows.assign(w=[list(range(10))] * 80))
    assert "w0 … w9" in str(report)
    assert "v0  " in str(report)
    with pytest.raises(InvalidRows, match="column 'v' has 2 numbers in row 7 and 3 in row 0"):
        model.partial_fit(rows.assign(v=[v[:2] if i == 7 else v for i, v in enumerate(vectors)]), Y)
    with pytest.raises(InvalidRows, match=r"column v has vectors of 5000 numbers; .* 4096"):
        model.partial_fit(rows.assign(v=list(np.zeros((80, 5000)))), Y)
    gaps = model.partial_fit(rows.assign(v=[None, *vectors[1:]]), Y)
    assert "v2 missing" in gaps.mapped_names_


def test_a_refused_batch_changes_nothing() -> None:
    model = LDA(gamma=1.0, feature_map=SPEC).fit(X, Y)
    before, Z = pack(model.state_)[1], model.transform(X)
    for rows, y in ((X.assign(age="old"), Y), (frame(80, 1), list(range(80)))):
        with pytest.raises(StreamDRError):
            model.partial_fit(rows, y)
    assert pack(model.state_)[1] == before
    assert np.array_equal(model.transform(X), Z)


def test_rows_that_a_mean_filled_are_not_unlearned_by_another() -> None:
    model = LDA(gamma=1.0, feature_map=SPEC).fit(X, Y)
    with pytest.raises(CannotUnlearn, match="constant impute"):
        model.unlearn(X[:10], Y[:10])
    whole = X.assign(age=1.0)
    model.partial_fit(whole[:10], Y[:10]).unlearn(whole[:10], Y[:10])
    with pytest.raises(CannotUnlearn, match="never had the value"):
        LDA(feature_map=EXACT).fit(X, Y).unlearn(X[:10].assign(sex="never"), Y[:10])


def test_parts_of_other_columns_or_kinds_do_not_merge() -> None:
    with pytest.raises(CannotMerge, match="'paid'"):
        PCA(feature_map=SPEC).fit(X).merge(PCA(feature_map=SPEC).fit(X.drop(columns="paid")))
    with pytest.raises(CannotMerge, match="column age is number in one state and category"):
        PCA(feature_map=SPEC).fit(X).merge(PCA(feature_map=SPEC).fit(X.assign(age=[f"{i % 3}" for i in range(80)])))


@pytest.mark.parametrize(
    "bad", [{"max_categories": -1}, {"as_": {"a": "colour"}}, {"drop": "age"}, {"impute": "median"}]
)
def test_parameters_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(bad))):
        table(**bad)


value = st.none() | st.floats(-1e6, 1e6) | st.just(float("nan"))
word = st.none() | st.text(max_size=5)
hostile = st.integers(0, 6).flatmap(
    lambda n: st.fixed_dictionaries(
        {"a": st.lists(value, min_size=n, max_size=n), "b": st.lists(word, min_size=n, max_size=n)}
    )
)


@pytest.mark.test_all
@given(st.lists(hostile, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_hostile_tables_are_learned_in_parts_as_they_are_merged(tables: list[dict[str, list[Any]]]) -> None:
    spec = table(impute=0, max_categories=100, as_={"a": "number", "b": "category"})
    frames = [pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in t.items()}) for t in tables]
    straight, parts = PCA(feature_map=spec), []
    for rows in frames:
        straight.partial_fit(rows)
        parts.append(PCA(feature_map=spec).partial_fit(rows))
    merged = parts[0]
    for other in parts[1:]:
        merged.merge(other)
    a, b = straight.state_, merged.state_
    assert a.rows == b.rows
    if not a.rows:
        return
    order = [merged.mapped_names_.tolist().index(name) for name in straight.mapped_names_]
    one, other = a.inner.centred(), b.inner.centred()
    assert len(order) == len(one.mean) == len(other.mean)
    close(other.mean[order], one.mean)
    close(other.scatter[np.ix_(order, order)], one.scatter)
    arrays, told = pack(a)
    again = unpack(type(a), arrays, told)
    assert again.table.names == a.table.names
    assert np.array_equal(straight.transform(frames[0]), straight.transform(frames[0]))


def test_ten_thousand_categories_take_bounded_room() -> None:
    rows = pd.DataFrame({"who": [f"u{min(i % 10_000, 9_000)}" for i in range(20_000)], "n": np.arange(20_000.0)})
    model = PCA(n_components=1, feature_map=table()).fit(rows)
    assert len(model.mapped_names_) == 1 + 8 + 1  # u9000 is frequent


def test_a_long_category_is_hashed_and_not_remembered() -> None:
    def frame_of(values: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"c": values, "n": np.arange(float(len(values)))})

    long = "x" * 1_001
    model = PCA(feature_map=table()).fit(frame_of(["u", "v", long, "u"] * 10))
    assert [name for name in model.mapped_names_ if "=" in name] == ["c=u", "c=v"]
    assert any("c #" in name for name in model.mapped_names_)
    before = model.mean_.copy()
    model.partial_fit(frame_of([long, "u"])).unlearn(frame_of([long, "u"]))
    close(model.mean_, before)

    few = PCA(feature_map=table(max_categories=2)).fit(frame_of([long, "u", "v", "w"] * 10))
    assert [name for name in few.mapped_names_ if "=" in name] == ["c=u", "c=v"]


def test_texts_are_those_of_the_hashing_vectorizer_and_tfidf() -> None:
    texts = X["note"].tolist()
    counts = HashingVectorizer(n_features=64, alternate_sign=False, norm=None, ngram_range=(1, 2)).transform(texts)
    plain = PCA(n_components=3, feature_map=text(64, (1, 2), idf=False)).fit(texts)
    from sklearn.preprocessing import normalize

    rows = normalize(counts).toarray()
    close(plain.mean_, rows.mean(0))
    close(plain.transform(texts), (rows - plain.mean_) @ plain.components_.T)
    weighted = PCA(n_components=3, feature_map=text(64, (1, 2))).fit(pd.Series(texts))
    close(weighted.mean_, np.asarray(TfidfTransformer().fit_transform(counts).mean(0)).ravel())
    halves = [PCA(feature_map=text(64, (1, 2))).fit(texts[part]) for part in (slice(40), slice(40, None))]
    merged = halves[0].merge(halves[1]).state_.table.columns[0]
    assert merged.present == 80
    assert np.array_equal(merged.counts, (counts != 0).sum(0).A1)
    with pytest.raises(CannotUnlearn, match="idf=False"):
        weighted.unlearn(texts[:5])
    plain.unlearn(texts[:40])
    close(plain.mean_, rows[40:].mean(0))


def test_refine_reads_texts_as_they_were_weighed() -> None:
    texts, labels = X["note"].tolist(), X["sex"].tolist()
    batches = [(texts[i : i + 20], labels[i : i + 20]) for i in range(0, 80, 20)]
    model = LDA(gamma=1.0, feature_map=text(5000))
    exact = LDA(gamma=1.0, feature_map=text(512), scatter="exact")
    for rows, y in batches:
        model.partial_fit(rows, y)
        exact.partial_fit(rows, y)
    assert model.solution_ == "diagonal"
    model.refine(batches)
    assert model.solution_ == "refined"
    assert model.score(texts, labels) == pytest.approx(exact.score(texts, labels), abs=0.1)


def test_exact_scatter_that_may_not_hold_all_columns_is_refused_before_anything_is_learned() -> None:
    for wide in (text(4_096), hashing(5_000), random_fourier(5_000)):
        with pytest.raises(InvalidParameter, match="this feature_map makes"):
            LDA(feature_map=wide, scatter="exact").fit(X, Y)
    wide = table(max_categories=6_000)
    with pytest.raises(TooManyFeatures, match=r"this table's 7 \(of \w+ 6009\)"):
        LDA(feature_map=wide, scatter="exact").fit(X, Y)
    numbers = LDA(feature_map=wide, scatter="exact").fit(X[["age", "when", "paid"]], Y)
    assert numbers.solution_ == "exact"
    with pytest.warns(OnlyDiagonal, match=r"\(of \w+ 6009\)"):
        assert LDA(feature_map=wide).fit(X, Y).solution_ == "diagonal"


@pytest.mark.parametrize("make", [PCA, LDA, stream_dr.OPLS, stream_dr.WMV])
@pytest.mark.filterwarnings("ignore::stream_dr.errors.FewerComponents")
def test_a_table_of_constant_columns_has_no_components(make):
    constant = pd.DataFrame({"a": [1.5] * 60, "b": ["x"] * 60})
    model = make(feature_map=table()).fit(constant, ["u", "v"] * 30)
    assert model.transform(constant).shape == (60, 0)
    assert model.n_samples_seen_ == 60


def test_mapped_names_are_unique():
    frame = pd.DataFrame(
        {
            "c": ["p", "q"] * 30,
            "c=p": np.arange(60.0),
            "c=p (2)": np.arange(60.0) ** 2,
            "n": [1.0, None] * 30,
            "n missing": np.arange(60.0) % 7,
        }
    )
    names = LDA(feature_map=table()).fit(frame, ["u", "v", "v"] * 20).mapped_names_.tolist()
    assert len(set(names)) == len(names)
    assert {"c=p", "c=p (2)", "n missing", "n missing (2)"} <= set(names)
