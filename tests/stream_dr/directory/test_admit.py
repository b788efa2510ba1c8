"""Whatever can refuse a batch does so before it is in the log, with a named error, and changes nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import CCIPCA, LPP, PCA, errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, rows_draft
from stream_dr.estimators.class_means import ClassMeans
from stream_dr.models.limits import Limits
from stream_dr.running.advance import backfill
from tests.support.batches import SMALL, dense, draft, opened, put, sparse

X = np.arange(12.0).reshape(3, 4)
LABELS = class_targets(["a", "b", "c"])


def refused(directory: Directory, block: Block) -> errors.StreamDRError:
    """The error that refuses a block; the directory must be what it was."""
    before = directory.position, directory.schema, directory.rows
    answer = directory.append([draft(block)])[0]
    assert isinstance(answer, errors.StreamDRError), answer
    assert (directory.position, directory.schema, directory.rows) == before
    with pytest.raises(type(answer)):
        directory.check(draft(block))
    return answer


@pytest.mark.parametrize(
    ("first", "then", "error"),
    [
        (dense(0), dense(1, features=5), errors.WidthMismatch),
        (dense(0), sparse(1), errors.SchemaMismatch),
        (sparse(0), dense(1), errors.SchemaMismatch),
        (dense(0), dense(1, names=("a", "b", "c", "d")), errors.SchemaMismatch),
        (dense(0, names=("a", "b", "c", "d")), dense(1, names=("a", "b", "c", "e")), errors.SchemaMismatch),
        (dense(0, names=("a", "b", "c", "d")), dense(1), errors.SchemaMismatch),
        (dense(0), Block(X[:0], None), errors.EmptyInput),
        (dense(0), Block(X, continuous_targets([1.5, 2.5, 3.5])), errors.TargetKindMismatch),
        (dense(0), Block(X, multilabel_targets([["a"], [], ["b"]])), errors.TargetKindMismatch),
        (dense(0), Block(X, class_targets([1, 2, 3])), errors.InvalidTargets),
        (dense(0), Block(X, LABELS, np.ones(3)), errors.InvalidWeights),
        (Block(X, LABELS, np.ones(3)), Block(X, LABELS), errors.InvalidWeights),
        (
            Block(X, continuous_targets([1.5, 2.5, 3.5])),
            Block(X, continuous_targets(np.ones((3, 2)) / 2)),
            errors.InvalidTargets,
        ),
    ],
)
def test_a_batch_must_fit_the_stream(
    tmp_path: Path, first: Block, then: Block, error: type[errors.StreamDRError]
) -> None:
    with opened(tmp_path) as directory:
        put(directory, first)
        assert isinstance(refused(directory, then), error)


@pytest.mark.parametrize(
    ("limits", "block", "error"),
    [
        (SMALL._replace(max_features=3), dense(0), errors.LimitExceeded),
        (SMALL._replace(max_features=10), sparse(0), errors.InvalidIndex),
        (SMALL._replace(max_labels=2), dense(0), errors.LimitExceeded),
        (SMALL._replace(max_state_bytes=100), dense(0), errors.LimitExceeded),
    ],
)
def test_limits(tmp_path: Path, limits: Limits, block: Block, error: type[errors.StreamDRError]) -> None:
    with Directory(tmp_path, limits=limits) as directory:
        directory.add_model("opls", "opls", {})
        assert isinstance(refused(directory, block), error)


LONG = "x" * 1_001
SHORT = "x" * 1_000


@pytest.mark.parametrize(
    "rows",
    [
        {"rows": [[1.0, 2.0], [3.0, 1.0]], "labels": ["a", "TEXT"]},
        {"rows": [[1.0, 2.0], [3.0, 1.0]], "labels": [["a"], ["TEXT", "a"]]},
        {"rows": [[1.0, 2.0], [3.0, 1.0]], "ids": ["a", "TEXT"]},
        {"rows": [{"a": 1.0, "TEXT": 2.0}, {"a": 3.0, "TEXT": 1.0}]},
        {"rows": [{"a": 1.0, "c": "u"}, {"a": 3.0, "c": "TEXT"}]},
    ],
    ids=["label", "label set", "id", "column name", "category"],
)
def test_texts_that_are_remembered_are_bounded(tmp_path: Path, rows: dict[str, object]) -> None:
    def with_text(text: str) -> Draft:
        return rows_draft(json.dumps(rows).replace("TEXT", text).encode(), "json")

    with Directory(tmp_path, limits=SMALL) as directory:
        directory.add_model("pca", "pca", {"feature_map": {"map": "table"}} if "c" in str(rows["rows"]) else {})
        (refusal,) = directory.append([with_text(LONG)])
        assert isinstance(refusal, errors.LimitExceeded)
        assert refusal.details == {"needed": 1_001, "limit": 1_000}
        assert directory.position == -1
        directory.append_all([with_text(SHORT)])


def test_a_long_text_of_words_is_no_category(tmp_path: Path) -> None:
    text = "many different words and more " * 100
    body = {"rows": [{"a": float(i), "text": f"{i} {text}"} for i in range(4)]}
    with Directory(tmp_path, limits=SMALL) as directory:
        directory.add_model("pca", "pca", {"feature_map": {"map": "table"}})
        directory.append_all([rows_draft(json.dumps(body).encode(), "json")])


def test_the_learned_kind_of_a_column_decides_if_a_long_text_is_a_category(tmp_path: Path) -> None:
    def draft(texts: list[str]) -> Draft:
        body = {"rows": [{"a": float(i), "c": text} for i, text in enumerate(texts)]}
        return rows_draft(json.dumps(body).encode(), "json")

    words = "many different words and more "
    later = {"category": [f"{i} {words * 40}" for i in range(4)], "text": [words * 40] * 2}
    first = {"category": ["u", "v", "u", "v"], "text": [f"{i} {words}" for i in range(4)]}
    for kind in first:
        with Directory(tmp_path / kind, limits=SMALL) as directory:
            model, _ = directory.add_model("pca", "pca", {"feature_map": {"map": "table"}})
            directory.append_all([draft(first[kind])])
            backfill(directory, [model], 0)
            (answer,) = directory.append([draft(later[kind])])
            assert isinstance(answer, errors.LimitExceeded) == (kind == "category")


def test_a_saved_estimator_brings_no_long_label(tmp_path: Path) -> None:
    estimator = ClassMeans().fit(X, ["a", LONG, "a"])
    with Directory(tmp_path, limits=SMALL) as directory, pytest.raises(errors.LimitExceeded, match="1001 characters"):
        directory.add_saved("means", estimator)


def test_a_saved_estimator_decides_the_width(tmp_path: Path) -> None:
    for i, estimator in enumerate((ClassMeans(), CCIPCA(), PCA(feature_map={"map": "polynomial"}), LPP())):
        with Directory(tmp_path / str(i), limits=SMALL) as directory:
            directory.add_saved("m", estimator.fit(np.eye(9), list("ababababa")))
            assert isinstance(refused(directory, Block(X, LABELS)), errors.WidthMismatch)
            assert not isinstance(directory.append([draft(Block(np.eye(9)[:3], LABELS))])[0], errors.StreamDRError)


def test_a_model_that_takes_one_label_a_row_refuses_several(tmp_path: Path) -> None:
    with opened(tmp_path, lda=("lda", {})) as directory:
        told = refused(directory, sparse(0))
        assert isinstance(told, errors.TargetKindMismatch)
        assert "OPLS" in str(told)


def test_a_recurrence_refuses_weights_and_a_weighted_stream_refuses_it(tmp_path: Path) -> None:
    weighted = Block(X, LABELS, np.ones(3))
    with opened(tmp_path / "a", pca=("ccipca", {})) as directory:
        assert isinstance(refused(directory, weighted), errors.InvalidWeights)
    with opened(tmp_path / "b") as directory:
        put(directory, weighted)
        with pytest.raises(errors.InvalidWeights):
            directory.add_model("pca", "ccipca", {})
        directory.add_model("lda", "lda", {})


def test_what_cannot_use_the_targets_is_refused_as_a_model(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, sparse(0))
        with pytest.raises(errors.TargetKindMismatch):
            directory.add_model("lda", "lda", {})
        assert directory.models == {}


def test_a_stream_set_to_carry_no_targets(tmp_path: Path) -> None:
    with Directory(tmp_path, limits=SMALL, target_kind="none") as directory:
        assert isinstance(refused(directory, dense(0)), errors.TargetKindMismatch)
        put(directory, dense(0, y=None))
        with pytest.raises(errors.TargetKindMismatch):
            directory.add_model("lda", "lda", {})


def test_a_stated_kind_holds_until_the_stream_has_targets(tmp_path: Path) -> None:
    """Also where the log has rows already; the batch that comes next writes it down."""
    with opened(tmp_path) as directory:
        put(directory, dense(0, y=None))
    with Directory(tmp_path, limits=SMALL, target_kind="class") as directory:
        assert (directory.schema.layout, directory.schema.target_kind) == ("dense", "class")
        other = dense(1, y=continuous_targets(np.arange(20.0)))
        assert isinstance(refused(directory, other), errors.TargetKindMismatch)
    with opened(tmp_path) as directory:
        assert directory.schema.target_kind is None
    with Directory(tmp_path, limits=SMALL, target_kind="class") as directory:
        put(directory, dense(1, y=None))
    with Directory(tmp_path, limits=SMALL, target_kind="continuous") as directory:
        assert directory.schema.target_kind == "class"
        put(directory, dense(2))
    with opened(tmp_path) as directory:
        assert (directory.schema.target_kind, directory.schema.n_targets) == ("class", 3)


def test_a_closed_set_of_labels_is_asked_of_new_batches_and_written_down_with_them(tmp_path: Path) -> None:
    with opened(tmp_path / "D", m=("class_means", {})) as directory:
        put(directory, dense(0))
    with Directory(tmp_path / "D", limits=SMALL, allowed_labels=["a", "b"]) as directory:
        assert directory.log.schema_changes()[1:] == []
        typo = dense(1)._replace(y=class_targets(["b", "d"] * 10))
        for refused in (typo, dense(2)):  # c is in the log already
            with pytest.raises(errors.InvalidTargets, match="this stream's labels are 'a', 'b'"):
                put(directory, refused)
        put(directory, typo._replace(y=class_targets(["b", None] * 10)))
        assert directory.log.schema_changes()[1:] == ['{"allowed_labels":["a","b"]}']
    with Directory(tmp_path / "D", limits=SMALL) as directory:  # as it is written
        assert directory.schema.allowed_labels == ("a", "b")
        with pytest.raises(errors.InvalidTargets, match="'d'"):
            put(directory, typo)
        late, _ = directory.add_model("late", "class_means", {})
        backfill(directory, [late], directory.position)
        assert (late.failure, late.rows, late.classes) == (None, 30, ("a", "b", "c"))
    with Directory(tmp_path / "D", limits=SMALL, allowed_labels=[]) as directory:
        put(directory, typo)
        assert directory.schema.labels[-1] == "d"
        assert directory.schema.allowed_labels == ()


def test_a_missing_label_cannot_be_allowed(tmp_path: Path) -> None:
    for labels in ([None, "a"], [float("nan"), "a"]):
        with pytest.raises(errors.InvalidTargets, match="missing label"):
            Directory(tmp_path / "D", allowed_labels=labels)


def test_a_new_stream_may_have_a_closed_set_of_labels(tmp_path: Path) -> None:
    with Directory(tmp_path / "D", limits=SMALL, allowed_labels=[1, 2]) as directory:
        with pytest.raises(errors.InvalidTargets, match="labels are str"):
            put(directory, dense(0))
        put(directory, dense(0)._replace(y=class_targets([2, 1] * 10)))
        assert directory.schema.labels == (2, 1)
    with pytest.raises(errors.InvalidTargets, match="all strings, all integers or all bools"):
        Directory(tmp_path / "D", limits=SMALL, allowed_labels=[1, "2"])
    with Directory(tmp_path / "D", limits=SMALL) as directory:
        assert directory.schema.allowed_labels == (1, 2)


def test_a_stated_width(tmp_path: Path) -> None:
    with Directory(tmp_path, limits=SMALL, n_features=80) as directory:
        put(directory, sparse(0))
        assert (directory.schema.features, directory.schema.stated) == (80, 80)
    with Directory(tmp_path, limits=SMALL) as directory:
        assert directory.schema.stated == 80


def test_exact_scatter_grows_up_to_its_width(tmp_path: Path) -> None:
    with opened(tmp_path, lda=("opls", {})) as directory:
        put(directory, sparse(0, features=4000, stated=True))
        wide = sparse(1, rows=400, features=5000)
        told = refused(directory, wide)
        assert isinstance(told, errors.TooManyFeatures)
        assert "diagonal" in str(told)
        directory.remove_model("lda")
        directory.add_model("lda", "opls", {"scatter": "diagonal"})
        put(directory, wide)
        with pytest.raises(errors.TooManyFeatures):
            directory.add_model("exact", "opls", {})


def test_exact_scatter_of_wide_dense_rows_is_bounded_by_the_memory_of_a_state(tmp_path: Path) -> None:
    with opened(tmp_path, lda=("lda", {"scatter": "exact"})) as directory:
        told = refused(directory, dense(0, features=20_000))
        assert isinstance(told, errors.LimitExceeded)
        put(directory, dense(0, features=4_200))
        assert directory.schema.features == 4_200


def test_rows_without_targets_are_legal(tmp_path: Path) -> None:
    with opened(tmp_path, lda=("lda", {})) as directory:
        put(directory, dense(0, y=None), dense(1))
        assert directory.schema.target_kind == "class"


def test_sparse_streams_grow(tmp_path: Path) -> None:
    with opened(tmp_path, opls=("opls", {})) as directory:
        widths: list[Any] = []
        for features in (10, 30, 20):
            put(directory, sparse(features, features=features, rows=200))
            widths.append(directory.schema.features)
    assert widths[0] <= 10 < widths[1] == widths[2] <= 30


@pytest.mark.parametrize(
    ("feature_map", "first", "error"),
    [
        ({"map": "text"}, dense(0), errors.InvalidRows),
        ({"map": "polynomial"}, sparse(0)._replace(width_stated=False), errors.WidthMismatch),
    ],
    ids=["no text", "unknown width"],
)
def test_the_first_batch_must_suit_the_feature_map(
    tmp_path: Path, feature_map: dict[str, Any], first: Block, error: type[errors.StreamDRError]
) -> None:
    with opened(tmp_path, pca=("pca", {"feature_map": feature_map})) as directory:
        assert isinstance(refused(directory, first), error)
