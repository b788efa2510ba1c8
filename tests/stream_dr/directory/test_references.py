"""Batches: groups of what the log lacks; small first, bounded in bytes; the digest of the next shard meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from stream_dr.directory import references as batching
from stream_dr.directory.directory import Directory
from stream_dr.directory.references import MissingBatches
from stream_dr.errors import DamagedShard, NotFinite
from stream_dr.shards.dataset import Shard, open_dataset
from tests.support.batches import SMALL, opened, shards


def groups(directory: Directory, folder: Path, passes: int = 1) -> list[int]:
    """Events of each group."""
    found = MissingBatches(directory.log, open_dataset(folder), passes, None, False).groups()
    return [len(group) for group in found]


def test_groups_double_up_to_the_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "GROUP_EVENTS", 8)
    folder = shards(tmp_path / "s")
    with opened(tmp_path / "d") as directory:
        assert groups(directory, folder, passes=3) == [4, 8, 8, 8, 8]


def test_what_was_read_before_a_batch_that_is_refused_is_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards(tmp_path / "s")
    real, read = Shard.read, []

    def refused(shard: Shard, batch: int) -> Any:
        read.append(batch)
        if len(read) == 7:
            raise NotFinite("row 0, column 0 is NaN")
        return real(shard, batch)

    monkeypatch.setattr(Shard, "read", refused)
    with opened(tmp_path / "d") as directory:
        found = MissingBatches(directory.log, open_dataset(folder), 1, None, False).groups()
        assert [len(next(found)), len(next(found))] == [4, 2]
        with pytest.raises(NotFinite):
            next(found)


def test_groups_end_at_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sparse in (False, True):
        folder = shards(tmp_path / f"s{sparse}", sparse_rows=sparse)
        monkeypatch.setattr(batching, "GROUP_BYTES", 1)
        with opened(tmp_path / f"d{sparse}") as directory:
            assert groups(directory, folder) == [1] * 12


def test_what_the_log_has_is_left_out(tmp_path: Path) -> None:
    dataset = open_dataset(shards(tmp_path / "s"))
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        first = next(MissingBatches(directory.log, dataset, 1, None, False).groups())
        directory.append(first)
        rest = [d.key for group in MissingBatches(directory.log, dataset, 1, None, False).groups() for d in group]
    assert len(rest) == 8
    assert not set(rest) & {d.key for d in first}


def test_the_next_shards_digest_is_taken_ahead_and_damage_is_told_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards(tmp_path / "s")
    victim = sorted(folder.glob("*.arrow"))[1]
    whole = bytearray(victim.read_bytes())
    whole[len(whole) // 2] ^= 1
    victim.write_bytes(whole)
    checked: list[str] = []
    real = Shard.check

    def check(shard: Shard) -> Any:
        checked.append(shard.path.name)
        return real(shard)

    monkeypatch.setattr(Shard, "check", check)
    with opened(tmp_path / "d") as directory:
        drafts = MissingBatches(directory.log, open_dataset(folder), 1, None, False)
        with pytest.raises(DamagedShard, match=victim.name):
            list(drafts.groups())
        assert victim.name in checked
        skipping = MissingBatches(directory.log, open_dataset(folder), 1, None, True)
        assert sum(len(group) for group in skipping.groups()) == 10
        assert len(skipping.skipped) == 1
        assert skipping.shards == 6
