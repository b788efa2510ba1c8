"""Inspect tells what there is; verify finds what is damaged, and names it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stream_dr import errors
from stream_dr.engine.inspect import inspect
from stream_dr.engine.replay import ReplaySettings, replay
from stream_dr.engine.snapshot import state_sha256
from stream_dr.engine.verify import verify
from stream_dr.streams.shards import open_dataset
from tests.stream_dr.engine.batches import dense, opened, put, shards


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with opened(tmp_path / "d", lda=("lda", {"n_components": 1}), cm=("class_means", {})) as directory:
        put(directory, dense(70))
        replay(directory, open_dataset(shards(tmp_path / "s", blocks=4)), ReplaySettings())
    return tmp_path


def test_inspect(filled: Path) -> None:
    found = inspect(filled / "d")
    assert json.loads(json.dumps(found)) == found
    assert (found["position"], found["rows"]) == (4, 100)
    model = found["models"]["lda"]
    assert {k: model[k] for k in ("estimator", "params", "rows", "position", "version", "solution", "state")} == {
        "estimator": "lda",
        "params": {"n_components": 1},
        "rows": 100,
        "position": 4,
        "version": 1,
        "solution": "exact",
        "state": "live",
    }
    with opened(filled / "d") as directory:  # also while it is open for writing
        assert inspect(filled / "d") == found
        assert model["state_sha256"] == state_sha256(directory.model("lda").accumulator.freeze())
    with pytest.raises(errors.DirectoryMissing):
        inspect(filled / "none")


def test_all_is_well(filled: Path) -> None:
    found = list(verify(filled / "d"))
    assert [f.error for f in found] == [None] * len(found)
    assert len([f for f in found if f.what.startswith("shard")]) == 2
    assert len([f for f in found if f.what.startswith("snapshot")]) == 2


@pytest.mark.parametrize(
    ("pattern", "what", "error"),
    [
        ("d/snapshots/lda.1/*", "snapshot", errors.DamagedFile),
        ("s/part-00001.arrow", "shard", errors.DamagedShard),
    ],
)
def test_damage_is_found(filled: Path, pattern: str, what: str, error: type[Exception]) -> None:
    (victim,) = filled.glob(pattern)
    whole = bytearray(victim.read_bytes())
    whole[-len(whole) // 3] ^= 4
    victim.write_bytes(whole)
    bad = [f for f in verify(filled / "d") if f.error is not None]
    assert [f.what.split()[0] for f in bad] == [what]
    assert isinstance(bad[0].error, error)


def test_a_missing_shard_is_found(filled: Path) -> None:
    (filled / "s/part-00000.arrow").unlink()
    bad = [f for f in verify(filled / "d") if f.error is not None]
    assert isinstance(bad[0].error, errors.SourceMissing)


def test_a_damaged_reference_is_named_and_the_rest_still_checked(filled: Path) -> None:
    (segment,) = (filled / "d" / "log").glob("0*.sqlite")
    with closing(sqlite3.connect(segment)) as log, log:
        assert log.execute("UPDATE events SET body = ? WHERE position = 2", (b"z{}",)).rowcount == 1
    found = list(verify(filled / "d"))
    assert isinstance(found[0].error, errors.DamagedFile)
    assert "event 2" in str(found[0].error)
    assert len(found) > 3
    assert [f.error for f in found[1:]] == [None] * (len(found) - 1)
