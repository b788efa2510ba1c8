"""What the documentation says is so: commands exist, code runs, public names and keys are the ones written down."""

import pathlib
import re
import subprocess
import sys

import pytest

import stream_dr

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert blocks("python")
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})


def test_every_make_target_the_readme_names_is_there():
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE)
    assert set(targets) == {"run", "test"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    targets = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[1].split()
    assert [line.split()[0] for line in shown.splitlines()] == targets


@pytest.mark.parametrize("name", sorted(set(re.findall(r"stream-dr ([a-z]+)", README))))
def test_every_command_the_readme_names_has_help(name):
    done = subprocess.run(
        [sys.executable, "-m", "stream_dr.cli", name, "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 200


def test_every_option_the_readme_names_is_an_option():
    lines = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    for line in lines:
        found = re.match(r"(?:\.venv/bin/)?stream-dr ([a-z]+)(.*)", line)
        if not found:
            continue
        done = subprocess.run(
            [sys.executable, "-m", "stream_dr.cli", found[1], "--help"], capture_output=True, text=True, timeout=60
        )
        for option in re.findall(r"--[a-z-]+", found[2]):
            assert option in done.stdout, (line, option)


def test_every_estimator_is_in_the_readme_with_its_key():
    for key in stream_dr.ESTIMATORS:
        assert f"`{stream_dr.ESTIMATORS[key].__name__}` ({key})" in README


def test_public_names_are_there_and_have_docstrings():
    for name in stream_dr.__all__:
        thing = getattr(stream_dr, name)
        assert name.startswith("__") or thing.__doc__, name
        assert name in dir(stream_dr)


def test_no_file_names_a_machine_or_a_registry():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"/ro" + r"ot/|/wo" + r"rk/|py" + r"pi\.org|python" + r"hosted")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file():
            assert not pattern.search(path.read_text(encoding="utf8", errors="ignore")), name
