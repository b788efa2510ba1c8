"""Tables of SQLite and DuckDB: the rows of a CSV, by name or as the only one, with words, dates and gaps."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from stream_dr.datasets.sources import infer_format_from_suffix, open_source
from stream_dr.errors import InvalidParameter, MalformedInput, SchemaMismatch, SourceMissing

ROWS = "CREATE TABLE orders (id INTEGER, price REAL, n INTEGER, colour TEXT, day TEXT, y TEXT)"


def made(path, statements):
    if path.suffix == ".duckdb":
        duckdb = pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
        with duckdb.connect(str(path)) as database:
            for statement in statements:
                database.execute(statement)
    else:
        with closing(sqlite3.connect(path)) as database, database:
            for statement in statements:
                database.execute(statement)
    return path


def order(i):
    return 1000 + 7 * i, i / 4, i % 5, "red" if i % 3 else "blue", f"2024-01-{1 + i % 28:02d}", "yes" if i % 2 else "no"


def orders(n):
    return [ROWS, f"INSERT INTO orders VALUES {', '.join(str(order(i)) for i in range(n))}"]


@pytest.fixture(params=["shop.db", "shop.duckdb"])
def shop(tmp_path, request):
    return made(tmp_path / request.param, orders(2_300))


def test_the_rows_of_a_csv(shop, tmp_path):
    lines = [("id", "price", "n", "colour", "day", "y"), *map(order, range(2_300))]
    (tmp_path / "orders.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    named = [open_source(path, label="y", id="id", drop="colour,day") for path in (shop, tmp_path / "orders.csv")]
    for ours, theirs in zip(*(source.blocks() for source in named), strict=True):
        np.testing.assert_array_equal(ours.X, theirs.X)
        assert (ours.ids, ours.y.targets_by_row(), ours.names) == (theirs.ids, theirs.y.targets_by_row(), theirs.names)
    raw = open_source(f"{shop}!orders", label="y", id="id")
    block = next(raw.blocks())
    assert raw.raw
    assert block.table
    assert block.names == ("price", "n", "colour", "day")


def test_gaps_are_missing_values(tmp_path, shop):
    path = made(tmp_path / f"gaps{shop.suffix}", [ROWS, "INSERT INTO orders VALUES (1, NULL, 2, NULL, NULL, 'a')"])
    block = next(open_source(path, label="y", id="id").blocks())
    assert [column[0].as_py() is None for column in block.X.columns] == [True, False, True, True]


def test_a_table_is_named_where_there_are_several(tmp_path, shop):
    path = made(tmp_path / f"two{shop.suffix}", [*orders(3), "CREATE VIEW part AS SELECT price, n FROM orders"])
    assert open_source(f"{path}!part").first.names == ("price", "n")
    for name in (path, f"{path}!other"):
        with pytest.raises(SourceMissing, match=r"!TABLE with one of \['orders', 'part'\]"):
            list(open_source(name).blocks())
    with pytest.raises(SourceMissing, match="there is no file"):
        list(open_source(tmp_path / f"none{shop.suffix}!t").blocks())
    with pytest.raises(SchemaMismatch, match="no column 'z'"):
        list(open_source(f"{path}!orders", label="z").blocks())


def test_what_is_no_database(tmp_path, shop):
    path = tmp_path / f"words{shop.suffix}"
    path.write_text("no database at all " * 100)
    with pytest.raises(MalformedInput, match="cannot be read"):
        list(open_source(path).blocks())


def test_formats_by_name():
    assert [infer_format_from_suffix(name) for name in ("a.sqlite3", "a.db!t.csv", "a.duckdb!s.t")] == [
        "sqlite",
        "sqlite",
        "duckdb",
    ]


def test_a_column_of_several_types_names_it(tmp_path):
    path = made(tmp_path / "a.db", ["CREATE TABLE t (a)", "INSERT INTO t VALUES (1), ('x')"])
    with pytest.raises(MalformedInput, match=r"column 'a'.*--as a=category"):
        list(open_source(path).blocks())


def test_without_duckdb_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(InvalidParameter, match=r"stream-dr\[duckdb\]"):
        list(open_source(tmp_path / "a.duckdb").blocks())
