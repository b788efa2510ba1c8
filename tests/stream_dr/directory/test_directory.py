"""Directories: appending in groups, idempotency keys, one writer, models by name, and what a second opening finds."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

import stream_dr
from stream_dr import errors, failpoints
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt, rows_draft
from stream_dr.log import index
from stream_dr.models.entry import Spec
from stream_dr.running.advance import backfill
from tests.support.batches import SMALL, body, dense, draft, opened, put


def test_positions_follow_and_each_draft_has_its_answer(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        answers = directory.append([draft(dense(0)), draft(dense(1, features=9)), draft(dense(2))])
        assert answers[0] == Receipt(0, 20, False)
        assert isinstance(answers[1], errors.WidthMismatch)
        assert answers[2] == Receipt(1, 20, False)
        assert (directory.position, directory.rows) == (1, 40)


def test_the_same_key_and_body_is_the_same_event(tmp_path: Path) -> None:
    first, other = draft(dense(0), "k"), draft(dense(1), "k")
    with opened(tmp_path) as directory:
        assert directory.append([first, first]) == [Receipt(0, 20, False), Receipt(0, 20, True)]
        assert directory.append([first]) == [Receipt(0, 20, True)]
        assert isinstance(directory.append([other])[0], errors.KeyConflict)
    with opened(tmp_path) as directory:
        assert directory.append([first, other])[0] == Receipt(0, 20, True)
        assert directory.position == 0


def test_a_conflict_within_a_group(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        answers = directory.append([draft(dense(0), "k"), draft(dense(1), "k"), draft(dense(2))])
        assert isinstance(answers[1], errors.KeyConflict)
        assert [a.position for a in answers if isinstance(a, Receipt)] == [0, 1]


def test_keys_of_references_are_not_for_callers(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        assert isinstance(directory.append([draft(dense(0), "reference:x")])[0], errors.InvalidParameter)


def test_json_and_arrow_bodies(tmp_path: Path) -> None:
    text = b'{"rows": [[1, 2, 3, 4], [2, 3, 4, 6]], "labels": ["a", "b"]}'
    with opened(tmp_path) as directory:
        answers = directory.append([rows_draft(text, "json"), draft(dense(0))])
        assert [a.rows for a in answers if isinstance(a, Receipt)] == [2, 20]
        with pytest.raises(errors.MalformedInput):
            rows_draft(b"{", "json")
        with pytest.raises(errors.MalformedInput):
            rows_draft(body(dense(0))[:-20], "arrow")
        with pytest.raises(errors.LimitExceeded):
            rows_draft(text, "json", limits=SMALL._replace(max_json_bytes=10))


def test_the_schema_is_there_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, dense(0), dense(1))
        schema = directory.schema
    with opened(tmp_path) as directory:
        assert directory.schema == schema
        assert isinstance(directory.append([draft(dense(0, features=5))])[0], errors.WidthMismatch)


def test_one_writer(tmp_path: Path) -> None:
    with opened(tmp_path):
        with pytest.raises(errors.DirectoryInUse, match="process"):
            Directory(tmp_path)
        with Directory(tmp_path, writable=False) as reading:
            assert reading.position == -1
    Directory(tmp_path).close()


@pytest.mark.every_run
def test_a_lock_held_by_another_process(tmp_path: Path) -> None:
    code = (
        f"import stream_dr, sys; d = stream_dr.Directory({str(tmp_path)!r}); print('up', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "up\n"
    with pytest.raises(errors.DirectoryInUse, match=str(other.pid)):
        Directory(tmp_path)
    other.communicate("")
    Directory(tmp_path).close()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.DirectoryMissing):
        Directory(tmp_path / "none", writable=False)


def test_too_little_room(tmp_path: Path) -> None:
    with Directory(tmp_path, limits=SMALL._replace(min_free_bytes=1 << 60)) as directory:
        assert isinstance(directory.append([draft(dense(0))])[0], errors.InsufficientStorage)
        assert directory.position == -1


def test_a_full_disk_acknowledges_nothing_and_recovers(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, dense(0))
        schema = directory.schema
        with failpoints.failpoints_armed("log.before_commit=enospc"):
            answers = directory.append([draft(dense(1, features=9)), draft(dense(2))])
        assert isinstance(answers[0], errors.WidthMismatch)
        assert isinstance(answers[1], errors.InsufficientStorage)
        assert (directory.position, directory.schema) == (0, schema)
        assert put(directory, dense(2)) == [1]


def test_models_by_name(tmp_path: Path) -> None:
    with opened(tmp_path, lda=("lda", {"n_components": 2})) as directory:
        assert directory.add_model("lda", "lda", {"n_components": 2})[1] is False
        with pytest.raises(errors.ModelExists):
            directory.add_model("lda", "lda", {"n_components": 3})
        with pytest.raises(errors.UnknownModel, match="lda"):
            directory.model("other")
        with pytest.raises(errors.UnknownEstimator):
            directory.add_model("x", "nothing", {})
        with pytest.raises(errors.InvalidParameter):
            directory.add_model("x", "lda", {"n_components": 0})
        for name in ("", "../x", "a b", "-x", "x" * 65):
            with pytest.raises(errors.InvalidParameter):
                directory.add_model(name, "lda", {})
        directory.remove_model("lda")
        with pytest.raises(errors.UnknownModel):
            directory.remove_model("lda")


def test_where_a_model_starts(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, *(dense(i) for i in range(5)))
        starts = {"start": 0, "now": 5, 3: 3, 5: 5}
        for number, (start, first) in enumerate(starts.items()):
            model, new = directory.add_model(f"m{number}", "class_means", {}, start)  # type: ignore[arg-type]
            assert (model.start, model.position, new) == (first, first - 1, True)
        for wrong in (6, -1, True, "later", 1.0):
            with pytest.raises(errors.InvalidParameter):
                directory.add_model("x", "class_means", {}, wrong)  # type: ignore[arg-type]


def test_two_removals_at_once_leave_a_model_made_in_between_alone(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        old = directory.model("m")
        lookup = directory.model

        def slowly(name: str) -> Any:
            """As if another thread removed the model, and made it anew, before this one has the lock."""
            directory.model = lookup  # type: ignore[method-assign]
            if not directory.retention.append_lock.locked():
                directory.remove_model(name)
                directory.add_model(name, "class_means", {})
                return old
            return lookup(name)

        directory.model = slowly  # type: ignore[method-assign]
        directory.remove_model("m")
        assert {e.name for e in directory.table.entries()} == set(directory.models)


def test_a_removed_model_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        first = directory.model("m").id
        folder = tmp_path / "snapshots" / f"m.{first}"
        folder.mkdir(parents=True)
        directory.remove_model("m")
        assert not folder.exists()
        assert directory.add_model("m", "class_means", {})[0].id > first


def test_an_unlearn_draft_is_taken_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, dense(0))
        answer = directory.append([Draft("unlearn", b'{"rows":{"0":null}}', "0" * 64)])[0]
        assert answer == Receipt(1, 0, False)


def test_a_first_batch_that_is_in_the_log_although_its_append_raised_decides_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Directory(tmp_path, limits=SMALL) as directory:
        append = index.add_events_to_index

        def committed(*arguments: Any) -> None:
            append(*arguments)
            arguments[0].execute("COMMIT")
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(index, "add_events_to_index", committed)
            with pytest.raises(OSError, match="Input"):
                directory.append([draft(dense(0, features=4), key="k")])
        refused = directory.append([draft(dense(1, features=5))])[0]
        assert isinstance(refused, errors.WidthMismatch)
        again = directory.append([draft(dense(0, features=4), key="k")])[0]
        assert again == Receipt(0, 20, True)


def test_a_view_of_anything_but_bytes_is_kept_as_bytes(tmp_path: Path) -> None:
    sent = body(dense(0))
    sent += bytes(-len(sent) % 8)
    with opened(tmp_path) as directory:
        directory.append([rows_draft(memoryview(sent).cast("Q").toreadonly())])
        assert [(e.body, e.intact) for e in directory.log.read(-1)] == [(sent, True)]
        directory.log.verify()


def test_a_model_whose_parameters_an_earlier_release_took_fails_by_name_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {}), odd=("pca", {})) as directory:
        put(directory, dense(0))
        directory.table.remove(directory.model("odd").id)
        directory.table.add("odd", Spec("pca", {"n_components": -1}), 0)
    for _ in range(2):
        with opened(tmp_path) as directory:
            failure = directory.model("odd").failure
            assert failure is not None
            assert (failure.code, "n_components=-1" in failure.message) == ("invalid_parameter", True)
            put(directory, dense(1))
            backfill(directory, list(directory.models.values()), directory.position)
            assert directory.model("m").rows == 20 * (directory.position + 1)


def test_what_was_taken_before_is_read_whatever_the_limits_are_now(tmp_path: Path) -> None:
    rows = [{f"k{i % 7}": "a", "n": i} for i in range(20)]
    with opened(tmp_path, m=("lda", {"gamma": 1.0, "feature_map": stream_dr.table()})) as directory:
        directory.append([rows_draft(orjson.dumps({"rows": rows, "labels": ["a", "b"] * 10}), "json")])
    with Directory(tmp_path, limits=SMALL._replace(max_json_bytes=10, max_body_bytes=10)) as again:
        backfill(again, [again.model("m")], 0)
        assert again.model("m").rows == 20


def test_only_its_user_may_read_a_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    shared.chmod(0o755)
    (tmp_path / "rows.csv").write_text("a,y\n" + "1,u\n2,v\n" * 20)
    code = """
import contextlib, os, stream_dr
from stream_dr.cli import main
os.umask(0)
for command in (
    "learn rows.csv --label y --dir new",
    "learn rows.csv --label y --dir shared",
    "backup new copy",
    "convert rows.csv --out shards --label y",
):
    with contextlib.suppress(SystemExit):
        main(command.split())
stream_dr.save(stream_dr.PCA(), "pca.model")
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)

    for name in ("new", "shared", "copy"):
        parts = list((tmp_path / name).rglob("*"))
        assert {part.suffix for part in parts} >= {".sqlite", ".safetensors", ".arrow", ".json"}
        for part in parts:
            assert part.stat().st_mode & 0o777 == (0o700 if part.is_dir() else 0o600), part
    assert (tmp_path / "new").stat().st_mode & 0o777 == (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert shared.stat().st_mode & 0o777 == 0o755

    # What a user asks for is as the user's umask, which is 0 here, says.
    for path in (tmp_path / "pca.model", *(tmp_path / "shards").iterdir()):
        assert path.stat().st_mode & 0o777 == 0o666, path
