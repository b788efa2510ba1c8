"""Files and bodies of another format than they are said to be are named by their first bytes."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from stream_dr.datasets.sources import open_source
from stream_dr.directory.draft import parse_rows
from stream_dr.errors import MalformedInput

TABLE = pa.table({"a": [1.0, 2.0], "b": [2.0, 1.0]})
WORDS = {
    "parquet": "is Parquet",
    "npy": r"is a numpy array \(npy\)",
    "npz": "is a zip archive",
    "arrow": "is an Arrow file",
    "gz": "is packed with gzip",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(TABLE, folder / "x.parquet")
    pyarrow.feather.write_feather(TABLE, folder / "x.arrow")
    np.save(folder / "x.npy", np.ones((2, 2)))
    np.savez(folder / "x.npz", X=np.ones((2, 2)))
    (folder / "x.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100))
    return folder


@pytest.mark.parametrize("actual", WORDS)
@pytest.mark.parametrize("said", ["csv", "jsonl", "libsvm", "parquet", "arrow", "npy", "npz", "sqlite"])
def test_a_file_of_another_format(files: Path, tmp_path: Path, actual: str, said: str) -> None:
    if actual == said:
        return
    path = tmp_path / f"y.{said}"
    path.write_bytes((files / f"x.{actual}").read_bytes())
    with pytest.raises(MalformedInput, match=WORDS[actual]):
        list(open_source(path).blocks())


@pytest.mark.parametrize(("actual", "said"), [(a, s) for a in WORDS for s in ("json", "arrow") if a != s])
def test_a_body_of_another_format(files: Path, actual: str, said: str) -> None:
    with pytest.raises(MalformedInput, match=WORDS[actual]):
        parse_rows((files / f"x.{actual}").read_bytes(), said, None)


def test_bad_rows_of_the_right_format_are_not_blamed_on_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, float("inf")]}), tmp_path / "x.parquet")
    with pytest.raises(MalformedInput, match="row 1") as error:
        list(open_source(tmp_path / "x.parquet", raw=False).blocks())
    assert "first bytes" not in str(error.value)
