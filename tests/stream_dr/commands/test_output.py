"""Progress: plain lines where there is no terminal, only for what takes longer than a second, never on stdout."""

from pathlib import Path

import pytest

from stream_dr.cli import main
from stream_dr.commands import output


def test_lines_come_after_a_second_then_after_twice_the_time(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    with output.ProgressBar("replay", 1_000) as bar:
        for second in range(1, 11):
            now = 100.0 + second - 0.5
            bar.show(100 * second, 1_000, "1 of 2 shards")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "replay: 200 of 1,000 rows (20 %), 133 rows/s, 6 s left, 1 of 2 shards",
        "replay: 400 of 1,000 rows (40 %), 114 rows/s, 5 s left, 1 of 2 shards",
        "replay: 800 of 1,000 rows (80 %), 107 rows/s, 2 s left, 1 of 2 shards",
    ]


def test_another_title_begins_the_clock_again(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    with output.ProgressBar("suggest", None) as bar:
        now = 150.0
        bar.show(0, 1_000, title="learn")
        now = 152.0
        bar.show(500, 1_000, title="learn")
    assert capsys.readouterr().err.splitlines() == ["learn: 500 of 1,000 rows (50 %), 250 rows/s, 2 s left"]


def test_a_quick_command_is_silent_and_an_unknown_total_is_not_told(capsys, monkeypatch) -> None:
    with output.ProgressBar("convert", None) as bar:
        bar.show(10, 10)
        assert capsys.readouterr().err == ""
        begun = output.time.monotonic()
        monkeypatch.setattr(output.time, "monotonic", lambda: begun + 2.0)
        bar.show(3_000, 3_000)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("convert: 3,000 rows, 1,")
    assert line.endswith("rows/s")


def test_control_characters_are_written_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    told = "a\x1b]0;title\x07\tb\nc\x9bd\x7f é \r"
    shown = "a\\x1b]0;title\\x07\tb\nc\\x9bd\\x7f é \\r"
    assert output.escape_controls(told) == shown
    output.print_result(told)
    output.say("x\x1b[31m")
    said = capsys.readouterr()
    assert (said.out, said.err) == (shown + "\n", "x\\x1b[31m\n")


def test_the_names_of_a_file_reach_the_terminal_as_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},{i % 7},{'no' if i % 2 else 'yes'}\n" for i in range(40))
    Path("rows.csv").write_text("first\x1b[31m,second,label\n" + rows)
    (tmp_path / "odd\x1b[2J.csv").write_text("nothing")
    for words in (
        ["learn", "rows.csv", "--dir", "D", "--model", "m=lda", "--label", "label"],
        ["learn", "odd\x1b[2J.csv", "--dir", "D"],
        ["learn", "missing\x1b[2J.csv", "--dir", "D"],
        ["inspect", "D"],
    ):
        with pytest.raises(SystemExit):
            main(words)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\x1b[2J" in said.err
