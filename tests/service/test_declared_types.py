"""Declared types: a category is one on every way in, decimals are numbers, and `features` may be a list."""

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import stream_dr
from stream_dr import LDA, OPLS, Client, table
from stream_dr.batch.table import table_kinds
from stream_dr.errors import MalformedInput, NotNumeric, StreamDRError
from stream_dr.shards.dataset import open_shard
from tests.support.serving import ARROW, Served, in_thread, stream

Y = ["u", "v", "u", "w", "v"] * 12
X = np.random.default_rng(3).normal(size=(60, 3))
KINDS = {
    "integers": ([1, 2, 3, 1, 2], ["1", "2", "3", "1", "2"]),
    "fractions": ([0.5, 2.0, 7.25, 0.5, 2.0], ["0.5", "2", "7.25", "0.5", "2"]),
    "booleans": ([True, False, True, True, False], ["1", "0", "1", "1", "0"]),
    "dates": ([datetime.date(2024, 2, day) for day in (3, 1, 2, 3, 1)], [f"2024-02-0{day}" for day in (3, 1, 2, 3, 1)]),
    "missing": ([4, None, 5, 4, 6], ["4", None, "5", "4", "6"]),
    "words": (["p", "q", "r", "p", "q"], ["p", "q", "r", "p", "q"]),
    "sentences": ([f"a long text {i}" for i in range(5)], [f"a long text {i}" for i in range(5)]),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[pa.Table, np.ndarray]:
    """A table of a declared category, and the components of rows whose category is written as text."""
    values, texts = KINDS[request.param]
    column = pa.array(values * 12).dictionary_encode()
    reference = LDA(feature_map=table(as_={"c": "category"})).fit([{"c": text} for text in texts * 12], Y)
    return pa.table({"c": column}), np.abs(reference.transform([{"c": text} for text in texts * 12]))


def learned(path: Path) -> np.ndarray:
    blocks = list(stream_dr.open_source(path, label="y").blocks())
    lda = LDA(feature_map=table())
    for block in blocks:
        lda.partial_fit(block)
    return np.abs(np.vstack([lda.transform(block) for block in blocks]))


def served_lda(served: Served) -> Client:
    spec = {"estimator": "lda", "params": {"feature_map": {"map": "table"}}}
    assert served.http.put("/models/m", json=spec).status_code == 201
    return Client(served.url)


def test_a_category_of_any_values_is_one_in_tables(kind: tuple[pa.Table, np.ndarray]) -> None:
    rows, expected = kind
    frame = rows.to_pandas()
    assert frame["c"].dtype == "category"
    for given in (rows, frame, rows.to_batches()[0]):
        lda = LDA(feature_map=table()).fit(given, Y)
        for asked in (rows, frame, rows.to_reader()):
            assert np.abs(lda.transform(asked)) == pytest.approx(expected, abs=1e-9)
        with pytest.raises(NotNumeric, match="'c'"):
            LDA().fit(given, Y)


def test_the_arrow_type_in_a_parquet_file_counts(kind: tuple[pa.Table, np.ndarray], tmp_path: Path) -> None:
    rows, expected = kind
    both = rows.append_column("y", pa.array(Y))
    pq.write_table(both, tmp_path / "arrow.parquet")
    both.to_pandas().to_parquet(tmp_path / "pandas.parquet")
    pa.feather.write_feather(both, tmp_path / "file.arrow", compression="uncompressed")
    for name in ("arrow.parquet", "pandas.parquet", "file.arrow"):
        assert learned(tmp_path / name) == pytest.approx(expected, abs=1e-9), name


def test_the_arrow_type_in_a_shard_counts(kind: tuple[pa.Table, np.ndarray], tmp_path: Path) -> None:
    rows, expected = kind
    both = rows.append_column("label", pa.array(Y)).append_column("weight", pa.array([1.0] * 60).dictionary_encode())
    pq.write_table(both, tmp_path / "shard.parquet", row_group_size=25)
    shard = open_shard(tmp_path / "shard.parquet")
    blocks = [shard.read(number) for number in range(len(shard.batch_rows))]
    lda = LDA(feature_map=table())
    for block in blocks:
        lda.partial_fit(block)
    assert np.abs(np.vstack([lda.transform(block) for block in blocks])) == pytest.approx(expected, abs=1e-9)


def test_parquets_own_dictionaries_mean_nothing(tmp_path: Path) -> None:
    rows = pa.table({"c": pa.array([1, 2, 3, 1, 2] * 12), "d": ["k", "m"] * 30, "y": Y})
    pq.write_table(rows, tmp_path / "rows.parquet", use_dictionary=True)
    (block,) = stream_dr.open_source(tmp_path / "rows.parquet", label="y").blocks()
    assert table_kinds(block.X) == {"c": "integer", "d": "text"}


def test_a_category_is_one_over_http(kind: tuple[pa.Table, np.ndarray], tmp_path: Path) -> None:
    rows, expected = kind
    body = stream({"c": rows["c"].combine_chunks(), "label": pa.array(Y)})
    for way in ("arrow", "client"):
        with in_thread(tmp_path / way) as served, served_lda(served) as client:
            if way == "arrow":
                sent = served.http.post("/partial_fit?wait=applied", content=body, headers={"content-type": ARROW})
                assert sent.status_code == 200, sent.text
            else:
                client.partial_fit(rows.to_pandas(), Y, wait=True)
            z = np.abs(client.transform(rows.to_pandas(), model="m"))
            # Numbers that are sent for a category are its digits.
            values = [{"c": str(v) if isinstance(v, datetime.date) else v} for v in rows["c"].to_pylist()]
            plain = served.http.post("/transform?model=m", json={"rows": values}).json()["z"]
        assert z == pytest.approx(expected, abs=1e-9)
        assert np.abs(plain) == pytest.approx(expected, abs=1e-9)


def test_numbers_in_text_files_are_the_digits_of_a_category(tmp_path: Path) -> None:
    values, texts = KINDS["integers"]
    frame = pd.DataFrame({"c": values * 12, "y": Y})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    for name in ("rows.csv", "rows.jsonl"):
        lda = LDA(feature_map=table()).fit(pa.table({"c": pa.array(values * 12).dictionary_encode()}), Y)
        (block,) = stream_dr.open_source(tmp_path / name, label="y").blocks()
        expected = lda.transform([{"c": text} for text in texts * 12])
        assert lda.transform(block) == pytest.approx(expected, abs=1e-9)


PRICES = [decimal.Decimal(f"{value:.2f}") for value in X[:, 0]]


@pytest.mark.parametrize(
    "kind", [pa.decimal128(10, 2), pa.decimal256(50, 2), pa.decimal64(10, 2), pa.decimal128(38, 2)]
)
@pytest.mark.parametrize("other", ["number", "word", "missing"])
def test_decimals_are_numbers_on_every_way(kind: pa.DataType, other: str, tmp_path: Path) -> None:
    others = {"number": X[:, 1].tolist(), "word": ["k", "m"] * 30, "missing": [None, 1.0] * 30}
    rows = pa.table({"price": pa.array(PRICES, kind), "b": others[other]})
    floats = rows.set_column(0, "price", pa.array([float(p) for p in PRICES]))
    expected = np.abs(LDA(feature_map=table()).fit(floats, Y).transform(floats))

    pq.write_table(rows.append_column("y", pa.array(Y)), tmp_path / "rows.parquet")
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    with in_thread(tmp_path / "served") as served, served_lda(served) as client:
        body = stream({**columns, "label": pa.array(Y)})
        sent = served.http.post("/partial_fit?wait=applied", content=body, headers={"content-type": ARROW})
        assert sent.status_code == 200, sent.text
        over_http = np.abs(client.transform(rows, model="m"))
    for z in (
        np.abs(LDA(feature_map=table()).fit(rows, Y).transform(rows)),
        learned(tmp_path / "rows.parquet"),
        over_http,
    ):
        assert z == pytest.approx(expected, abs=1e-9)
    if other == "number":
        assert LDA().fit(rows, Y).transform(rows) == pytest.approx(LDA().fit(floats, Y).transform(floats))


FRACTIONS = [None, *(decimal.Decimal(i) / 4 for i in range(1, 60))]
DECIMAL_TARGETS = {
    "list": FRACTIONS,
    "array": np.array(FRACTIONS, dtype=object),
    "series": pd.Series(FRACTIONS),
    "frame": pd.DataFrame({"y": FRACTIONS}),
    "polars": pl.Series(FRACTIONS),
    "arrow": pa.array(FRACTIONS),
}


@pytest.mark.parametrize("form", DECIMAL_TARGETS)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_decimals_are_numbers_to_predict(form: str) -> None:
    y = np.arange(60) / 4
    y[0] = np.nan
    opls = OPLS(n_components=1).fit(X, DECIMAL_TARGETS[form])
    assert opls.predict(X) == pytest.approx(OPLS(n_components=1).fit(X, y).predict(X))


def test_decimals_in_several_columns_are_numbers_to_predict() -> None:
    Y2 = np.column_stack([np.arange(60) / 4, np.arange(60) ** 2])
    decimals = pd.DataFrame(Y2).map(decimal.Decimal)
    expected = OPLS(n_components=2).fit(X, Y2).predict(X)
    assert OPLS(n_components=2).fit(X, decimals).predict(X) == pytest.approx(expected)
    assert OPLS(n_components=2).fit(X, decimals.to_numpy().tolist()).predict(X) == pytest.approx(expected)


def test_whole_decimals_are_labels_for_a_method_of_classes(tmp_path: Path) -> None:
    whole = [decimal.Decimal(i % 3) for i in range(60)]
    assert LDA().fit(X, whole).classes_.tolist() == [0, 1, 2]
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": whole}), tmp_path / "rows.parquet")
    (block,) = stream_dr.open_source(tmp_path / "rows.parquet", label="y").blocks()
    assert block.y.labels == (0, 1, 2)


LISTS = {
    "list": pa.list_(pa.float64()),
    "large": pa.large_list(pa.float64()),
    "fixed": pa.list_(pa.float64(), 3),
    "decimals": pa.list_(pa.decimal128(12, 4)),
    "halves": pa.list_(pa.float32()),
}


@pytest.mark.parametrize("name", LISTS)
def test_features_may_be_a_column_of_lists(name: str, tmp_path: Path) -> None:
    lists = np.round(X, 4)
    values = [[decimal.Decimal(f"{v:.4f}") for v in row] for row in lists] if name == "decimals" else lists.tolist()
    rows = pa.table({"features": pa.array(values, LISTS[name]), "label": Y})
    expected = np.abs(LDA().fit(lists, Y).transform(lists))

    pq.write_table(rows, tmp_path / "rows.parquet")
    blocks = list(stream_dr.open_source(tmp_path / "rows.parquet").blocks())
    lda = LDA()
    for block in blocks:
        lda.partial_fit(block)
    assert np.abs(np.vstack([lda.transform(block) for block in blocks])) == pytest.approx(expected, abs=1e-5)

    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    with in_thread(tmp_path / "served") as served, Client(served.url) as client:
        assert served.http.put("/models/m", json={"estimator": "lda"}).status_code == 201
        sent = served.http.post("/partial_fit?wait=applied", content=stream(columns), headers={"content-type": ARROW})
        assert sent.status_code == 200, sent.text
        z = np.abs(client.transform(lists, model="m"))
    assert z == pytest.approx(expected, abs=1e-5)


def test_ragged_lists_are_refused_by_their_row(tmp_path: Path) -> None:
    for number, (values, said) in enumerate(
        (
            ([[1.0, 2.0], [3.0, 4.0], [5.0]], "row 2"),
            ([[1.0, 2.0], None, [5.0, 6.0]], "row 1"),
            ([[1.0, 2.0], [3.0, None], [5.0, 6.0]], "row 1"),
        )
    ):
        rows = pa.table({"features": values, "label": ["a", "b", "a"]})
        pq.write_table(rows, tmp_path / "rows.parquet")
        with pytest.raises(MalformedInput, match=said):
            list(stream_dr.open_source(tmp_path / "rows.parquet").blocks())
        with pytest.raises(StreamDRError, match=said):
            LDA().fit(rows, "label")
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        with in_thread(tmp_path / f"served {number}") as served:
            sent = served.http.post("/partial_fit", content=stream(columns), headers={"content-type": ARROW})
            assert sent.status_code == 422
            assert said in sent.json()["detail"]
