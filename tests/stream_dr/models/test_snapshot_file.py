"""One file of arrays and facts: back bit-equal, or a named error."""

import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from stream_dr import errors, failpoints
from stream_dr.models import snapshot_file
from stream_dr.models.snapshot_file import read_file, write_file

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "sliced": np.arange(20)[::2],
    "empty": np.zeros((0, 5)),
    "flags": np.array([True, False]),
    "small": np.array([1, -2], dtype=np.int8),
    "single": np.array([0.1, np.nan, np.inf], dtype=np.float32),
}
FACTS = {"pi": 3.141592653589793, "tiny": 5e-324, "labels": ["a", "ß"], "none": None, "deep": {"b": [1, True]}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_file(tmp_path / "x.safetensors", ARRAYS, FACTS)
    return tmp_path / "x.safetensors"


def test_back_bit_equal_whatever_the_layout(path: Path) -> None:
    arrays, facts = read_file(path)
    assert facts == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_same_content_is_the_same_file(path: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "y", dict(reversed(ARRAYS.items())), dict(reversed(FACTS.items())))
    assert snapshot_file.arrays_digest(*_read(path)) == snapshot_file.arrays_digest(*_read(tmp_path / "y"))


def test_any_flipped_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    expected = _read(path)
    for at in rng.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = _read(path)
        except (errors.DamagedFile, errors.ForeignFile, errors.UnknownFormat):
            continue
        assert snapshot_file.arrays_digest(*found) == snapshot_file.arrays_digest(
            *expected
        )  # a byte of the header's padding


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 500, -1])
def test_a_truncated_file(path: Path, kept: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with pytest.raises((errors.DamagedFile, errors.ForeignFile)):
        read_file(path)


def test_a_damaged_array_of_ours_is_damaged(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(errors.DamagedFile):
        read_file(path)


def test_foreign_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, tmp_path / "theirs")
    (tmp_path / "text").write_text("hello, this is not it")
    for name in ("theirs", "text"):
        with pytest.raises(errors.ForeignFile):
            read_file(tmp_path / name)
    with pytest.raises(errors.SourceMissing):
        read_file(tmp_path / "nothing")


def test_another_format_version(path: Path) -> None:
    ours = rb"\"format\":2"
    whole = path.read_bytes()
    assert whole.count(ours) == 1
    path.write_bytes(whole.replace(ours, rb"\"format\":1"))
    with pytest.raises(errors.UnknownFormat, match="of format 1"):
        read_file(path)


@pytest.mark.parametrize("point", ["snapshot.tmp", "snapshot.rename"])
def test_a_write_that_fails_leaves_the_old_file(path: Path, point: str) -> None:
    with failpoints.failpoints_armed(f"{point}=raise"), pytest.raises(failpoints.FailpointReached):
        write_file(path, {"a": np.zeros(1)}, {})
    assert read_file(path)[1] == FACTS
    with failpoints.failpoints_armed(f"{point}=enospc"), pytest.raises(errors.InsufficientStorage):
        write_file(path, {"a": np.zeros(1)}, {})
    assert read_file(path)[1] == FACTS
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_header_is_what_safetensors_says(path: Path) -> None:
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert 8 + length < path.stat().st_size


def _read(path: Path) -> tuple[dict[str, np.ndarray], str]:
    arrays, facts = read_file(path)
    return arrays, snapshot_file.canonical_json(facts)


def test_any_safetensors_reader_reads_it(tmp_path: Path) -> None:
    kinds = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    arrays = {kind: np.ones(3, dtype=kind) for kind in kinds}
    write_file(tmp_path / "x", arrays, FACTS)
    found = safetensors.numpy.load_file(tmp_path / "x")
    assert {name: array.dtype for name, array in found.items()} == {name: a.dtype for name, a in arrays.items()}
    assert all(np.array_equal(found[kind], arrays[kind]) for kind in kinds)
