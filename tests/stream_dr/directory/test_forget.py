"""Forgetting: the bytes of unlearned rows leave the disk once no snapshot needs them, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np

from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import rows_draft, unlearn_draft
from stream_dr.directory.history import GONE, Decoder
from stream_dr.directory.verify import verify
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.refine import refine_frozen_and_publish
from tests.support.batches import dense, opened, put


def unlearn(directory: Directory, positions: tuple[int, ...] = (), ids: tuple[str, ...] = ()) -> None:
    directory.append([unlearn_draft(directory.history.parse_named_removal(positions, ids))])


def settled(directory: Directory) -> None:
    """Bring the model up, and take two snapshots past what is in the log."""
    model = directory.model("m")
    for seed in (90, 91):
        put(directory, dense(seed))
        backfill(directory, [model], directory.position)
        write_snapshot_if_needed(model, model.freeze(), directory.path)


def left(directory: Directory) -> dict[int, list[str]]:
    """The ids of the rows still learned, by position."""
    return {p: b.ids for p, b in directory.history.events() if b.ids is not None}


def numbers(directory: Directory) -> list[int]:
    """The numbers that the rows of the first event have."""
    found = Decoder(directory.path).decode_numbered_rows(directory.log.read(-1, 0)[0], directory.schema)
    assert found is not None
    return [int(number) for number in found[1]]


def on_disk(path: Path, words: bytes) -> bool:
    return any(words in file.read_bytes() for file in (path / "log").iterdir())


def test_bytes_leave_the_disk_when_every_snapshot_is_past_them(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        for seed in range(4):
            put(directory, dense(seed, ids=[f"person-{seed}-{i:02d}" for i in range(20)]))
        unlearn(directory, (1,), ("person-2-05", "person-2-07"))
        expected = left(directory)
        assert directory.retention.erase_unlearned_rows() == 0
        settled(directory)
        assert on_disk(tmp_path, b"person-2-05")
        assert directory.retention.erase_unlearned_rows() == 2
        assert directory.retention.erase_unlearned_rows() == 0
        assert left(directory) == expected
        unlearn(directory, (), ("person-2-00", "person-2-09"))
        assert left(directory)[2] == [i for i in expected[2] if i not in ("person-2-00", "person-2-09")]
        settled(directory)
        assert directory.retention.erase_unlearned_rows() == 1
        assert len(left(directory)[2]) == 16
        assert directory.model("m").rows == 4 * 20 - 20 - 4 + 4 * 20
        late, _ = directory.add_model("late", "class_means", {})
        backfill(directory, [late], directory.position)
        assert (late.status != "failed", late.rows) == (True, directory.model("m").rows)
        found = late.estimator.solve(late.accumulator.freeze()).eigenvalues
        wanted = directory.model("m").estimator.solve(directory.model("m").accumulator.freeze()).eigenvalues
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    for name in (b"person-1-03", b"person-2-05", b"person-2-07", b"person-2-00", b"person-2-09"):
        assert not on_disk(tmp_path, name), name
    assert on_disk(tmp_path, b"person-2-01")
    assert [f for f in verify(tmp_path) if f.error] == []


def test_a_model_without_a_snapshot_keeps_everything(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        put(directory, dense(0))
        unlearn(directory, (0,))
        settled(directory)
        directory.add_model("new", "class_means", {})
        assert directory.retention.erase_unlearned_rows() == 0
        directory.remove_model("new")
        assert directory.retention.erase_unlearned_rows() == 1


def test_what_a_body_says_about_rows_taken_out_counts_only_once_it_was_written_anew(tmp_path: Path) -> None:
    batch = arrow_from_block(dense(0)).replace_schema_metadata({GONE: b"[0, 1]"})
    with opened(tmp_path, m=("class_means", {})) as directory:
        directory.append([rows_draft(bytes(write_arrow([batch])), "arrow")])
        assert numbers(directory) == list(range(20))
        directory.append([unlearn_draft({0: [3]})])
        settled(directory)
        assert directory.retention.erase_unlearned_rows() == 1
        assert numbers(directory) == [i for i in range(20) if i != 3]
        directory.log.verify()


def test_an_unlearning_that_is_done_is_not_looked_at_again(tmp_path: Path, monkeypatch: Any) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        put(directory, dense(0), dense(1), dense(2))
        unlearn(directory, (0,))
        settled(directory)
        assert directory.retention.erase_unlearned_rows() == 1
        unlearn(directory, (1,))
        settled(directory)
        read, looked_at = directory.log.read, []
        monkeypatch.setattr(directory.log, "read", lambda *a: looked_at.append(a) or read(*a))
        assert directory.retention.erase_unlearned_rows() == 1
        assert looked_at == [(0, 1)]
    with opened(tmp_path) as directory:
        assert directory.retention.erase_unlearned_rows() == 0


def test_a_refine_has_its_rows_until_it_ends(tmp_path: Path) -> None:
    with opened(tmp_path, m=("lda", {"scatter": "diagonal", "gamma": 1.0})) as directory:
        for seed in range(4):
            put(directory, dense(seed))
        model = directory.model("m")
        backfill(directory, [model], directory.position)
        written: list[int] = []

        def told(facts: dict[str, Any]) -> None:
            if not written and "residual" in facts:
                unlearn(directory, (1,))
                settled(directory)
                written.append(directory.retention.erase_unlearned_rows())

        assert refine_frozen_and_publish(directory, model, model.freeze(), 1e-9, 3, told) is None
        assert model.published is None
        assert written == [0]
        assert directory.retention.erase_unlearned_rows() == 1
