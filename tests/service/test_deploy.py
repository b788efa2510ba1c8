"""The container files, and the proxy's configuration: what can be checked where no container engine runs.

Parsed: the compose file and the Dockerfile. Run: the Dockerfile's own commands for health and start, nginx where it is
installed, and, with STREAM_DR_TEST_DEPLOY=1 (minutes, needs a package index), the Dockerfile's python steps in a fresh
virtual environment. Not run: the base image, useradd, chown, the USER and VOLUME instructions, and compose itself.
"""

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

import stream_dr
from service.settings import PREFIX, Settings
from tests.service.test_heads import MIB, anonymous
from tests.support.serving import ARROW, ROOT, Process, in_thread
from tests.support.waiting import wait_until

IMAGE = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def steps(name: str) -> list[str]:
    """The arguments of every instruction of that name."""
    return [line.split(maxsplit=1)[1].strip() for line in IMAGE.splitlines() if line.startswith(f"{name} ")]


def environment() -> dict[str, str]:
    """What the image sets."""
    return dict(pair.split("=", 1) for line in steps("ENV") for pair in shlex.split(line))


def test_compose_is_one_service_with_two_volumes_and_a_token() -> None:
    (service,) = (service for service in COMPOSE["services"].values() if "profiles" not in service)
    assert list(COMPOSE["volumes"]) == ["stream", "kernels"]
    assert service["volumes"] == ["stream:/data", f"kernels:{environment()['NUMBA_CACHE_DIR']}"]
    assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert ":?" in service["environment"]["STREAM_DR_WRITE_TOKEN"]
    assert service["build"]["context"] == "."
    seconds = Settings().stop_timeout + Settings().drain_timeout
    assert int(service["stop_grace_period"].removesuffix("s")) > seconds


def test_the_profile_cluster_is_a_scheduler_on_loopback_and_workers_with_dask() -> None:
    scheduler, worker = (COMPOSE["services"][name] for name in ("scheduler", "worker"))
    assert scheduler["profiles"] == worker["profiles"] == ["cluster"]
    assert scheduler["ports"] == ["127.0.0.1:8786:8786"]
    assert "tcp://scheduler:8786" in worker["command"]
    assert scheduler["image"] == worker["image"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert scheduler["build"]["args"]["EXTRAS"].strip("[]") in project["optional-dependencies"]


def test_what_is_set_are_settings() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    given = {
        name for name in {**environment(), **COMPOSE["services"]["stream_dr"]["environment"]} if name.startswith(PREFIX)
    }
    assert given <= known


def test_the_image_has_no_rights_one_volume_a_writable_warm_cache_and_ends_by_sigterm() -> None:
    assert steps("USER") == ["10001:10001"]
    assert steps("VOLUME") == [environment()["STREAM_DR_DIR"]] == ["/data"]
    assert steps("STOPSIGNAL") == ["SIGTERM"]
    owned = next(step for step in steps("RUN") if step.startswith("chown"))
    assert owned.split()[2:] == ["10001:10001", "/data", environment()["NUMBA_CACHE_DIR"]]
    made = next(step for step in steps("RUN") if step.startswith("groupadd"))
    assert "groupadd --system --gid 10001 " in made
    assert "useradd --system --uid 10001 --gid 10001 " in made
    assert IMAGE.index("warm_up()") < IMAGE.index("chown") < IMAGE.index("USER")


def test_everything_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in steps("COPY"):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


def test_the_times_of_files_tell_releases_apart(tmp_path: Path) -> None:
    """numba compares a file's size and time; a kernel may inline a function of another file."""
    (step,) = (step for step in steps("RUN") if "os.utime" in step)
    package = tmp_path / "stream_dr"
    (package / "solve").mkdir(parents=True)
    files = [package / "__init__.py", package / "solve" / "inlined.py"]
    told = os.environ | {"PYTHONPATH": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def times(text: str) -> set[float]:
        files[0].write_text("")
        files[1].write_text(text)
        subprocess.run(step, shell=True, cwd=tmp_path, env=told, check=True, timeout=30)
        return {file.stat().st_mtime for file in files}

    first, other, again = times("one = 1"), times("two = 2"), times("one = 1")
    assert len(first) == 1
    assert first == again != other
    assert all(time == int(time) for time in first | other)


@pytest.mark.test_all
def test_the_health_check_sees_health(tmp_path: Path) -> None:
    command = json.loads(IMAGE.split("HEALTHCHECK")[1].split("CMD", 1)[1].splitlines()[0])
    with in_thread(tmp_path) as served:
        told = os.environ | {"STREAM_DR_PORT": served.url.rpartition(":")[2]}
        healthy = subprocess.run([sys.executable, *command[1:]], env=told, timeout=30)
    sick = subprocess.run([sys.executable, *command[1:]], env=told, timeout=30, capture_output=True)
    assert (healthy.returncode, sick.returncode) == (0, 1)


@pytest.mark.test_all
def test_the_start_command_is_ours(tmp_path: Path) -> None:
    assert [json.loads(line) for line in steps("CMD")] == [["python", "-m", "service"]]
    process = Process(tmp_path, host="0.0.0.0", write_token="long-enough")
    assert process.stop() == 0


@contextlib.contextmanager
def nginx(folder: Path, service: str, under: tuple[str, ...] = (), **changed: str) -> Iterator[str]:
    """nginx by the documented configuration, on a free port, in front of a service; its URL. under: what runs it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    text = (ROOT / "docs/deploy/nginx.conf").read_text().replace("http {", f"http {{ access_log off; {own}", 1)
    for documented, here in {"127.0.0.1:8080": address, "127.0.0.1:8000": service[7:], **changed}.items():
        assert text.count(documented) == 1
        text = text.replace(documented, here)
    (folder / "nginx.conf").write_text(text)
    told = f"daemon off; pid {folder}/pid; error_log {folder}/error.log;"
    command = [*under, "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", told]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:

            def is_listening() -> bool:
                assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
                with contextlib.suppress(OSError), socket.create_connection(address.split(":")):  # type: ignore[arg-type]
                    return True
                return False

            wait_until(is_listening, 10)
            yield f"http://{address}"
        finally:
            process.terminate()


@pytest.mark.test_all
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_behind_nginx_clients_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    token = "a-long-write-token"
    quick = {"client_header_timeout 10s": "client_header_timeout 1s", "limit_conn clients 50": "limit_conn clients 4"}
    with (
        in_thread(tmp_path / "D", write_token=token) as served,
        nginx(tmp_path / "proxy", served.url, **quick) as url,
        stream_dr.Client(url, token) as client,
        contextlib.ExitStack() as lines,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as http,
    ):
        client.put_model("m", "pca")
        assert client.partial_fit([[1.0, 2.0], [2.0, 1.0]], wait=True)["position"] == 0
        assert client.transform([[1.0, 2.0]], model="m").shape[0] == 1
        large = http.post("/partial_fit", headers={"Content-Type": ARROW}, content=bytes(65 << 20))
        assert large.status_code == 413
        assert http.get("/stream", headers={"X": "x" * 9_000}).status_code == 400
        for half in (b"", b"GET /stream HTTP/1.1\r\nHost: a\r\nX: "):
            line = lines.enter_context(socket.create_connection(url[7:].split(":")))  # type: ignore[arg-type]
            line.settimeout(10)
            line.sendall(half)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1_000) == b""
        for _ in range(4):
            assert lines.enter_context(http.stream("GET", "/events")).status_code == 200
        assert http.get("/stream").status_code == 429


def slowest_livez(url: str, count: int) -> float:
    """The longest that one of so many answers took, each over a connection of its own."""
    taken = []
    for _ in range(count):
        begun = time.monotonic()
        assert httpx.get(f"{url}/livez", timeout=30).status_code == 200
        taken.append(time.monotonic() - begun)
    return max(taken)


@pytest.mark.test_all
@pytest.mark.skipif(None in map(shutil.which, ("nginx", "prlimit")), reason="nginx or prlimit is not installed")
def test_behind_nginx_unfinished_heads_hold_up_nobody(tmp_path: Path) -> None:
    """2,000 connections to one worker, where the system lets it open 1,024 files unasked; none of their heads ends."""
    (tmp_path / "proxy").mkdir()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    process = Process(tmp_path / "D", write_token="a-long-write-token")
    head = b"GET /stream HTTP/1.1\r\nHost: a\r\n" + (b"X: " + b"x" * 7_000 + b"\r\n") * 4
    try:
        with (
            nginx(
                tmp_path / "proxy",
                process.url,
                ("prlimit", "--nofile=1024:"),
                **{"worker_processes auto": "worker_processes 1"},
            ) as url,
            contextlib.ExitStack() as held,
        ):
            slowest_livez(url, 5)
            before, begun = anonymous(process), time.monotonic()
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            lines = [held.enter_context(socket.create_connection(address, 20)) for _ in range(2_000)]
            for line in lines:
                line.sendall(head)
            assert slowest_livez(url, 10) < 2
            assert anonymous(process) - before < MIB  # nothing is passed on
            with contextlib.suppress(ConnectionResetError):
                assert lines[-1].recv(1) == b""
            assert 9 < time.monotonic() - begun < 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        assert process.stop() == 0


@pytest.mark.timeout(1200)
@pytest.mark.skipif("STREAM_DR_TEST_DEPLOY" not in os.environ, reason="minutes; set STREAM_DR_TEST_DEPLOY=1")
def test_the_python_steps_in_a_fresh_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    app = tmp_path / "app"
    for line in steps("COPY"):
        *sources, target = line.split()
        for source in sources:
            found, to = ROOT / source, app / target
            if found.is_dir():
                shutil.copytree(found, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, to)
    told = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    told |= {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    told["TMPDIR"] = str(tmp_path)
    where = app
    for line in IMAGE.splitlines():
        if line == "WORKDIR /":
            where = tmp_path
        if line.startswith("RUN python"):
            subprocess.run(line.removeprefix("RUN "), shell=True, cwd=where, env=told, check=True, timeout=900)
    compiled = sorted((tmp_path / "cache").rglob("*.nb*"))
    assert compiled
    told |= {"STREAM_DR_DIR": str(tmp_path / "data"), "STREAM_DR_PORT": "0"}
    start = json.loads(steps("CMD")[0])
    process = subprocess.Popen(start, cwd=tmp_path, env=told, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as said:
        assert any(line.startswith("serving http") for line in said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert sorted((tmp_path / "cache").rglob("*.nb*")) == compiled, "something was compiled again"
