"""The river adapter: river's own checks, pipelines, names that come and go, and agreement with the estimator itself."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import base, compose, datasets, evaluate, linear_model, metrics, preprocessing, utils
from sklearn.base import clone

import stream_dr
from stream_dr import ESTIMATORS, errors
from stream_dr.adapters.river import (
    RiverSupervisedTransformer,
    RiverTransformer,
    parse_river_target,
    to_river,
)
from stream_dr.estimators.fitting.stream_learner import new_fitted_state
from tests.support.river_rows import first_kind, small, stream

KEYS = list(ESTIMATORS)


@pytest.mark.parametrize("key", KEYS)
def test_one_row_and_many_rows_agree_with_the_estimator(key: str) -> None:
    rows = stream(60, first_kind(key))
    X = pd.DataFrame([x for x, _ in rows], index=range(100, 160))
    y = [y for _, y in rows]
    one, many, plain = to_river(small(key)), to_river(small(key)), small(key)
    for x, label in rows:
        one.learn_one(x, label) if one.supervised else one.learn_one(x)
    for at in range(0, 60, 20):
        part = X.iloc[at : at + 20]
        many.learn_many(part, pd.Series(y[at : at + 20])) if many.supervised else many.learn_many(part)
    plain.partial_fit(
        many._data_frame_to_rows(X, add_new_names=False),
        [parse_river_target(v) for v in y] if many.supervised else None,
    )
    expected = plain.transform(many._data_frame_to_rows(X, add_new_names=False))
    projected = many.transform_many(X)
    assert list(projected.index) == list(X.index)
    close(projected.to_numpy(), expected)
    close(np.array([list(one.transform_one(x).values()) for x, _ in rows]), expected)


def close(a: np.ndarray, b: np.ndarray) -> None:
    """Equal up to the sign of columns."""
    assert a.shape == b.shape
    signs = np.where((a * b).sum(axis=0) < 0, -1.0, 1.0)
    np.testing.assert_allclose(a, b * signs, atol=1e-7 * max(1.0, np.abs(b).max(initial=0.0)))


@pytest.mark.parametrize("label", ["\ud800", 2**64])
def test_a_label_that_no_column_holds_is_refused(label: Any) -> None:
    model = to_river(stream_dr.LDA())
    with pytest.raises(errors.InvalidTargets, match=r"as strings|whole text"):
        model.learn_one({"a": 1.0}, label)


@pytest.mark.test_all
@pytest.mark.parametrize(
    ("estimator", "floor"),
    [(stream_dr.CCIPCA(10), 0.5), (stream_dr.IncrementalSKM(6), 0.55), (stream_dr.LDA(gamma=0.1), 0.4)],
    ids=lambda value: type(value).__name__,
)
def test_in_a_pipeline_before_a_classifier(estimator: Any, floor: float) -> None:
    model = compose.Pipeline(preprocessing.StandardScaler(), to_river(estimator), linear_model.SoftmaxRegression())
    score = evaluate.progressive_val_score(datasets.ImageSegments().take(500), model, metrics.Accuracy())
    assert score.get() > floor


def test_mini_batches_in_a_pipeline() -> None:
    model = compose.Pipeline(to_river(stream_dr.CCIPCA(2)), linear_model.LogisticRegression())
    rows = stream(60, "class")
    X = pd.DataFrame([x for x, _ in rows])
    model.learn_many(X, pd.Series([y == "a" for _, y in rows]))
    assert len(model.predict_many(X)) == 60


@pytest.mark.parametrize("estimator", [stream_dr.LDA(), stream_dr.ClassMeans(feature_map=stream_dr.hashing(64))])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_classifier_predicts_the_labels_of_its_learner(estimator: Any, library: str) -> None:
    model = to_river(estimator)
    rows = stream(60, "class")
    frame = pd.DataFrame([x for x, _ in rows], index=range(100, 160))
    X = frame if library == "pandas" else pl.from_pandas(frame)
    assert model.predict_one(rows[0][0]) is None
    assert model.predict_proba_one(rows[0][0]) == {}
    assert list(model.predict_many(X)) == [None] * 60
    assert len(model.predict_proba_many(X).columns) == 0

    model.learn_many(X, [y for _, y in rows])
    x = {**rows[0][0], "never learned": 1.0}
    probabilities = model.predict_proba_one(rows[0][0])
    assert set(probabilities) == set("abc")
    assert model.predict_one(rows[0][0]) == max(probabilities, key=lambda label: probabilities[label])
    assert model.predict_one(x) in "abc"
    assert model.predict_one({}) in "abc"

    expected = model.learner.predict(frame.to_dict("records") if estimator.feature_map else frame.to_numpy())
    predicted = model.predict_many(X)
    assert list(predicted) == expected.tolist()
    assert np.mean([label == y for label, (_, y) in zip(predicted, rows, strict=True)]) > 0.9
    many = model.predict_proba_many(X)
    assert list(many.columns) == ["a", "b", "c"]
    np.testing.assert_allclose(many.to_numpy()[0], [probabilities[label] for label in "abc"])
    if library == "pandas":
        assert list(predicted.index) == list(many.index) == list(frame.index)


def test_a_classifier_alone_and_before_another() -> None:
    for last in ([], [linear_model.SoftmaxRegression()]):
        model = compose.Pipeline(preprocessing.StandardScaler(), to_river(stream_dr.LDA(gamma=1.0)), *last)
        score = evaluate.progressive_val_score(datasets.ImageSegments().take(400), model, metrics.Accuracy())
        assert score.get() > 0.7


def test_grids_of_parameters() -> None:
    model = to_river(stream_dr.LDA(n_components=2))
    by_name = {"estimator": {"gamma": [0.1, 1.0], "scatter": ["exact"]}, "prefix": ["left"]}
    models = utils.expand_param_grid(model, by_name)
    assert [m.estimator.gamma for m in models] == [0.1, 1.0]
    assert {(m.estimator.n_components, m.estimator.scatter, m.prefix) for m in models} == {(2, "exact", "left")}
    assert model.estimator.gamma == 0.0
    whole = utils.expand_param_grid(model, {"estimator": [stream_dr.LDA(), stream_dr.LDA(gamma=2.0)]})
    assert [m.estimator.gamma for m in whole] == [0.0, 2.0]
    with pytest.raises(errors.InvalidParameter, match="gama"):
        utils.expand_param_grid(model, {"estimator": {"gama": [0.1]}})


def test_an_estimator_without_river_names_to_river() -> None:
    assert not hasattr(stream_dr.LDA(), "learn_one")
    with pytest.raises(AttributeError, match="to_river"):
        _ = stream_dr.LDA().learn_one


def test_names_come_and_go() -> None:
    model = to_river(stream_dr.CCIPCA(1))
    assert model.transform_one({"a": 1.0}) == {}
    for i in range(10):
        model.learn_one({"a": float(i)})
    for i in range(10):
        model.learn_one({"b": -float(i), "a": 1.0})
    assert model.learner.n_features_in_ == 2
    full = model.transform_one({"a": 1.0, "b": 2.0})
    assert full == model.transform_one({"b": 2.0, "never seen": 5.0, "a": 1.0})
    assert model.transform_one({}) == pytest.approx(
        {"ccipca0": full["ccipca0"] - float(model.learner.components_[0] @ [1, 2])}
    )


def test_supervised_and_unsupervised_are_what_river_expects() -> None:
    assert isinstance(to_river(stream_dr.LDA()), base.SupervisedTransformer)
    assert isinstance(to_river(stream_dr.CCIPCA()), base.Transformer)
    with pytest.raises(errors.InvalidParameter, match="to_river"):
        RiverTransformer(stream_dr.LDA())
    with pytest.raises(errors.InvalidParameter, match="to_river"):
        RiverSupervisedTransformer(stream_dr.CCIPCA())


def test_a_union_keeps_the_components_of_all() -> None:
    parts = [to_river(stream_dr.LDA(), prefix=name) for name in ("one", "two")]
    model = compose.TransformerUnion(to_river(stream_dr.LDA()), to_river(stream_dr.PCA(2)), *parts)
    for x, y in stream(30, "class"):
        model.learn_one(x, y)
    assert sorted(model.transform_one(x)) == ["lda0", "lda1", "one0", "one1", "pca0", "pca1", "two0", "two1"]
    assert list(stream_dr.LDA().fit([[0.0], [1.0]], ["a", "b"]).get_feature_names_out()) == ["lda0"]


@pytest.mark.parametrize("value", ["text", None, float("nan"), 1e101])
def test_a_value_that_is_no_finite_number_is_refused(value: Any) -> None:
    model = to_river(stream_dr.CCIPCA(1))
    model.learn_one({"a": 1.0})
    with pytest.raises((errors.InvalidRows, errors.NotFinite)):
        model.learn_one({"a": value})
    with pytest.raises((errors.InvalidRows, errors.NotFinite)):
        model.learn_many(pd.DataFrame({"a": [value]}))
    assert model.learner.n_samples_seen_ == 1


def test_transform_sees_the_row_just_learned() -> None:
    model = to_river(stream_dr.CCIPCA(1))
    seen = []
    for x, _ in stream(20, None):
        model.learn_one(x)
        seen.append(model.transform_one(x))
    assert len({tuple(z.values()) for z in seen[2:]}) == 18


@pytest.mark.parametrize(
    "estimator", [stream_dr.LDA(gamma=0.1), stream_dr.PCA(3)], ids=lambda value: type(value).__name__
)
def test_answers_do_not_flip_from_row_to_row(estimator: Any) -> None:
    model = to_river(estimator)
    units = [{}, *({name: 1.0} for name in "uvwxyz")]
    before: Any = None
    for x, y in stream(120, "class"):
        model.learn_one(x, y) if model.supervised else model.learn_one(x)
        origin, *ends = [np.array(list(model.transform_one(unit).values())) for unit in units]
        shown = np.array(ends) - origin  # the linear map itself (features, components)
        if before is not None and before.shape == shown.shape:
            assert np.all((before * shown).sum(axis=0) >= 0.0)
        before = shown


@pytest.mark.test_all
def test_oriented_answers_serve_a_classifier_better() -> None:
    """LDA before a classifier on ImageSegments: 0.58 with the signs as solved, 0.72 with those of the row before."""

    class AsSolved(RiverSupervisedTransformer):
        def learn_one(self, x: Any, y: Any) -> None:
            """Every row as if nothing had been shown before it."""
            super().learn_one(x, y)
            fresh = clone(self.learner)
            fresh.fitted_ = new_fitted_state(fresh, self.learner.state_)
            self.learner = fresh

    scores = []
    for adapter in (AsSolved, RiverSupervisedTransformer):
        classifier = linear_model.SoftmaxRegression()
        model = compose.Pipeline(preprocessing.StandardScaler(), adapter(stream_dr.LDA(gamma=10.0)), classifier)
        stream_of_rows = datasets.ImageSegments().take(500)
        scores.append(evaluate.progressive_val_score(stream_of_rows, model, metrics.Accuracy()).get())
    assert scores[1] > scores[0] + 0.02


def test_a_map_that_goes_by_name_is_given_the_names() -> None:
    """In any order, one by one or as a frame, the model is the one the estimator learns from the dicts themselves."""
    spec = stream_dr.hashing(32)
    rows, targets = zip(*stream(60, "class"), strict=True)
    direct = stream_dr.LDA(feature_map=spec).fit(list(rows), list(targets))
    model, batch = to_river(stream_dr.LDA(feature_map=spec)), to_river(stream_dr.LDA(feature_map=spec))
    assert model.transform_one(rows[0]) == {}
    for x, y in zip(rows, targets, strict=True):
        model.learn_one(dict(reversed(list(x.items()))), y)
    batch.learn_many(pd.DataFrame(rows), pd.Series(targets))
    expected = np.abs(direct.transform(list(rows[:5])))
    for row, at in zip(rows[:5], expected, strict=True):
        assert np.abs(list(model.transform_one(row).values())) == pytest.approx(at)
    assert np.abs(batch.transform_many(pd.DataFrame(rows[:5])).to_numpy()) == pytest.approx(expected)


def test_string_values_are_learned_behind_hashing() -> None:
    model = to_river(stream_dr.ClassMeans(feature_map=stream_dr.hashing(64)))
    for colour, y in (("red", "a"), ("blue", "b")) * 5:
        model.learn_one({"colour": colour, "size": 1.0}, y)
    assert model.transform_one({"colour": "red"}) != model.transform_one({"colour": "blue"})


@pytest.mark.parametrize("given", ["lda", stream_dr.KNearest(), None])
def test_what_is_no_estimator_with_a_transform_is_told(given):
    with pytest.raises(errors.InvalidParameter, match="give an estimator of stream_dr"):
        to_river(given)


@pytest.mark.test_all
def test_a_logistic_regression_behind_lda_learns_phishing() -> None:
    """At the paper's lengths, which shrink as rows come, it stays at the share of the larger class, 0.56."""
    model = compose.Pipeline(
        preprocessing.StandardScaler(), to_river(stream_dr.LDA()), linear_model.LogisticRegression()
    )
    assert evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.86


@pytest.mark.parametrize(
    "kind", [stream_dr.PCA, stream_dr.LDA, stream_dr.SKM, stream_dr.InformationGain, stream_dr.LPP]
)
def test_learners_merge_only_where_their_columns_are_the_same_names(kind: Any) -> None:
    rows = stream(40, "class")

    def learned(part: list[Any], order: int = 1) -> Any:
        model = to_river(kind())
        for x, y in part:
            x = dict(list(x.items())[::order])  # which a row's order says nothing of
            model.learn_one(x, y) if model.supervised else model.learn_one(x)
        return model.learner

    whole, half = learned(rows), learned(rows[:20])
    assert half.merge(learned(rows[20:], -1)).n_samples_seen_ == whole.n_samples_seen_
    with pytest.raises(errors.CannotMerge, match="order of columns"):
        half.merge(learned([({"z": 1.0}, rows[0][1]), *rows[21:]]))
    assert half.n_samples_seen_ == 40
    wider = learned([({**x, "zz": 1.0}, y) for x, y in rows[20:]])
    assert list(half.merge(wider).feature_names_in_) == [*rows[0][0], "zz"]
