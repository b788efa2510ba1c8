"""URIs of object stores: what is refused, and, against a server that speaks S3, shards that are read from there."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import fs

from stream_dr.directory.directory import Directory
from stream_dr.errors import InvalidParameter
from stream_dr.models.snapshot import state_sha256
from stream_dr.shards.dataset import ShardWriter, open_dataset
from stream_dr.shards.file import RemotePath, parse_path_or_uri
from tests.support.batches import dense
from tests.support.waiting import wait_until

SECRET = "hidden-credential-4711"


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://key:{SECRET}@bucket/a",
        f"s3://{SECRET}@bucket/a",
        f"s3://bucket/a?access_key={SECRET}",
        f"abfs://account/a?client_secret={SECRET}&region=b",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidParameter, match="environment") as told:
        open_dataset(uri)
    assert SECRET not in str(told.value)


def test_a_store_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="names no store"):
        open_dataset("nothing://bucket/a")


def test_parts_of_a_uri() -> None:
    path = parse_path_or_uri("s3://bucket/a/b%20c.arrow?region=eu-west-1")
    assert isinstance(path, RemotePath)
    assert (path.name, path.suffix, str(path.parent)) == ("b c.arrow", ".arrow", "s3://bucket/a?region=eu-west-1")
    assert path.parent / "b c.arrow" == path
    assert parse_path_or_uri("file:///a%20b") == parse_path_or_uri("/a b") == Path("/a b")


GONE_SECONDS = 8
"""Time for which the server does not answer: longer than a request's timeout."""


class Store:
    """An S3 server in a process of its own, and what a client's environment says of it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.address = f"127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": f"{SECRET}-id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

        def is_listening() -> bool:
            assert self.process.poll() is None
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        wait_until(is_listening)
        self.files = fs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            scheme="http",
            endpoint_override=self.address,
            allow_bucket_creation=True,
        )
        self.files.create_dir("bucket")

    def put(self, folder: Path, place: str) -> None:
        """Copy a folder's files to a place in the bucket."""
        for file in folder.iterdir():
            with self.files.open_output_stream(f"bucket/{place}/{file.name}") as out:
                out.write(file.read_bytes())

    def run(self, *arguments: str, status: int = 0, timeout: float = 100, **environment: str) -> str:
        """Return the output of a command, of both streams."""
        command = [sys.executable, "-m", "stream_dr", *arguments]
        variables = self.environment | environment
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == status, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    pytest.importorskip("moto", reason="needs moto[server]")
    made = Store()
    yield made
    made.process.send_signal(signal.SIGCONT)
    made.process.kill()
    made.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(folder, rows_per_shard=10_000, rows_per_batch=500) as writer:
        for seed in range(80):
            writer.write(dense(seed, rows=500, features=20))
    return folder


def state(directory: Path, model: str = "lda") -> str:
    with Directory(directory, writable=False) as opened:
        return state_sha256(opened.model(model).accumulator.freeze())


@pytest.mark.test_all
def test_shards_of_a_bucket_are_learned_though_it_is_gone_for_seconds(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    store.put(folder, "s")
    store.run("replay", str(folder), "--dir", str(tmp_path / "local"), "--model", "lda=lda")

    def pause() -> None:
        wait_until(lambda: list(tmp_path.glob("d/log/*")))
        store.process.send_signal(signal.SIGSTOP)
        time.sleep(GONE_SECONDS)
        store.process.send_signal(signal.SIGCONT)

    gone = threading.Thread(target=pause, daemon=True)
    gone.start()
    begun = time.monotonic()
    store.run("replay", "s3://bucket/s", "--dir", str(tmp_path / "d"), "--model", "lda=lda")
    gone.join()
    assert time.monotonic() - begun > GONE_SECONDS
    assert state(tmp_path / "d") == state(tmp_path / "local")
    store.run("replay", "s3://bucket/s", "--dir", str(tmp_path / "d"), "--model", "pca=pca")  # from the log
    store.run("transform", str(tmp_path / "d"), "s3://bucket/s", "--model", "pca", "--out", str(tmp_path / "z.parquet"))
    for file in (f for f in tmp_path.rglob("*") if f.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file


@pytest.mark.test_all
@pytest.mark.parametrize("for_good", [False, True], ids=["stopped", "killed"])
def test_a_bucket_that_is_gone_in_mid_read_is_named_and_the_same_command_goes_on(
    folder: Path, tmp_path: Path, for_good: bool
) -> None:
    """stopped: it takes connections and does not answer until the command has ended. killed: another one takes its place."""
    pytest.importorskip("moto", reason="needs moto[server]")
    local = ["--dir", str(tmp_path / "local"), "--model", "lda=lda"]
    command = ["replay", "s3://bucket/g", "--dir", str(tmp_path / "d"), "--model", "lda=lda"]
    store = Store()
    try:
        store.put(folder, "g")
        store.run("replay", str(folder), *local)

        def lose() -> None:
            wait_until(lambda: list(tmp_path.glob("d/log/*")))
            store.process.send_signal(signal.SIGKILL if for_good else signal.SIGSTOP)

        losing = threading.Thread(target=lose, daemon=True)
        losing.start()
        assert "cannot be reached" in store.run(*command, status=1, AWS_MAX_ATTEMPTS="2")
        losing.join()

        if for_good:
            store.process.wait()
            store = Store()
            store.put(folder, "g")
        else:
            store.process.send_signal(signal.SIGCONT)
        store.run(*command)
        assert state(tmp_path / "d") == state(tmp_path / "local")
    finally:
        store.process.send_signal(signal.SIGCONT)
        store.process.kill()
        store.process.wait()


@pytest.mark.test_all
def test_parts_are_learned_by_workers_and_kept_in_a_bucket(store: Store, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs the extra [distributed]")
    store.put(folder, "t")
    where = str(tmp_path / "scheduler.json")
    dask = [sys.executable, "-m", "dask"]
    quiet = {"env": store.environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--port", "0", "--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", where]
    started = [subprocess.Popen([*dask, "scheduler", *options], **quiet)]  # type: ignore[call-overload]
    try:
        wait_until(lambda: bool(os.path.exists(where) and os.path.getsize(where)))
        options = ["--no-nanny", "--no-dashboard", "--scheduler-file", where, "--nthreads", "1"]
        started.append(subprocess.Popen([*dask, "worker", *options], **quiet))  # type: ignore[call-overload]
        address = json.loads(Path(where).read_text())["address"]
        with pytest.importorskip("distributed").Client(address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
        by_workers = ["replay", "s3://bucket/t", "--dir", str(tmp_path / "d"), "--model", "lda=lda"]
        store.run(*by_workers, "--scheduler", address)
        store.run("replay", str(folder), "--dir", str(tmp_path / "e"), "--model", "lda=lda", "--workers", "1")
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert state(tmp_path / "d") == state(tmp_path / "e")


@pytest.mark.test_all
def test_what_is_wrong_with_a_bucket_is_named(store: Store, folder: Path, tmp_path: Path) -> None:
    store.put(folder, "u")
    into = ["--dir", str(tmp_path / "d"), "--model", "lda=lda"]
    assert "s3://bucket/nothing is not there" in store.run("replay", "s3://bucket/nothing", *into, status=1)
    with store.files.open_output_stream("bucket/u/part-00001.arrow") as out:
        content = bytearray((folder / "part-00001.arrow").read_bytes())
        content[5000] ^= 1
        out.write(bytes(content))
    assert "s3://bucket/u/part-00001.arrow cannot be used" in store.run("replay", "s3://bucket/u", *into, status=1)
