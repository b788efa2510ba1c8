"""Parquet within its budget: small files that unpack to gigabytes are refused, or read some rows at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.memory import peak
from stream_dr.budget import SETTING
from stream_dr.datasets.readers.columns import Roles
from stream_dr.datasets.readers.parquet import read_parquet
from stream_dr.datasets.sources import are_shards
from stream_dr.errors import InvalidParameter, LimitExceeded
from stream_dr.shards.dataset import open_shard

BUDGET = 16 << 20
LONG = "a" * 500_000


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    monkeypatch.setenv(SETTING, str(BUDGET))


def texts(rows=2_000):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([LONG])).cast(pa.string())


FILES = {
    "long texts": (lambda: {"t": texts(300), "x": np.arange(300.0)}, {}),
    "long ids": (lambda: {"i": texts(300), "x": np.arange(300.0)}, {"id": "i"}),
    "long labels": (lambda: {"y": texts(300), "x": np.arange(300.0)}, {"label": "y"}),
    "a long list": (lambda: {"v": pa.array([np.zeros(20_000_000)])}, {}),
    "texts that share": (lambda: {"t": pa.array([f"{LONG}{i}" for i in range(300)])}, {"raw": True}),
    "many zeros": (lambda: {"x": np.zeros(20_000_000)}, {}),
    "many columns": (lambda: {f"c{i}": np.zeros(1_000) for i in range(3_000)}, {}),
}


def written(path, name):
    columns, roles = FILES[name]
    shared = {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}} if "share" in name else {}
    pq.write_table(pa.table(columns()), path, compression="zstd", store_schema=False, row_group_size=1 << 30, **shared)
    return Roles(**roles)


@pytest.mark.test_all
@pytest.mark.parametrize("name", FILES)
def test_reading_takes_at_most_four_times_the_budget(tmp_path, name):
    path = tmp_path / "a.parquet"
    _, told = peak(lambda: written(path, name))  # by another process: what it freed is not measured
    assert not told
    roles = Roles(**FILES[name][1])
    size, told = peak(lambda: sum(block.rows for block in read_parquet(path, roles)))
    assert size <= 4 * BUDGET + (16 << 20)  # and what modules take that are imported
    assert not told or (told.startswith("LimitExceeded") and f"set {SETTING} for more" in told), told


@pytest.mark.test_all
def test_a_row_group_as_an_event_is_bounded_and_such_a_file_is_read_in_pieces(tmp_path):
    path = tmp_path / "a.parquet"
    written(path, "many zeros")
    assert not are_shards(path)
    with pytest.raises(
        LimitExceeded, match=rf"20000000 rows unpacks to 160000000 bytes; .*set {SETTING} for more.*smaller"
    ):
        open_shard(path).read(0)
    assert sum(block.rows for block in read_parquet(path)) == 20_000_000


@pytest.mark.test_all
def test_with_a_larger_budget_the_same_file_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    roles = written(path, "long labels")
    with pytest.raises(LimitExceeded, match=r"column y in 300 rows have 150000000 bytes"):
        list(read_parquet(path, roles))
    monkeypatch.setenv(SETTING, str(1 << 30))
    assert sum(block.rows for block in read_parquet(path, roles)) == 300


def test_the_setting_is_a_number_of_bytes(monkeypatch, tmp_path):
    written(tmp_path / "a.parquet", "many columns")
    monkeypatch.setenv(SETTING, "4 GB")
    with pytest.raises(InvalidParameter, match=f"{SETTING} is '4 GB'; it must be a whole number of bytes"):
        list(read_parquet(tmp_path / "a.parquet"))
