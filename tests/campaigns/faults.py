"""Single faults on directories: each is named, repaired or harmless; none is silent.

    python -m tests.campaigns.faults [--runs 2000] [--seed S] [--resume FILE] [--keep DIR]

A fault is done to a copy of one of three directories (rows, with an unlearning and what a kill leaves; references to shards;
many small files, old events dropped): bytes flipped, zeroed, cut off, added or taken from a file as it was before; files
removed, exchanged, doubled, emptied, made a folder; fields of SQLite's rows changed, rows removed (of events and schema
changes not the oldest, as retention does); in half of the runs as if it had been there always, in half as if the directory
were a copy. Then, in a process of its own, it is verified, opened for writing, its models are brought up, and every event,
key and state is compared with what the whole directory says. What comes out is "named" (an error of ours, or the system's,
in the place of what it should be, or by `verify`), "repaired" (`verify` named it, and all is as it should be nevertheless)
or "harmless". Exits 1 where one was "silent" (something else, without an error), "raw" (an error that is not ours), or ended
or stopped the process; those are kept in DIR.
"""

import argparse
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from stream_dr import Directory, Limits, errors
from stream_dr.directory.draft import unlearn_draft
from stream_dr.directory.verify import verify
from stream_dr.log.head import HeadFile
from stream_dr.log.log import Log
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.driver import RunSettings
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from tests.support import record
from tests.support.batches import SMALL, dense, draft, shards

HARM = ("silent", "raw", "ended", "hangs")
SECONDS = 60
Told = dict[str, Any]


class Named(str):
    """The error in the place of what something should be."""


def bases(folder: Path) -> list[Path]:
    """The directories, and beside each, as NAME.before, what it was earlier."""
    return [_rows(folder / "rows"), _references(folder / "references"), _dropped(folder / "dropped")]


def _rows(path: Path) -> Path:
    with Directory(path / "D", limits=SMALL) as directory:
        _fill(directory, 12, {"lda": "lda", "pca": "ccipca", "means": "class_means"})
        shutil.copytree(path, path.with_name("rows.before"))
        directory.append([unlearn_draft({2: [1, 3], 4: None})])
        _fill(directory, 8, {})
        directory.retention.erase_unlearned_rows()
        directory.append([draft(dense(90), "unapplied")])
        killed = shutil.copytree(path, path.with_name("killed"))
    shutil.rmtree(path)
    return killed.rename(path)


def _references(path: Path) -> Path:
    with Directory(path / "D", limits=SMALL) as directory:
        directory.add_model("lda", "lda", {})
        for number in range(2):
            replay(
                directory,
                open_dataset(shards(path / f"shards{number}", 6)),
                ReplaySettings(run=RunSettings(snapshot_rows=50)),
            )
            if not number:
                shutil.copytree(path, path.with_name("references.before"))
        _fill(directory, 2, {"later": "pca"})
    return path


def _dropped(path: Path) -> Path:
    initialise = Log.__init__
    Log.__init__ = lambda self, *args, **more: initialise(self, *args, max_file_bytes=2_000, **more)  # type: ignore[method-assign]
    try:
        with Directory(path / "D", limits=SMALL) as directory:
            _fill(directory, 20, {"lda": "lda", "means": "class_means"})
            shutil.copytree(path, path.with_name("dropped.before"))
            _fill(directory, 20, {})
            directory.retention.drop_unneeded_events(100)
    finally:
        Log.__init__ = initialise  # type: ignore[method-assign]
    return path


def _fill(directory: Directory, batches: int, models: dict[str, str]) -> None:
    """Append batches; models are made, learn them, and are snapshotted twice."""
    for name, key in models.items():
        directory.add_model(name, key, {})
    for number in range(batches):
        seed = directory.position + 1
        directory.append([draft(dense(seed, ids=[f"{seed}-{row}" for row in range(20)]), f"key-{seed}")])
        if number in (batches // 2, batches - 1):
            for model in directory.models.values():
                backfill(directory, [model], directory.position)
                write_snapshot_if_needed(model, model.freeze(), directory.path)


def look(path: Path) -> Told:
    """All that a directory says, by what it is about; Named where that is an error."""
    told: Told = {}
    try:
        with Directory(path, limits=Limits(min_free_bytes=0)) as directory:
            log = directory.log
            told["ends"] = (log.first, log.last, log.rows_appended)
            told["schema"] = _or_named(directory.schema.describe)
            for position in range(log.first, log.last + 1):
                told[f"event {position}"] = _or_named(lambda p: _event(log, p), position)
            for number in range(40):
                told[f"key {number}"] = _or_named(log.find_key, f"key-{number}")
            for name, model in directory.models.items():
                told[f"model {name}"] = _or_named(_state, directory, model)
            told["append"] = _or_named(_appended, directory)
    except (errors.StreamDRError, OSError) as e:
        return {"directory": Named(e)}
    return told


def _appended(directory: Directory) -> Any:
    (result,) = directory.append([draft(dense(99), "new")])
    if isinstance(result, Exception):
        raise result
    return result


def _event(log: Log, position: int) -> Any:
    (event,) = log.read(position - 1, position)
    return event if event.intact else Named("not intact")


def _state(directory: Directory, model: Any) -> Any:
    if model.failure is None:
        backfill(directory, [model], directory.position - 0)
    if model.failure is not None:
        return Named(model.failure)
    return (model.spec, model.start, model.position, state_sha256(model.accumulator.freeze()))


def _or_named(get: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return get(*arguments)
    except (errors.StreamDRError, OSError) as e:
        return Named(e)


def judged(path: Path, truth: Told) -> str:
    """What became of a fault."""
    found = [finding for finding in verify(path / "D") if finding.error]
    told = look(path / "D")
    if any(isinstance(value, Named) for value in told.values()):
        wrong = [k for k in told if not isinstance(told[k], Named) and told[k] != truth.get(k) and k != "append"]
        return f"silent beside what is named: {wrong}" if wrong and not found else "named"
    wrong = sorted(k for k in truth.keys() | told.keys() if told.get(k) != truth.get(k))
    if wrong:
        return "named" if found else f"silent: {wrong[:5]} {[(told.get(k), truth.get(k)) for k in wrong[:1]]}"[:600]
    return "repaired" if found else "harmless"


def fault(draw: random.Random, path: Path, before: Path) -> str:
    """Do one thing to a directory, and tell what."""
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.stat().st_size and p.name != "lock")
    tables = [p for p in files if p.name == "index.sqlite"]
    if draw.random() < 0.25:
        return _row(draw, draw.choice(tables))
    victim = draw.choice(files if draw.random() < 0.6 else [*tables, *path.rglob("*.bodies")])
    how = draw.choice((_bytes, _bytes, _bytes, _file, _older))
    return f"{victim.relative_to(path)}: {how(draw, victim, path, before)}"


def _bytes(draw: random.Random, victim: Path, path: Path, before: Path) -> str:
    content = bytearray(victim.read_bytes())
    at, many = draw.randrange(len(content)), draw.choice((1, 8, 512, 4096))
    match draw.randrange(6):
        case 0 | 1:
            content[at] ^= 1 << draw.randrange(8)
        case 2:
            at -= at % min(many, 512)
            content[at : at + many] = bytes(len(content[at : at + many]))
        case 3:
            content[at : at + many] = draw.randbytes(len(content[at : at + many]))
        case 4:
            del content[draw.choice((at, len(content) - 1, len(content) // 2)) :]
        case _:
            content += draw.choice((bytes(many), draw.randbytes(many), content[-many:]))
    victim.write_bytes(content)
    return f"bytes at {at}"


def _file(draw: random.Random, victim: Path, path: Path, before: Path) -> str:
    alike = [p for p in path.rglob(f"*{victim.suffix}") if p != victim and p.is_file()]
    match draw.randrange(6):
        case 0 | 1:
            victim.unlink()
            return "removed"
        case 2 if alike:
            other = draw.choice(alike)
            content = other.read_bytes()
            other.write_bytes(victim.read_bytes())
            victim.write_bytes(content)
            return f"exchanged with {other.name}"
        case 3:
            victim.write_bytes(b"")
            return "emptied"
        case 4:
            victim.unlink()
            victim.mkdir()
            return "a folder"
        case _:
            name = f"{draw.randrange(60):020d}{victim.suffix}"
            other = name if victim.name[:1].isdigit() and name != victim.name else f"{victim.name}.copy"
            shutil.copy(victim, victim.with_name(other))
            return f"doubled as {other}"


def _older(draw: random.Random, victim: Path, path: Path, before: Path) -> str:
    """The file, or a part of it, as it was before."""
    was = before / victim.relative_to(path)
    if not was.is_file():
        return _bytes(draw, victim, path, before)
    old, new = was.read_bytes(), victim.read_bytes()
    at = 512 * draw.randrange(1 + len(old) // 512)
    victim.write_bytes(old if draw.random() < 0.6 else new[:at] + old[at : at + 4096] + new[at + 4096 :])
    return "as it was before"


def _row(draw: random.Random, table: Path) -> str:
    """A field of a row changed, or the row removed, by SQLite."""
    with closing(sqlite3.connect(table, isolation_level=None)) as db:
        names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'") if n[:6] != "sqlite"]
        name = draw.choice(names)
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        rows = db.execute(f"SELECT {columns[0]} FROM {name} ORDER BY {columns[0]}").fetchall()
        if not rows:
            return "nothing"
        key, column = draw.choice(rows)[0], draw.choice(columns)
        # A whole row of the models counts as a model that was removed.
        if draw.random() < 0.3 and name != "models" and (name in ("files", "keys") or key != rows[0][0]):
            db.execute(f"DELETE FROM {name} WHERE {columns[0]}=?", (key,))
            return f"{table.name}: {name} {key!r} removed"
        value = draw.choice((None, 0, 1, -1, 2**40, "", "x", b"x", f"key-{draw.randrange(40)}", draw.randrange(40)))
        try:
            db.execute(f"UPDATE {name} SET {column}=? WHERE {columns[0]}=?", (value, key))
        except sqlite3.IntegrityError:
            return "nothing"
    return f"{table.name}: {column} of {name} {key!r} is {value!r}"


def one(number: int, seed: int, bases: list[Path], truths: list[Told], work: Path) -> tuple[str, str]:
    """A fault, and what became of it, in a process of its own."""
    draw = random.Random(f"{seed}:{number}")
    chosen = number % len(bases)
    shutil.rmtree(work, ignore_errors=True)
    shutil.move(bases[chosen], moved := bases[chosen].with_name("moved"))  # shards are where their events say
    try:
        shutil.copytree(moved, bases[chosen])
        log = bases[chosen] / "D" / "log"
        if draw.random() < 0.5:
            head = HeadFile(log, writable=True)
            head.try_store_inode(log / "index.sqlite")
            head.close()
        what = fault(draw, bases[chosen], moved.with_name(f"{bases[chosen].name}.before"))
        shutil.copytree(bases[chosen], work)
        return what, _forked(lambda: judged(bases[chosen], truths[chosen]))
    finally:
        shutil.rmtree(bases[chosen])
        shutil.move(moved, bases[chosen])


def _forked(act: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.alarm(SECONDS)
        try:
            said = act()
        except Exception as e:
            said = f"raw: {type(e).__name__}: {e}"
        os.write(writing, said.encode("utf8", "replace")[:4_000])
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf8") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "hangs" if status == -signal.SIGALRM else f"ended with {status}" if status else said


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path)
    options = record.options(parser, runs=2_000)
    done = record.Record(options)
    with tempfile.TemporaryDirectory() as folder:
        found = bases(Path(folder))
        truths = []
        for path in found:
            moved = shutil.copytree(path, Path(folder) / "truth")
            truths.append(look(moved / "D"))
            shutil.rmtree(moved)
        work = Path(folder) / "work"
        while done.done < done.runs:
            counts: Counter[str] = Counter()
            for number in range(done.done, stop := min(done.done + 100, done.runs)):
                what, said = one(number, done.seed, found, truths, work)
                counts[said.split(":")[0].split(" ")[0]] += 1
                if said.startswith(HARM):
                    print(f"fault {number}, {found[number % len(found)].name}: {what}: {said}", flush=True)
                    if options.keep is not None:
                        shutil.copytree(work, options.keep / str(number), dirs_exist_ok=True)
            done.add(stop, counts)
    print(done.told())
    sys.exit(any(name in HARM for name in done.counts))


if __name__ == "__main__":
    main()
