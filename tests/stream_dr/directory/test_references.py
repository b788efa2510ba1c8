"""Batches: groups of what the log lacks; small first, bounded in bytes; the digest of the next shard meanwhile."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.directory.references import MissingBatches
from stream_dr.errors import DamagedShard, NotFinite
from stream_dr.shards.dataset import Shard, open_dataset
from tests.support.batches import SMALL, opened, shards


def groups(directory: Directory, folder: Path, passes: int = 1) -> list[int]:
    """Events of each group."""
    found = MissingBatches(directory.log, open_dataset(folder), passes, None, False).draft_groups_by_commit()
    return [len(group) for group in found]


def test_groups_double_up_to_the_most(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    with opened(tmp_path / "d") as directory:
        assert groups(directory, folder, passes=20) == [4, 8, 16, 32, 64, 64, 52]


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
        found = MissingBatches(directory.log, open_dataset(folder), 1, None, False).draft_groups_by_commit()
        assert [len(next(found)), len(next(found))] == [4, 2]
        with pytest.raises(NotFinite):
            next(found)


def test_groups_end_at_their_bytes(tmp_path: Path) -> None:
    """A batch takes 33 MiB or more in memory, and little on the disk. A group ends at 64 MiB."""
    X = np.ones((33 << 7, 1 << 10))
    for name, rows in (("dense", X), ("sparse", sp.csr_matrix(X))):
        (tmp_path / name).mkdir()
        batch = arrow_from_block(Block(rows))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(tmp_path / name / "0.arrow", batch.schema, options=options) as writer:
            for _ in range(3):
                writer.write_batch(batch)
        with opened(tmp_path / f"{name}_directory") as directory:
            assert groups(directory, tmp_path / name) == [2, 1]


def test_what_the_log_has_is_left_out(tmp_path: Path) -> None:
    dataset = open_dataset(shards(tmp_path / "s"))
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        first = next(MissingBatches(directory.log, dataset, 1, None, False).draft_groups_by_commit())
        directory.append(first)
        rest = [
            d.key
            for group in MissingBatches(directory.log, dataset, 1, None, False).draft_groups_by_commit()
            for d in group
        ]
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
            list(drafts.draft_groups_by_commit())
        assert victim.name in checked
        skipping = MissingBatches(directory.log, open_dataset(folder), 1, None, True)
        assert sum(len(group) for group in skipping.draft_groups_by_commit()) == 10
        assert len(skipping.skipped) == 1
        assert skipping.shards == 6
