"""STREAM_DR_ALLOWED_LABELS closes the set of labels of `learn` and `replay`, as it does of the service."""

from pathlib import Path

import pytest

from stream_dr.directory.directory import Directory
from tests.support.batches import shards
from tests.test_cli import Done

NAME = "STREAM_DR_ALLOWED_LABELS"


def csv(path: Path, *labels: str) -> Path:
    path.write_text("a,b,y\n" + "".join(f"{i},{(i * 7) % 5},{label}\n" for i, label in enumerate(labels)))
    return path


def test_learn_refuses_other_labels_and_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, wrong = (
        csv(tmp_path / "good.csv", *["yes", "no"] * 10),
        csv(tmp_path / "wrong.csv", *["yes", "yse", "no"] * 7),
    )
    options = ("--label", "y", "--dir", tmp_path / "d", "--model", "lda=lda")
    monkeypatch.setenv(NAME, '["yes", "no"]')
    done = Done(capsys, "learn", good, *options)
    assert done.status == 0, done.err
    for setting in ('["yes", "no"]', ""):  # the set is written down with the rows
        monkeypatch.setenv(NAME, setting)
        done = Done(capsys, "learn", wrong, *options)
        assert done.status == 1
        assert "'yse' (did you mean 'yes'?); this stream's labels are 'yes', 'no' (allowed_labels)" in done.err
    with Directory(tmp_path / "d", writable=False) as directory:
        assert (directory.rows, directory.schema.labels) == (20, ("yes", "no"))
    monkeypatch.setenv(NAME, "[]")
    assert Done(capsys, "learn", wrong, *options).status == 0


@pytest.mark.parametrize("parts", [(), ("--workers", 2)], ids=["in order", "in parts"])
def test_replay_refuses_other_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, parts: tuple[object, ...]
) -> None:
    options = ("--dir", tmp_path / "d", "--model", "lda=lda", *parts)
    monkeypatch.setenv(NAME, '["a", "b"]')
    done = Done(capsys, "replay", shards(tmp_path / "s"), *options)
    assert done.status == 1
    assert "'c'" in done.err
    assert "this stream's labels are 'a', 'b' (allowed_labels)" in done.err
    monkeypatch.setenv(NAME, '["a", "b", "c"]')
    assert Done(capsys, "replay", tmp_path / "s", *options).status == 0
    with Directory(tmp_path / "d", writable=False) as directory:
        assert directory.schema.allowed_labels == ("a", "b", "c")


@pytest.mark.parametrize("setting", ["a,b", '{"a": 1}', '"a"', '["a", 1]'])
def test_a_setting_that_is_no_list_of_labels_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv(NAME, setting)
    done = Done(capsys, "learn", csv(tmp_path / "x.csv", "yes", "no"), "--label", "y", "--dir", tmp_path / "d")
    assert done.status == 1
    assert (NAME if setting != '["a", 1]' else "all strings, all integers or all bools") in done.err
