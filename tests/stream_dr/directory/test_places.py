"""Moved shards: a replay from the new place, and all that is read afterwards is read from there."""

import json
import shutil
from pathlib import Path

import pytest

from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.directory.references import PLACES
from stream_dr.directory.verify import verify
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.refine import refine_model
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from tests.support.batches import SMALL, shards

MODELS = {"lda": {"gamma": 1.0, "scatter": "diagonal"}, "ccipca": {}}


class Stop(BaseException):
    """Ends a replay where a watcher says."""


def run(path: Path, folder: Path, stop: bool = False, **late: str) -> dict[str, str]:
    """Replay; stopped after the first batch where asked. Each model's state."""

    def watch(progress: object) -> None:
        if stop:
            raise Stop

    with Directory(path, limits=SMALL) as directory:
        for name, params in MODELS.items():
            directory.add_model(name, name, params)
        for name, key in late.items():
            directory.add_model(name, key, {})
        replay(directory, open_dataset(folder), ReplaySettings(), watch)
        return {name: state_sha256(m.accumulator.freeze()) for name, m in directory.models.items()}


def found_wrong(path: Path) -> list[str]:
    return [str(finding.error) for finding in verify(path) if finding.error is not None]


def test_a_stopped_replay_goes_on_from_another_place(tmp_path: Path) -> None:
    # Groups of 4 and 8 batches are in the log when it stops, and they end within a shard.
    folder = shards(tmp_path / "old", blocks=20, batches_per_shard=5)
    expected = run(tmp_path / "whole", folder, late="class_means")
    with pytest.raises(Stop):
        run(tmp_path / "d", folder, stop=True)
    folder.rename(tmp_path / "new")
    assert run(tmp_path / "d", tmp_path / "new", late="class_means") == expected
    assert found_wrong(tmp_path / "d") == []


def test_refine_reads_from_the_new_place(tmp_path: Path) -> None:
    folder = shards(tmp_path / "old")
    run(tmp_path / "d", folder)
    folder.rename(tmp_path / "new")
    with Directory(tmp_path / "d", limits=SMALL) as directory, pytest.raises(errors.SourceMissing, match="replay it"):
        refine_model(directory, directory.model("lda"), 1e-6, 20)
    run(tmp_path / "d", tmp_path / "new")
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        assert refine_model(directory, directory.model("lda"), 1e-6, 20).projection.solution == "refined"
    assert (tmp_path / "d" / PLACES).stat().st_size > 0


def test_unlearning_rebuilds_from_the_new_place(tmp_path: Path) -> None:
    folder, states = shards(tmp_path / "old"), []
    for name in ("before", "after"):
        run(tmp_path / name, folder)
    for name in ("before", "after"):
        if name == "after":
            folder = folder.rename(tmp_path / "new")
            run(tmp_path / name, folder)
        with Directory(tmp_path / name, limits=SMALL) as directory:
            directory.append([unlearn_draft({3: None})])
        states.append(run(tmp_path / name, folder))
    assert states[0] == states[1]


def test_moved_once_more_and_back(tmp_path: Path) -> None:
    folder = shards(tmp_path / "a")
    run(tmp_path / "d", folder)
    assert not (tmp_path / "d" / PLACES).exists()
    for number, place in enumerate(("b", "c", "a")):
        folder = folder.rename(tmp_path / place)
        run(tmp_path / "d", folder, **{f"late{number}": "pca"})
    assert found_wrong(tmp_path / "d") == []


def test_other_bytes_in_the_old_place_are_passed_over(tmp_path: Path) -> None:
    folder = shards(tmp_path / "old")
    run(tmp_path / "d", folder)
    shutil.copytree(folder, tmp_path / "new")
    victim = sorted(folder.glob("*.arrow"))[0]
    victim.write_bytes(victim.read_bytes()[:-9] + b"different")
    assert len(found_wrong(tmp_path / "d")) == 1
    run(tmp_path / "d", tmp_path / "new", late="class_means")
    assert found_wrong(tmp_path / "d") == []
    copy = tmp_path / "new" / victim.name
    copy.write_bytes(b"neither")
    assert str(copy) in "".join(found_wrong(tmp_path / "d"))


@pytest.mark.parametrize("text", ["", "{}", "[1]", json.dumps({"stream_dr": "places", "format": 9, "shards": {}})])
def test_a_table_that_cannot_be_read_is_named_and_written_anew(tmp_path: Path, text: str) -> None:
    folder = shards(tmp_path / "old")
    run(tmp_path / "d", folder)
    (tmp_path / "d" / PLACES).write_text(text)
    folder.rename(tmp_path / "new")
    assert all(PLACES in said for said in found_wrong(tmp_path / "d"))
    run(tmp_path / "d", tmp_path / "new")
    assert found_wrong(tmp_path / "d") == []


def test_a_damaged_manifest_at_the_old_place_is_passed_over(tmp_path: Path) -> None:
    folder = shards(tmp_path / "old")
    expected = run(tmp_path / "whole", folder, late="class_means")
    run(tmp_path / "d", folder)
    shutil.copytree(folder, tmp_path / "new")
    (folder / "manifest.json").write_text("{")
    assert run(tmp_path / "d", tmp_path / "new", late="class_means") == expected


def test_a_damaged_manifest_fails_a_model_until_it_is_restored(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    dataset = open_dataset(folder)
    expected = run(tmp_path / "whole", folder, late="class_means")
    run(tmp_path / "d", folder)
    whole = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text("{")
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        directory.add_model("late", "class_means", {})
        with pytest.raises(errors.ModelFailed, match="damaged_shard"):
            replay(directory, dataset, ReplaySettings())
    (folder / "manifest.json").write_text(whole)
    assert run(tmp_path / "d", folder) == expected
