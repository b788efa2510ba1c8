"""A stream of a table's columns: admitted, logged, learned, recovered, replayed and unlearned as rows of numbers are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from stream_dr import table, text
from stream_dr.batch.arrow import block_from_arrow, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import block_from_json, json_from_block
from stream_dr.batch.matrix import table_from_dicts
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt, rows_draft, unlearn_draft
from stream_dr.errors import InvalidRows, SchemaMismatch, StreamDRError, TooManyFeatures
from stream_dr.estimators.lda import LDA
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.predict import predict
from stream_dr.running.query import export_projection, transform
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import ShardWriter, open_dataset
from tests.support.batches import dense, opened, put

LEARNER: tuple[str, dict[str, Any]] = ("lda", {"gamma": 1.0, "feature_map": table(n_words=8)})


def people(seed: int, rows: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows).tolist()
    age = [None if rng.random() < 0.2 else round(float(rng.normal(40, 12)), 1) for _ in sex]
    born = [f"19{rng.integers(10, 99)}-02-03" for _ in sex]
    rows_ = [
        {"sex": s, "age": a, "paid": bool(rng.random() < 0.5), "born": b}
        for s, a, b in zip(sex, age, born, strict=True)
    ]
    return {"rows": rows_, "labels": [s == "female" for s in sex], "ids": [f"{seed}-{i}" for i in range(rows)]}


def sent(body: Any) -> Draft:
    return rows_draft(orjson.dumps(body), "json")


def arrow(body: dict[str, Any]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(body["rows"])
    return batch.append_column("label", pa.array(body["labels"])).append_column("id", pa.array(body["ids"]))


def append(directory: Directory, *drafts: Draft) -> list[int]:
    answers = directory.append(list(drafts))
    for answer in answers:
        if not isinstance(answer, Receipt):
            raise answer
    return [answer.position for answer in answers if isinstance(answer, Receipt)]


def learn(directory: Directory) -> Any:
    model = directory.model("m")
    backfill(directory, [model], directory.position)
    assert model.failure is None
    return model


def test_json_and_arrow_say_the_same_and_come_back() -> None:
    body = people(0)
    by_json, by_arrow = block_from_json(body), block_from_arrow(arrow(body))
    assert by_json.X.equals(by_arrow.X, check_metadata=True)
    assert json_from_block(by_json)["rows"] == body["rows"]
    texts = block_from_json({"rows": ["a text", "another"], "labels": ["a", "b"]})
    assert texts.names == ("text",)
    assert json_from_block(texts)["rows"] == [{"text": "a text"}, {"text": "another"}]


def test_a_table_is_learned_kept_and_recovered_to_the_bit(tmp_path: Path) -> None:
    with opened(tmp_path / "a", m=LEARNER) as directory:
        for seed in range(4):
            append(directory, sent(people(seed)))
            model = learn(directory)
            if seed == 1:
                write_snapshot_if_needed(model, model.freeze(), directory.path)
        model.publish(model.freeze())
        straight, Z = (
            state_sha256(model.accumulator.freeze()),
            transform(directory.releases.served(model), block_from_json(people(9))),
        )
        assert directory.schema.layout == "table"
        assert directory.schema.kinds == ("text", "number", "number", "date")
    with opened(tmp_path / "a") as directory:  # from the snapshot after two batches
        model = learn(directory)
        assert state_sha256(model.accumulator.freeze()) == straight
        model.publish(model.freeze())
        again = transform(directory.releases.served(model), block_from_arrow(arrow(people(9))))
        assert np.array_equal(again.z, Z.z)
        assert again.ids == people(9)["ids"]
        assert predict(directory.releases.served(model), block_from_json(people(9))).predicted == people(9)["labels"]
        told = export_projection(model)
        assert "sex=female" in json.loads(told.metadata["columns"])
        assert told.to_arrow()
        assert told.to_safetensors()


def test_later_rows_are_read_as_what_the_columns_are_or_refused_whole(tmp_path: Path) -> None:
    with opened(tmp_path, m=LEARNER) as directory:
        append(directory, sent(people(0)))
        model = learn(directory)
        model.publish(model.freeze())
        one = people(1, 1)["rows"][0]

        def z(**changes: Any) -> Any:
            return transform(directory.releases.served(model), block_from_json({"rows": [{**one, **changes}]}))

        assert np.array_equal(z(age="41").z, z(age=41).z)
        assert z(sex="never").unseen == 1
        assert z(new=3).unseen == 1
        gone = {"rows": [{k: v for k, v in one.items() if k != "age"}]}
        lacking = transform(directory.releases.served(model), block_from_json(gone))
        assert np.array_equal(lacking.z, z(age=None).z)
        assert lacking.to_json()["columns_missing"] == ["age"]
        assert lacking.to_arrow()
        assert "columns_missing" not in z().to_json()
        for wrong, what in (({"age": "old"}, "row 0, column age is 'old'"), ({"new": 1}, "unknown columns")):
            with pytest.raises(SchemaMismatch, match=what):
                append(directory, sent({"rows": [{**one, **wrong}], "labels": [True]}))
        with pytest.raises(SchemaMismatch, match="none of the table's columns"):
            append(directory, sent({"rows": [{"other": "x"}], "labels": [True]}))
        with pytest.raises(SchemaMismatch, match="columns have no names of their own"):
            append(directory, sent({"rows": [[1.0, 2.0]], "labels": [True]}))
        with pytest.raises(SchemaMismatch, match="columns have no names of their own"):
            transform(directory.releases.served(model), block_from_json({"rows": [[1.0] * len(one)]}))
        append(directory, sent({"rows": [{"age": 3, "sex": 1999, "born": None}], "labels": [True]}))
        assert learn(directory).rows == 31


def test_vectors_stand_beside_categories_in_json_and_arrow(tmp_path: Path) -> None:
    rows = [{"v": [float(i % 3), 1.0 + i % 2], "sort": "ab"[i % 2]} for i in range(8)]
    with opened(tmp_path, m=LEARNER) as directory:
        append(directory, sent({"rows": [*rows, {"v": None, "sort": "a"}], "labels": [*"xyz" * 3]}))
        assert directory.schema.names == ("v0", "v1", "sort")
        vectors = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
        batch = pa.record_batch({"v": vectors, "sort": pa.array(["b"]), "label": pa.array(["x"])})
        append(directory, rows_draft(write_arrow([batch]), "arrow"))
        model = learn(directory)
        assert model.rows == 10
        model.publish(model.freeze())
        z = transform(directory.releases.served(model), block_from_json({"rows": [rows[3]]})).z
        places = {"v0": 0.0, "v1": 2.0, "sort": "b"}
        assert np.array_equal(transform(directory.releases.served(model), block_from_json({"rows": [places]})).z, z)
        for wrong in ([1.0, 2.0, 3.0], []):
            given = {"rows": [rows[0], {"v": wrong, "sort": "a"}], "labels": ["x", "y"]}
            with pytest.raises(InvalidRows, match=f"column 'v' has {len(wrong)} numbers in row 1 and 2 in row 0"):
                append(directory, sent(given))


def test_texts_of_true_and_false_are_booleans_where_the_column_is_of_booleans(tmp_path: Path) -> None:
    with opened(tmp_path, m=LEARNER) as directory:
        body = people(0)
        for i, row in enumerate(body["rows"]):
            row["member"] = i % 3 == 0
        append(directory, sent(body))
        model = learn(directory)
        model.publish(model.freeze())

        def z(member: object) -> Any:
            told = {"rows": [{**body["rows"][1], "member": member}]}
            return transform(directory.releases.served(model), block_from_json(told)).z

        assert not np.allclose(z(True), z(False))
        for texts, value in ((("true", "True", " TRUE ", "1"), True), (("false", "False", "0"), False)):
            for text in texts:
                assert np.array_equal(z(text), z(value))
        with pytest.raises(SchemaMismatch, match="row 0, column member is 'yes'"):
            z("yes")
        append(directory, sent({"rows": [{**body["rows"][0], "member": "true"}], "labels": [True]}))
        assert learn(directory).rows == len(body["rows"]) + 1


def test_a_model_without_a_map_is_told_of_it(tmp_path: Path) -> None:
    with opened(tmp_path / "a", m=("lda", {})) as directory:
        with pytest.raises(SchemaMismatch, match=r'column sex is text.*feature_map=\{"map": "table"\}'):
            append(directory, sent(people(0)))
        put(directory, dense(0)._replace(names=tuple("abcd")))
        with pytest.raises(StreamDRError, match=r"column b is null in row 0.*table"):
            append(directory, sent({"rows": [{"a": 1, "b": None, "c": 1, "d": 1}], "labels": ["a"]}))
    with opened(tmp_path / "b", m=LEARNER) as directory:
        append(directory, sent(people(0)))
        with pytest.raises(SchemaMismatch, match="feature_map"):
            directory.add_model("other", "pca", {})
        directory.add_model("third", "pca", {"feature_map": table(as_={"sex": "number"})})
        with pytest.raises(SchemaMismatch, match="row 0, column sex"):
            append(directory, sent(people(1)))


def test_numbers_by_name_become_a_table_when_one_is_missing(tmp_path: Path) -> None:
    block = dense(0)._replace(names=tuple("abcd"))
    with opened(tmp_path, m=LEARNER) as directory:
        put(directory, block)
        assert directory.schema.layout == "named"
        append(directory, sent({"rows": [{"a": 1, "b": None, "c": 1, "d": 1}], "labels": ["a"]}))
        put(directory, dense(1)._replace(names=tuple("dcba")))
        assert directory.schema.layout == "table"
        model = learn(directory)
    alone = LDA(**LEARNER[1])
    rows = Block(table_from_dicts([{"a": 1.0, "b": None, "c": 1.0, "d": 1.0}]))
    later = dense(1)
    for X, y in ((block, None), (rows, ["a"]), (later._replace(X=later.X[:, ::-1], names=tuple("abcd")), None)):
        alone.partial_fit(X, y)
    assert state_sha256(model.accumulator.freeze()) == state_sha256(alone.state_)


def test_rows_that_a_mean_filled_are_unlearned_by_learning_anew(tmp_path: Path) -> None:
    with opened(tmp_path, m=LEARNER) as directory:
        for seed in range(3):
            append(directory, sent(people(seed)))
        learn(directory)
        append(directory, unlearn_draft(directory.history.parse_named_removal([1], ["2-3"])))
        model = learn(directory)
        assert model.rows == 59
        state = state_sha256(model.accumulator.freeze())
        left = {k: [v for i, v in enumerate(part) if i != 3] for k, part in people(2).items()}
    with opened(tmp_path / "never", m=LEARNER) as directory:
        append(directory, sent(people(0)), sent(left))
        assert state_sha256(learn(directory).accumulator.freeze()) == state


def test_shards_of_a_table_are_written_and_replayed(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", rows_per_shard=60, rows_per_batch=30) as writer:
        for seed in range(3):
            writer.write(block_from_json(people(seed)))
    with opened(tmp_path / "replayed", m=LEARNER) as directory:
        assert replay(directory, open_dataset(tmp_path / "shards"), ReplaySettings()).rows == 90
        state = state_sha256(directory.model("m").accumulator.freeze())
    with opened(tmp_path / "posted", m=LEARNER) as directory:
        append(directory, *(sent(people(seed)) for seed in range(3)))
        assert state_sha256(learn(directory).accumulator.freeze()) == state


def test_texts_are_posted_as_strings(tmp_path: Path) -> None:
    spec = {"gamma": 1.0, "feature_map": text(1000)}
    with opened(tmp_path, m=("lda", spec)) as directory:
        append(
            directory, sent({"rows": ["rain and wind", "a goal", "wind", "goal goal"], "labels": ["w", "s", "w", "s"]})
        )
        model = learn(directory)
        model.publish(model.freeze())
        later = block_from_arrow(pa.record_batch({"text": ["much wind", None]}))
        assert predict(directory.releases.served(model), later).predicted[0] == "w"
        with pytest.raises(SchemaMismatch):
            directory.add_model("plain", "lda", {})


@pytest.mark.parametrize("bad", [{"a": [b"1"]}, {"a": [{"b": 1}]}, {"a": [[["deep"]]]}])
def test_what_a_table_does_not_take_is_refused_by_name(bad: dict[str, Any]) -> None:
    batch = pa.record_batch({**{k: pa.array(v) for k, v in bad.items()}, "c": ["x"]})
    with pytest.raises(SchemaMismatch, match="column a"):
        rows_draft(write_arrow([batch]))


def test_exact_scatter_that_may_not_hold_a_tables_columns_is_refused_by_post_and_by_put(tmp_path: Path) -> None:
    wide = ("lda", {"scatter": "exact", "feature_map": table(max_categories=4_090)})
    with opened(tmp_path / "a", m=wide) as directory, pytest.raises(TooManyFeatures, match="of sex 4099"):
        append(directory, sent(people(0)))
    with opened(tmp_path / "b", m=LEARNER) as directory:
        append(directory, sent(people(0)))
        with pytest.raises(TooManyFeatures, match="this table's 4"):
            directory.add_model("wide", *wide)
        directory.add_model("narrow", "lda", {"scatter": "exact", "feature_map": table()})


def test_a_receipt_tells_which_columns_were_taken_as_missing(tmp_path: Path) -> None:
    body = people(1)
    lacking = body | {"rows": [{k: v for k, v in row.items() if k not in ("age", "born")} for row in body["rows"]]}
    with opened(tmp_path, m=LEARNER) as directory:
        (first,) = directory.append([sent(people(0))])
        assert isinstance(first, Receipt)
        assert first.columns_missing == ()
        draft = rows_draft(orjson.dumps(lacking), "json", "key")
        checked = directory.check(draft)
        assert checked == (30, False, ("age", "born"))
        for duplicate in (False, True):
            (receipt,) = directory.append([draft])
            assert isinstance(receipt, Receipt)
            assert (receipt.duplicate, receipt.columns_missing) == (duplicate, ("age", "born"))
        learn(directory)


@pytest.mark.parametrize(
    ("first", "kind"),
    [(["2024-02-29", None], "date"), (["2024-02-29T10:30:00Z", "2024-03-01 10:30:00.5+01:00"], "time")],
)
def test_strings_that_all_say_dates_are_dates(first: list[Any], kind: str, tmp_path: Path) -> None:
    body = people(1)
    for i, row in enumerate(body["rows"]):
        row["seen"] = first[i % len(first)]
    with opened(tmp_path) as directory:
        directory.add_model("m", *LEARNER)
        append(directory, sent(body))
        columns = {column.name: column.kind for column in learn(directory).freeze().state.table.columns}
        assert (columns["seen"], columns["born"], columns["sex"]) == (kind, "date", "category")
        with pytest.raises(SchemaMismatch, match="column seen is 'soon'"):
            append(directory, sent(body | {"rows": [row | {"seen": "soon"} for row in body["rows"]]}))
    fitted = LDA(feature_map=table()).fit(body["rows"], body["labels"])
    assert {column.name: column.kind for column in fitted.state_.table.columns} == columns


@pytest.mark.parametrize("odd", ["2024", "20240229", "2024-02-30", "2024-02-29 and more", "29.02.2024", ""])
def test_strings_of_which_one_says_no_date_are_texts(odd: str) -> None:
    rows = [{"at": "2024-02-29", "x": 1.0}, {"at": odd, "x": 2.0}] * 15
    fitted = LDA(feature_map=table()).fit(rows, [i % 4 > 1 for i in range(30)])
    assert fitted.state_.table.columns[0].kind == "category"


def test_a_column_that_began_as_texts_stays_one(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        for words in (["soon", "late"], ["2024-02-29", "2024-02-28"]):
            rows = [{"at": word, "x": float(i)} for i, word in enumerate(words)]
            append(directory, sent({"rows": rows, "labels": ["a", "b"]}))
        assert directory.schema.kinds == ("text", "number")


def test_columns_that_rows_without_a_target_bring_do_not_stop_publication(tmp_path: Path) -> None:
    body, odd = people(1), people(2, 10)
    odd["rows"] = [row | {"sex": f"never met {i}", "age": None} for i, row in enumerate(odd["rows"])]
    with opened(tmp_path, m=LEARNER) as directory:
        append(directory, sent(body))
        learn(directory).publish(directory.model("m").freeze())
        for coming in (odd | {"labels": [None] * 10}, people(3)):
            append(directory, sent(coming))
            model = learn(directory)
            published = model.publish(model.freeze())
            assert len(published.projection.feature_names) == len(published.projection.loadings)
        assert "sex=never met 3" in published.projection.feature_names
        assert published.projection.components.shape[1] == len(published.projection.feature_names)
