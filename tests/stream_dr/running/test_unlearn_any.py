"""Whatever is learned and unlearned, in whatever order, a model is published, and projects the rows that are left as a new
model of those rows does."""

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr import hashing, nystroem, polynomial, random_fourier, table, text
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt, rows_draft, unlearn_draft
from stream_dr.errors import StreamDRError
from stream_dr.estimators import ESTIMATORS, make
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.models.saved import load
from stream_dr.models.snapshot import export_model, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.driver import RunSettings
from stream_dr.running.running import Running
from tests.support.batches import opened

RESERVOIR = ("lpp", "npe", "laplacian_eigenmaps", "lle")
SEQUENCES = ("ccipca", "iskm")

TABLE, TEXT, NUMBERS = "table", "text", "numbers"
LANDMARKS = [[0.0, 0.0, 1.0], [2.0, 1.0, 0.0], [1.0, 3.0, 2.0], [3.0, 0.5, 1.0]]
MAPS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "none": (None, NUMBERS),
    "table": (table(as_={"x": "number", "y": "number", "plan": "category"}), TABLE),
    "text": (text(n_features=16), TEXT),
    "hashing": (hashing(n_features=16), NUMBERS),
    "random_fourier": (random_fourier(8, gamma=0.3), NUMBERS),
    "polynomial": (polynomial(n_features=16, gamma=0.1), NUMBERS),
    "nystroem": (
        nystroem(landmarks=[[0.0, 0.0, 1.0], [2.0, 1.0, 0.0], [1.0, 3.0, 2.0], [3.0, 0.5, 1.0]], gamma=0.2),
        NUMBERS,
    ),
}
"""Each map, and the kind of rows that it takes."""

CALM = {"lda": {"gamma": 1.0}, "opls": {"gamma": 1.0}, "cca": {"gamma": 1.0}, "hsl": {"gamma": 1.0}}
"""With a ridge no direction hangs on whether a rounding error is a rank."""


def batch(kind: str, seed: int) -> dict[str, Any]:
    """Rows with labels and ids: later ones have gaps, categories and a class that earlier ones lack."""
    rng = np.random.default_rng(seed)
    count, classes = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    labels = [f"c{i}" for i in rng.integers(0, classes, count)]
    shift = np.array([int(label[1:]) for label in labels], dtype=float)
    numbers = np.round(rng.normal(size=(count, 3)) + shift[:, None] * [1.0, 2.0, -1.0], 3)
    if kind == TEXT:
        words = [
            f"{' '.join(f'w{int(abs(v) * 3)}' for v in row)} {label}"
            for row, label in zip(numbers, labels, strict=True)
        ]
        rows: list[Any] = words
    elif kind == TABLE:
        plans = rng.choice(["free", "paid", "trial", "team"][: 2 + seed % 3], count)
        rows = [{"x": x, "y": y, "plan": str(plan)} for (x, y, _), plan in zip(numbers.tolist(), plans, strict=True)]
        for row in rows[1:]:  # the first batch has to show every column
            if rng.random() < 0.15:
                del row[str(rng.choice(["x", "y", "plan"]))]
        rows = [row or {"plan": "free"} for row in rows]
    else:
        rows = numbers.tolist()
    return {"rows": rows, "labels": labels, "ids": [f"{seed}-{i}" for i in range(count)]}


def append(directory: Directory, draft: Any) -> None:
    (answer,) = directory.append([draft])
    if not isinstance(answer, Receipt):
        raise answer


def fresh(directory: Directory, model: Model) -> Any:
    """A new model's state of the rows that are left, learned event by event."""
    estimator = make(model.spec.estimator, model.spec.params)
    accumulator = estimator.accumulator()
    for _, block in directory.history.events():
        accumulator.add(estimator.block_to_learn(block))
    return estimator, accumulator.freeze()


def products(projection: Any, directory: Directory) -> np.ndarray:
    """Inner products of the projected rows that are left: the same up to sign and rotation."""
    blocks = [block for _, block in directory.history.events()]
    if not blocks:
        return np.zeros((0, 0))
    z = np.vstack([projection.apply(block.X) for block in blocks])
    return z @ z.T


def check(directory: Directory, model: Model) -> None:
    """The model is published as it is now, and projects as a new one."""
    assert model.failure is None, model.failure
    if not model.rows:
        assert model.published is None
        return
    model.publish_unless_refined_or_current(model.freeze())
    assert model.solving.error is None, model.solving.error
    assert not model.needs_publishing
    if model.spec.estimator in RESERVOIR or model.published is None:
        return
    estimator, state = fresh(directory, model)
    if state.rows == 0:
        return
    ours, theirs = products(model.published.projection, directory), products(estimator.solve(state), directory)
    assert np.abs(ours - theirs).max(initial=0.0) <= 1e-9 * max(1.0, np.abs(theirs).max(initial=0.0))


def learn(directory: Directory) -> None:
    models = list(directory.models.values())
    backfill(directory, models, directory.position)
    for model in models:
        check(directory, model)


@pytest.mark.every_run
@pytest.mark.parametrize("feature_map", MAPS)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(turns=st.lists(st.integers(0, 2**20), min_size=2, max_size=7))
def test_any_order_of_learning_and_unlearning(feature_map: str, turns: list[int], tmp_path_factory: Any) -> None:
    spec, kind = MAPS[feature_map]
    keys = [key for key in ESTIMATORS if feature_map == "none" or key not in (*SEQUENCES, *RESERVOIR)]
    models = {key: (key, CALM.get(key, {}) | ({} if spec is None else {"feature_map": spec})) for key in keys}
    with opened(tmp_path_factory.mktemp("D"), **models) as directory:
        left: list[str] = []
        for turn in turns:
            if left and turn % 3 == 0:
                rng = np.random.default_rng(turn)
                ids = rng.choice(left, int(rng.integers(1, len(left) + 1)), replace=False).tolist()
                append(directory, unlearn_draft(directory.history.parse_named_removal([], ids)))
                left = [id for id in left if id not in ids]
            else:
                body = batch(kind, turn)
                if set(body["ids"]) & set(left):
                    continue
                append(directory, rows_draft(orjson.dumps(body), "json"))
                left += body["ids"]
            learn(directory)


def additive_models() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every method whose state is a sum over rows: without folds, with folds, cross-validated, and with unlabelled rows."""
    models: dict[str, tuple[str, dict[str, Any]]] = {}
    for key, method in ESTIMATORS.items():
        params = signature(method).parameters
        if not method.merges or key in RESERVOIR:
            continue
        base = CALM.get(key, {})
        models[key] = key, base
        if "folds" in params:
            models[f"{key}-folds"] = key, base | {"folds": 3}
            if method.cross_validates:
                models[f"{key}-cv"] = key, base | {method.cross_validates: "cv"}
    models["skm-use"] = "skm", {"a": 0.5, "unlabelled": "use", "folds": 3}
    models["wmv-use"] = "wmv", {"unlabelled": "use", "folds": 3}
    return models


def partly_labelled_batch(rng: np.random.Generator, name: str, weighted: bool) -> dict[str, Any]:
    """Rows of which all, some or none have a label."""
    count = int(rng.integers(1, 30))
    labels = [f"c{i}" for i in rng.integers(0, 3, count)]
    rows = rng.normal(size=(count, 3)) + [[int(label[1:]), 0, 1] for label in labels]
    body: dict[str, Any] = {"rows": rows.round(3).tolist(), "ids": [f"{name}-{i}" for i in range(count)]}
    if weighted:
        body["weights"] = rng.uniform(0.5, 2.0, count).round(2).tolist()
    labelled_share = rng.choice([0.0, 0.0, 0.5, 1.0])
    body["labels"] = [label if rng.random() < labelled_share else None for label in labels]
    if labelled_share == 0 and rng.random() < 0.5:
        del body["labels"]
    return body


@pytest.mark.every_run
@pytest.mark.filterwarnings("ignore:gamma='cv' chose gamma=")
@pytest.mark.parametrize("seed", [1, 2])
def test_rows_without_labels_are_unlearned_from_every_sum(seed: int, tmp_path: Path) -> None:
    check_partly_labelled(seed, tmp_path)


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore:gamma='cv' chose gamma=")
@pytest.mark.parametrize("seed", range(3, 30))
def test_rows_without_labels_are_unlearned_in_any_order(seed: int, tmp_path: Path) -> None:
    check_partly_labelled(seed, tmp_path)


def check_partly_labelled(seed: int, path: Path) -> None:
    """Batches with and without labels come and go by position and by id, and a restart changes nothing."""
    rng = np.random.default_rng(seed)
    left: dict[int, list[str]] = {}
    with opened(path / "D", **additive_models()) as directory:
        for turn in range(9):
            if left and turn % 3 == 2:
                position = int(rng.choice(list(left)))
                if rng.random() < 0.5:
                    removal = directory.history.parse_named_removal([position], [])
                    del left[position]
                else:
                    named = [left[position].pop() for _ in range(max(1, len(left[position]) // 3))]
                    removal = directory.history.parse_named_removal([], named)
                    left = {place: ids for place, ids in left.items() if ids}
                append(directory, unlearn_draft(removal))
            else:
                body = partly_labelled_batch(rng, str(turn), weighted=seed % 2 == 1)
                append(directory, rows_draft(orjson.dumps(body), "json"))
                left[directory.position] = body["ids"]
            backfill(directory, list(directory.models.values()), directory.position)
            if turn % 3 == 2:
                check_against_fresh(directory)
            if turn == 6:
                for model in directory.models.values():
                    write_snapshot_if_needed(model, model.freeze(), directory.path)

    with opened(path / "D") as directory:
        backfill(directory, list(directory.models.values()), directory.position)
        check_against_fresh(directory)


def check_against_fresh(directory: Directory) -> None:
    """Each model projects as a new one of the rows that are left, if those are enough to be solved."""
    for name, model in directory.models.items():
        assert model.failure is None, (name, model.failure)
        estimator, state = fresh(directory, model)
        assert model.rows == state.rows, name
        try:
            expected = products(estimator.solve(state), directory)
        except StreamDRError:
            continue
        ours = products(estimator.solve(model.freeze().state), directory)
        assert np.abs(ours - expected).max(initial=0.0) <= 1e-8 * max(1.0, np.abs(expected).max(initial=0.0)), name


@pytest.mark.parametrize("key", ["lda", "pca"])
def test_a_column_that_goes_with_the_only_row_that_had_it(key: str, tmp_path: Path) -> None:
    """The first gap of a table makes a column; unlearned, it takes its column along, and what is published must not lag."""
    rng = np.random.default_rng(0)
    rows = [{"x": float(x), "y": float(y), "plan": "paid"} for x, y in rng.normal(size=(40, 2))]
    params = {"feature_map": table()} | CALM.get(key, {})
    with Directory(tmp_path / "D") as directory:
        running = Running(directory, RunSettings(publish=PublishPolicy(10**9, None, False)))
        running.start()
        try:
            model, _ = running.add_model("m", key, params)
            body = {"rows": rows, "labels": ["a" if r["x"] > 0 else "b" for r in rows]}
            running.submit(rows_draft(orjson.dumps(body), "json")).result(30)
            gap = {"rows": [{"plan": "free"}], "labels": ["a"], "ids": ["gap"]}
            position = running.submit(rows_draft(orjson.dumps(gap), "json")).result(30).position
            assert running.wait_until_all_include(position, 30)
            assert model.published is not None
            before = model.published
            assert "x missing" in before.projection.feature_names

            position = running.unlearn(ids=["gap"]).result(30).position
            assert running.wait_until_all_include(position, 30)
            assert model.published.position == position
            assert "x missing" not in model.published.projection.feature_names
            assert model.describe(directory.position)["state"] == "live"
            check(directory, model)
        finally:
            running.stop()


def part(path: Path, kind: str, models: dict[str, Any], turns: list[int]) -> Directory:
    """A directory that has learned a batch for each turn, and unlearned some of the rows of each third."""
    directory = opened(path, **models)
    append(directory, rows_draft(orjson.dumps(FIRST[kind]), "json"))
    for turn in turns:
        body = batch(kind, turn)
        append(directory, rows_draft(orjson.dumps(body), "json"))
        if turn % 3 == 0:
            append(directory, unlearn_draft(directory.history.parse_named_removal([], body["ids"][: 1 + turn % 4])))
    backfill(directory, list(directory.models.values()), directory.position)
    return directory


FIRST: dict[str, dict[str, Any]] = {
    TABLE: {
        "rows": [{"x": 0.5, "y": 1.0, "plan": "free"}, {"x": 1.5, "y": 0.0, "plan": "paid"}],
        "labels": ["c0", "c1"],
    },
    TEXT: {"rows": ["w0 w1 c0", "w2 c1"], "labels": ["c0", "c1"]},
    NUMBERS: {"rows": [[0.5, 1.0, 0.0], [1.5, 0.0, 2.0]], "labels": ["c0", "c1"]},
}


MERGED: dict[str, dict[str, Any]] = {
    "table": table(as_={"x": "number", "y": "number", "plan": "category"}, impute=0.0),
    "text": text(n_features=16, idf=False),
}
"""Maps by which a row is the same numbers whatever came before it: parts that filled gaps by means of their own differ."""

TURNS = st.lists(st.integers(0, 2**20), min_size=1, max_size=3, unique=True)


@pytest.mark.every_run
@pytest.mark.parametrize("feature_map", MAPS)
@settings(max_examples=1, deadline=None, derandomize=True)
@given(first=TURNS, second=TURNS)
def test_parts_that_learned_and_unlearned_merge(
    feature_map: str, first: list[int], second: list[int], tmp_path_factory: Any
) -> None:
    check_merged(feature_map, first, second, tmp_path_factory.mktemp("parts"))


@pytest.mark.test_all
@pytest.mark.parametrize("feature_map", MAPS)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(first=TURNS, second=TURNS)
def test_any_parts_merge(feature_map: str, first: list[int], second: list[int], tmp_path_factory: Any) -> None:
    check_merged(feature_map, first, second, tmp_path_factory.mktemp("parts"))


def check_merged(feature_map: str, first: list[int], second: list[int], folder: Path) -> None:
    """Merged, parts project as a new model of all the rows that are left; so does what goes on from that in a directory."""
    spec, kind = MERGED.get(feature_map, MAPS[feature_map][0]), MAPS[feature_map][1]
    keys = [key for key in ESTIMATORS if ESTIMATORS[key].merges and key not in RESERVOIR]
    models = {key: (key, CALM.get(key, {}) | ({} if spec is None else {"feature_map": spec})) for key in keys}
    with (
        part(folder / "a", kind, models, first) as a,
        part(folder / "b", kind, models, second) as b,
        opened(folder / "c") as c,
    ):
        merged = {key: load(export_model(a.model(key))).merge(load(export_model(b.model(key)))) for key in keys}
        for key in keys:
            compare(merged[key].projection(), models[key], [a, b])
            c.add_saved(key, merged[key])

        body = batch(kind, 1)
        append(c, rows_draft(orjson.dumps(FIRST[kind]), "json"))
        append(c, rows_draft(orjson.dumps(body), "json"))
        append(c, unlearn_draft(c.history.parse_named_removal([], body["ids"][:2])))
        backfill(c, list(c.models.values()), c.position)
        for key in keys:
            model = c.model(key)
            assert model.failure is None, model.failure
            model.publish_unless_refined_or_current(model.freeze())
            assert (model.solving.error, model.needs_publishing) == (None, False)
            if model.published is not None:
                compare(model.published.projection, models[key], [a, b, c])


def compare(projection: Any, spec: tuple[str, dict[str, Any]], directories: list[Directory]) -> None:
    """A projection is that of a new model of all the rows that are left in directories."""
    estimator = make(*spec)
    accumulator = estimator.accumulator()
    blocks = [block for directory in directories for _, block in directory.history.events()]
    for block in blocks:
        accumulator.add(estimator.block_to_learn(block))
    alone = estimator.solve(accumulator.freeze())
    ours, theirs = (z @ z.T for z in (np.vstack([p.apply(b.X) for b in blocks]) for p in (projection, alone)))
    assert np.abs(ours - theirs).max(initial=0.0) <= 1e-9 * max(1.0, np.abs(theirs).max(initial=0.0)), spec
