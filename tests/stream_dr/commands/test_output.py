"""Progress: plain lines where there is no terminal, only for what takes longer than a second, never on stdout."""

import pytest

from stream_dr.commands import output


def test_lines_come_after_a_second_then_after_twice_the_time(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    with output.Bar("replay", 1_000) as bar:
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


def test_a_quick_command_is_silent_and_an_unknown_total_is_not_told(capsys, monkeypatch) -> None:
    with output.Bar("convert", None) as bar:
        bar.show(10, 10)
        assert capsys.readouterr().err == ""
        begun = output.time.monotonic()
        monkeypatch.setattr(output.time, "monotonic", lambda: begun + 2.0)
        bar.show(3_000, 3_000)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("convert: 3,000 rows, 1,")
    assert line.endswith("rows/s")
