"""Every option is checked before the first row is read: beside a file that cannot be read, the option is what is named."""

from pathlib import Path

import pytest

from tests.support.batches import shards
from tests.test_cli import Done

LEARN = "learn bad.csv --label y --dir D"
EVALUATE = "evaluate bad.csv --label y --model a=lda"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("a,b,y\n1,2,u\n1\n")
    Path("bad.svm").write_text("x x\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{LEARN} --model a=nothing", "no estimator is called 'nothing'"),
        (f"{LEARN} --model a=lda:gamma=-1", "gamma=-1"),
        (f"{LEARN} --model a=lda:oops=1", "no parameter 'oops'"),
        (f"{LEARN} --model nonsense", "give NAME=KEY"),
        (f"{LEARN} --model a/b=lda", "model name 'a/b'"),
        (f"{LEARN} --model a=lda --model a=pca", "two models are called 'a'"),
        (f"{LEARN} --model a=none.safetensors", "none.safetensors is not a file"),
        (f'{LEARN} --model a=lda:feature_map={{"map":"what"}}', "whose 'map' is one of"),
        (f"{LEARN} --impute x", "give mean or a number"),
        (f"{LEARN} --impute inf", "must be 'mean' or a finite number"),
        (f"{LEARN} --as a=what", "COLUMN=KIND"),
        (f"{LEARN} --targets a", "more than one of label, labels and target"),
        (f"{LEARN} --delimiter xx", "delimiter='xx'"),
        (f"{LEARN} --decimal xx", "decimal='xx'"),
        (f"{LEARN} --encoding what", "encoding='what'"),
        (f"{LEARN} --format excel", "no format 'excel'"),
        (f"{LEARN} --topics x", "option topics says nothing about csv"),
        (f"{LEARN} bad.svm", "option label says nothing about libsvm"),
        (f"{LEARN} bad.csv --name x", "--name"),
        (f"{LEARN} -o z.txt", "name a .parquet, .arrow, .csv or .npz"),
        ("learn bad.csv --label y --dir bad.csv", "is a file"),
        ("learn bad.csv --label y", "--dir"),
        ("learn bad.svm --target what --dir D", "target='what'"),
        ("replay bad.csv --label y --dir D", "D has no model yet"),
        ("replay bad.csv --label y --dir D --model a=nothing", "no estimator is called 'nothing'"),
        ("replay bad.csv --label y --dir D --model a=lda --workers 2", "workers read shards alone"),
        ("evaluate bad.csv --label y", "name at least one model"),
        ("evaluate bad.csv --label y --model a=nothing", "no estimator is called 'nothing'"),
        (f"{EVALUATE} --probes mean,what", "no probe what; probes are mean, knn, linear"),
        (f"{EVALUATE} --curve no/x.csv", "no folder no"),
        (f"{EVALUATE} --test bad.svm", "option label says nothing about libsvm"),
        ("suggest bad.csv --label y --targets a", "more than one of label, labels and target"),
        ("convert bad.csv --label y --out s", "s holds shards already"),
        ("transform d bad.csv --model nope -o x.csv", "no model is called 'nope'"),
        ("transform d bad.csv --model a -o x.txt", "name a .parquet, .arrow, .csv or .npz"),
        ("plot nowhere -o x.foo", "ends in '.foo'"),
        ("plot nowhere -o no/x.html", "no folder no"),
        ("report nowhere -o x.foo", "ends in '.foo'"),
        ("report nowhere -o no/x.html", "no folder no"),
    ],
)
def test_an_option_is_checked_before_a_row_is_read(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    if " d " in line or " s" in line:
        Done(capsys, "replay", shards(Path("s"), blocks=1), "--dir", "d", "--model", "a=class_means")
    done = Done(capsys, *line.split())
    told = " ".join(done.err.replace("│", " ").split())
    assert done.status in (1, 2)
    assert says in told
    assert "line " not in told
    assert not Path("D").exists()
