"""The command line: results on stdout, messages on stderr; exit status 0, 1 with a code, or 2; each command has its help."""

import ast
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import stream_dr
from stream_dr.cli import COMMANDS, main, make_app
from stream_dr.commands.specs import parse_model_spec, parse_param_value
from stream_dr.shards.dataset import ShardWriter, open_dataset
from tests.support.batches import dense, shards, sparse


def told(err: str) -> str:
    """Return what stderr says besides compiling, progress of a slow moment, and scores on rows not learned yet."""
    expected = r"compiling for |.*/s(,|$)|note: \w+ on [\d,]+ rows that it had not learned: accuracy "
    return "".join(line for line in err.splitlines(True) if not re.match(expected, line))


class Done:
    """What a command line ended with."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        self.status = ended.value.code
        self.out, self.all_err = capsys.readouterr()
        self.err = told(self.all_err)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shards(tmp_path / "shards", blocks=6)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, command, "--help")
    assert done.status == 0
    assert "Usage" in done.out
    assert len(done.out.splitlines()) > 8


def test_help_of_all_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    listed = Done(capsys, "--help")
    assert listed.status == 0
    assert all(command in listed.out for command in COMMANDS)
    assert Done(capsys).status == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["replay"],
        ["replay", "x", "--dir", "y", "--loops", "0"],
        ["replay", "x", "--dir", "y", "--model", "nonsense"],
        ["replay", "x", "--dir", "y", "--model", "a=lda:oops"],
        ["transform", "d", "s"],
        ["inspect"],
        ["inspect", "d", "--what"],
    ],
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, *arguments)
    assert done.status == 2
    assert done.out == ""
    assert done.err


def test_errors_have_a_code(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, *arguments in [
        ("directory_missing", "inspect", tmp_path / "none"),
        ("directory_missing", "verify", tmp_path / "none"),
        ("source_missing", "replay", tmp_path / "none", "--dir", tmp_path / "d"),
        ("unknown_estimator", "replay", folder, "--dir", tmp_path / "d", "--model", "a=nothing"),
        ("invalid_parameter", "replay", folder, "--dir", tmp_path / "d", "--model", "a=lda:gamma=-1"),
    ]:
        done = Done(capsys, *arguments)
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"error ({code}): ")


@pytest.mark.test_all
def test_from_shards_to_projected_rows(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = tmp_path / "d"
    done = Done(capsys, "replay", folder, "--dir", d, "--model", "lda=lda:n_components=2", "--model", "pc=ccipca")
    assert (done.status, told(done.err)) == (0, "")
    assert "lda: 120 rows, position 5" in done.out
    report = json.loads(Done(capsys, "inspect", d, "--json").out)
    assert (report["position"], report["rows"], report["models"]["lda"]["rows"]) == (5, 120, 120)
    assert {"estimator", "rows", "position", "version", "solution", "state_sha256"} <= report["models"]["pc"].keys()
    assert "lda: lda(n_components=2), live, 120 rows" in Done(capsys, "inspect", d).out

    assert Done(capsys, "transform", d, folder, "--model", "lda", "-o", tmp_path / "z.parquet").status == 0
    assert Done(capsys, "transform", d, folder, "--model", "lda", "--out", tmp_path / "z.arrow").status == 0
    found = pq.read_table(tmp_path / "z.parquet")
    assert found.equals(pa.ipc.open_file(tmp_path / "z.arrow").read_all())
    alone = stream_dr.LDA(n_components=2)
    for seed in range(6):
        alone.partial_fit(dense(seed).X, dense(seed).y)
    X = np.vstack([block.X for _, block in open_dataset(folder).events()])
    np.testing.assert_allclose(np.column_stack([found["z0"], found["z1"]]), alone.transform(X), atol=1e-12)

    assert "120 rows, 0 caught up" not in Done(capsys, "replay", folder, "--dir", d).out
    assert "lda: 240 rows" in Done(capsys, "replay", folder, "--dir", d, "--again").out
    assert "lda: 600 rows" in Done(capsys, "replay", folder, "--dir", d, "--loops", 5, "--snapshot-rows", 50).out
    assert "lda: exact already" in Done(capsys, "refine", d, "--model", "lda").out
    Done(capsys, "replay", folder, "--dir", d, "--model", "wide=lda:scatter=diagonal")
    refined = Done(capsys, "refine", d, "--model", "wide", "--tol", 1e-9, "--max-passes", 30)
    assert (refined.status, "refined at position 29" in refined.out) == (0, True)
    assert "pass 1: residual" in refined.err
    assert json.loads(Done(capsys, "inspect", d, "--json").out)["models"]["wide"]["solution"] == "refined"
    Done(capsys, "replay", folder, "--dir", d, "--again")
    assert ", refined, 120 stale rows, sha256" in Done(capsys, "inspect", d).out
    assert Done(capsys, "refine", d, "--model", "pc").err.startswith("error (cannot_refine)")
    verified = Done(capsys, "verify", d)
    assert (verified.status, verified.err) == (0, "")
    assert all(line.endswith(": ok") for line in verified.out.splitlines())


def test_verify_names_what_is_damaged(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = tmp_path / "d"
    Done(capsys, "replay", folder, "--dir", d, "--model", "cm=class_means")
    (snapshot,) = (d / "snapshots/cm.1").iterdir()
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    done = Done(capsys, "verify", d)
    assert done.status == 1
    assert done.err.startswith("error (damaged_file): ")
    assert "log of 6 events: ok" in done.out


def test_backup_and_restore(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d, out, back = tmp_path / "d", tmp_path / "out", tmp_path / "back"
    Done(capsys, "replay", folder, "--dir", d, "--model", "cm=class_means")
    done = Done(capsys, "backup", d, out)
    assert (done.status, done.out, done.err) == (0, "", f"{out} is a copy of {d}.\n")
    assert Done(capsys, "backup", d, out).err.startswith("error (output_exists): ")
    shutil.rmtree(folder)
    done = Done(capsys, "restore", out, back)
    assert (done.status, done.out) == (0, "")
    assert done.err.startswith("shard file:")
    assert "source_missing" in done.err
    assert done.err.endswith(f"{back} is a copy of {out}.\n")
    assert Done(capsys, "inspect", back).out == Done(capsys, "inspect", d).out


def test_damaged_shards_are_told(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = sorted(folder.glob("*.arrow"))[1]
    victim.write_bytes(victim.read_bytes()[:-30])
    arguments = ["replay", folder, "--dir", tmp_path / "d", "--model", "cm=class_means"]
    refused = Done(capsys, *arguments)
    assert (refused.status, refused.err.startswith("error (damaged_shard)")) == (1, True)
    done = Done(capsys, *arguments, "--skip-damaged")
    assert (done.status, "cm: 80 rows" in done.out) == (0, True)
    assert done.err.startswith("skipped: ")
    assert victim.name in done.err


def test_no_model_yet(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("d", "empty"):
        done = Done(capsys, "replay", folder, "--dir", tmp_path / name)
        assert (done.status, "has no model yet" in done.err.replace("\n", " ")) == (2, True)


def test_what_is_refused_makes_no_directory(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = ["--dir", tmp_path / "d"]
    for arguments, status in [
        ([tmp_path / "none", *into, "--model", "a=lda"], 1),
        ([folder, *into], 2),
        ([folder, *into, "--model", "a=nothing"], 1),
        ([folder, *into, "--model", "a=lda", "--model", "b=lda:gamma=-1"], 1),
        ([folder, *into, "--model", "a=lda:alpha=1"], 1),
        ([folder, *into, "--model", "a/b=lda"], 1),
    ]:
        assert Done(capsys, "replay", *arguments).status == status
        assert not (tmp_path / "d").exists()


def test_models_must_keep_their_spec(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Done(capsys, "replay", folder, "--dir", tmp_path / "d", "--model", "m=class_means")
    done = Done(capsys, "replay", folder, "--dir", tmp_path / "d", "--model", "m=lda")
    assert (done.status, done.err.startswith("error (model_exists)")) == (1, True)


@pytest.mark.test_all
def test_a_refused_replay_leaves_no_model_behind(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = tmp_path / "wide"
    with ShardWriter(wide) as writer:
        writer.write(sparse(0, features=20_000))
    into = ["--dir", tmp_path / "d"]
    refused = Done(capsys, "replay", wide, *into, "--model", "pc=ccipca", "--model", "wmv=wmv:scatter=exact")
    assert refused.status == 1
    assert Done(capsys, "replay", wide, *into, "--model", "pc=ccipca", "--model", "b=lda:gamma=-1").status == 1
    assert Done(capsys, "replay", wide, *into, "--model", "pc=ccipca").status == 0
    assert Done(capsys, "replay", tmp_path / "none", *into, "--model", "p=pca").status == 1
    assert list(json.loads(Done(capsys, "inspect", tmp_path / "d", "--json").out)["models"]) == ["pc"]


def test_where_nothing_is_tested_it_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "evaluate", folder, "--models", "lda=lda", "--json")
    assert "--first=500" in done.err
    assert all(score["accuracy"] is None and score["rows"] == 0 for score in json.loads(done.out))
    tested = Done(capsys, "evaluate", folder, "--models", "lda=lda", "--first", 40)
    assert "--first" not in tested.err


def test_version_completion_and_where_the_directory_is_named(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Done(capsys, "--version").out == f"stream-dr {stream_dr.__version__}\n"
    assert "--install-completion" in Done(capsys, "--help").out
    monkeypatch.setenv("STREAM_DR_DIR", str(tmp_path / "d"))
    assert "cm: 120 rows" in Done(capsys, "replay", folder, "--model", "cm=class_means").out
    assert "120 rows" in Done(capsys, "inspect").out
    assert Done(capsys, "verify").status == 0


def test_ctrl_c_ends_with_130_and_leaves_nothing_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("a,y\n" + "1,2\n" * 5_000)
    given = ["a.csv", "--label", "y"]
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with monkeypatch.context() as pressed:
        pressed.setattr("stream_dr.shards.folder.write_manifest", lambda *_: signal.raise_signal(signal.SIGINT))
        for command, does in [
            (["convert", *given, "--out", "out"], "starts from scratch"),
            (["learn", *given, "--dir", "d", "--model", "m=class_means"], "continues where it stopped"),
        ]:
            done = Done(capsys, *command)
            assert (done.status, done.out) == (130, "")
            assert done.err.endswith(f"error (interrupted): stopped before the end; the same command {does}.\n")
    signal.signal(signal.SIGINT, before)
    assert not list((tmp_path / "out").iterdir())
    assert not (tmp_path / "d").exists()
    assert Done(capsys, "convert", *given, "--out", "out").status == 0
    assert Done(capsys, "learn", *given, "--dir", "d", "--model", "m=class_means").status == 0


OPTIONS = {
    name: {"--help", *(o for p in command.params for o in (*p.opts, *p.secondary_opts))}
    for name, command in typer.main.get_command(make_app()).commands.items()  # type: ignore[attr-defined]
}
READ_FILES = {name for name, options in OPTIONS.items() if "--delimiter" in options}


def options_without_a_home(text: str, commands: Iterable[str]) -> set[str]:
    """The options named in a message that neither each of the commands has, nor a command that the message names."""
    named = [there for name, there in OPTIONS.items() if re.search(rf"\b{name}\b", text)]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) - {"--version", "--verbose"}
    everywhere = set.intersection(*(OPTIONS[command] for command in commands))
    return {option for option in options - everywhere if not any(option in there for there in named)}


def strings(node: ast.AST) -> Iterator[str]:
    """All strings below a node of the source; of an f-string what stands around its values."""
    if isinstance(node, ast.JoinedStr):
        yield "…".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def test_every_option_that_a_message_names_is_there() -> None:
    """A message of a command names its own options; one of the library those of all that read files, or a command."""
    folder = Path(stream_dr.__file__).parent
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf8")
        commands = {"specs": {"learn", "replay"}}.get(path.stem, READ_FILES)
        if path.parent.name == "commands" and path.stem in OPTIONS:
            commands = {path.stem}
        for message in filter(re.compile(" .*--").search, strings(ast.parse(text))):
            message = re.sub(r"python benchmarks/.*", "", message)
            assert not options_without_a_home(message, commands), (path, message)


@pytest.mark.test_all
def test_what_a_command_says_of_a_table_names_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i},{'fm'[i % 2]},{'' if i % 5 else i},{'uv'[i % 3 == 0]},{'long' * 150}" for i in range(2_000)]
    (tmp_path / "t.csv").write_text("\n".join(["n,sex,age,y,same", *rows, "x,f,1,u,"]) + "\n")
    for command, *where in (("evaluate",), ("learn", "--dir", tmp_path / "d"), ("replay", "--dir", tmp_path / "e")):
        given = [command, tmp_path / "t.csv", "--label", "y", *where, "--model", "lda=lda"]
        refused = Done(capsys, *given)
        assert (refused.status, "--as" in refused.err) == (1, True), refused.err
        assert command != "learn" or {"--keep", "--drop", "--impute"} <= set(refused.err.split())
        for line in refused.err.splitlines():
            assert not options_without_a_home(line, [command]), refused.err
        done = Done(capsys, *given, "--as", "n=category", "--drop", "sex", "--drop", "age,same")
        assert done.status == 0, done.err


def test_evaluate_of_sorted_labels_shuffled_held_out_and_over_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(["a", "b", "c"], 400)
    X = rng.normal(size=(1_200, 3)) + 4 * (label[:, None] == np.array(["a", "b", "c"]))
    lines = [",".join([*map(str, x), y]) for x, y in zip(X.tolist(), label, strict=True)]
    (tmp_path / "sorted.csv").write_text("\n".join(["p,q,r,y", *lines]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(["p,q,r,y", *lines[::7]]) + "\n")
    command = ["evaluate", tmp_path / "sorted.csv", "--label", "y", "--models", "lda=lda", "--probes", "mean", "--json"]
    as_shipped = Done(capsys, *command, "--first", 100)
    assert "warning (labels_sorted)" in as_shipped.err
    mixed = Done(capsys, *command, "--first", 100, "--shuffle", "--curve", tmp_path / "curve.csv")
    assert "labels_sorted" not in mixed.err
    lda, no_change = json.loads(mixed.out)
    assert (no_change["model"], lda["accuracy"] > 0.9, 0.2 < no_change["accuracy"] < 0.5) == ("no change", True, True)
    assert no_change["rows"] == lda["rows"]
    header, first, *_ = (tmp_path / "curve.csv").read_text().splitlines()
    assert header == "rows,model,probe,tested,accuracy"
    assert first.split(",")[1:3] == ["lda", "mean"]
    held_out = json.loads(Done(capsys, *command, "--test", tmp_path / "test.csv").out)[0]
    assert (held_out["rows"], held_out["accuracy"] > 0.9) == (172, True)


@pytest.mark.test_all
@pytest.mark.parametrize("module", ["stream_dr", pytest.param("stream_dr.cli", marks=pytest.mark.test_all)])
def test_a_process_of_its_own(tmp_path: Path, folder: Path, module: str) -> None:
    command = [sys.executable, "-m", module, "replay", str(folder), "--dir", str(tmp_path / "d")]
    done = subprocess.run([*command, "--model", "cm=class_means"], capture_output=True, text=True)
    assert (done.returncode, told(done.stderr)) == (0, "")
    assert "cm: 120 rows" in done.stdout


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9", 9),
        ("-1", -1),
        ("1e-3", 1e-3),
        ("0.5", 0.5),
        ("true", True),
        ("False", False),
        ("none", None),
        ("star", "star"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_param_value(text) == value
    assert type(parse_param_value(text)) is type(value)


def test_specs() -> None:
    assert parse_model_spec("a=lda") == ("a", "lda", {})
    assert parse_model_spec("a=hsl:laplacian=star,gamma=1") == ("a", "hsl", {"laplacian": "star", "gamma": 1})
    nested = '{"map":"table","encoders":{"b":"text"},"c":[1,{"d":2}]}'
    assert parse_model_spec(f"a=lda:feature_map={nested},gamma=1").params == {
        "feature_map": {"map": "table", "encoders": {"b": "text"}, "c": [1, {"d": 2}]},
        "gamma": 1,
    }
    assert parse_model_spec("a=lda:priors=[0.2,0.8],gamma=1") == ("a", "lda", {"priors": [0.2, 0.8], "gamma": 1})


def test_a_model_goes_on_from_a_saved_estimator(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = open_dataset([folder]).shards[0].read(0)
    stream_dr.LDA().fit(first.X, first.y.targets_by_row()).save(tmp_path / "lda.safetensors")
    command = ("replay", folder, "--dir", tmp_path / "D", "--model", f"lda={tmp_path / 'lda.safetensors'}")
    assert Done(capsys, *command).out.splitlines()[1] == "lda: 140 rows, position 5, lda"
    assert Done(capsys, *command).out.splitlines()[1] == "lda: 140 rows, position 5, lda"
    missing = Done(capsys, "replay", folder, "--dir", tmp_path / "E", "--model", "lda=none.safetensors")
    assert (missing.status, (tmp_path / "E").exists()) == (1, False)
    assert missing.err.startswith("error (source_missing)")
