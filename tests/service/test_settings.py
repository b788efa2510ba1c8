"""Settings: the documented table is the table; sources in order; what is refused."""

import typing
from pathlib import Path

import pytest
from pydantic import ValidationError

from service import settings
from service.app import run_settings
from service.serve import warn_of_ignored_settings
from service.settings import Settings
from stream_dr.directory.directory import Directory
from tests.support.batches import SMALL, dense, put
from tests.support.serving import Served, arrow, in_thread, post
from tests.support.waiting import assert_stays, wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_documented_table_is_the_settings() -> None:
    assert settings.settings_table() in DOCUMENT.read_text()


def test_every_setting_has_a_unit_and_a_meaning() -> None:
    for name, _, unit, meaning in settings.setting_rows():
        assert "" not in (unit, meaning), name


def test_arguments_win_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("port = 1\nmax_lag = 2\nmax_labels = 3\n")
    monkeypatch.setenv("STREAM_DR_FILE", str(file))
    monkeypatch.setenv("STREAM_DR_PORT", "4")
    monkeypatch.setenv("STREAM_DR_MAX_LAG", "5")
    found = Settings(port=6)
    assert (found.port, found.max_lag, found.max_labels, found.keep_versions) == (6, 5, 3, 32)


def test_a_misspelled_name_in_the_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("max_lagg = 2\n")
    monkeypatch.setenv("STREAM_DR_FILE", str(file))
    with pytest.raises(ValidationError, match="max_lagg"):
        Settings()


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DR_FILE", str(tmp_path / "none.toml"))
    with pytest.raises(FileNotFoundError, match="STREAM_DR_FILE"):
        Settings()


def numbers(kind: type) -> list[str]:
    """The settings that are numbers of that kind, or unset."""
    kinds = {
        name: [getattr(a, "__origin__", a) for a in typing.get_args(field.annotation) or [field.annotation]]
        for name, field in Settings.model_fields.items()
    }
    return [name for name, of in kinds.items() if kind in of]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in numbers(int) for value in ("9223372036854775808", "-1", "1e400")],
        *[(name, value) for name in numbers(float) for value in ("inf", "nan", "-inf", "1e300", "-1")],
        ("keep_versions", "1000001"),
        ("publish_rows", "0"),
        ("stop_timeout", "0"),
    ],
)
def test_no_number_is_taken_that_could_not_be_used(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"STREAM_DR_{name.upper()}", value)
    with pytest.raises(ValidationError, match=f"(?m)^{name}$"):
        Settings()


def test_the_largest_numbers_that_are_taken_can_be_used(tmp_path: Path) -> None:
    largest = dict.fromkeys(numbers(int), 2**63 - 1) | dict.fromkeys(numbers(float), 1e9)
    told = {"keep_versions": 10**6, "port": 0, "min_free_bytes": 0, "n_features": None}
    with in_thread(tmp_path, **largest | told) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        applied = post(served.http, arrow([[1, 2], [3, 4]], ["a", "b"]), path="/partial_fit?wait=applied")
        assert applied.status_code == 200
        assert served.http.post("/models/lda/publish").status_code == 200
        assert served.http.get("/models").status_code == 200


def told(served: Served, **wanted: int) -> dict[str, typing.Any]:
    """What is told of the model "lda" once that is as wanted."""

    def model() -> dict[str, typing.Any] | None:
        found: dict[str, typing.Any] = served.http.get("/models/lda").json()
        return found if wanted.items() <= found.items() else None

    found = wait_until(model, 20)
    assert found is not None
    return found


def test_rows_or_seconds_hold_publishing_back_once_it_is_not_done_when_idle(tmp_path: Path) -> None:
    policy = {"publish_rows": 20, "publish_seconds": 1_000.0, "publish_idle": False}
    with in_thread(tmp_path, **policy) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        post(served.http, arrow([[1, 2], [3, 4]], ["a", "b"])).raise_for_status()
        told(served, position=0)
        # Ten times as long as an idle model of that size waits.
        assert_stays(lambda: told(served, position=0)["version"] == 0, 0.5)
        post(served.http, arrow([[1, 2], [3, 4]] * 9, ["a", "b"] * 9)).raise_for_status()
        assert told(served, version=1)["publish"] == {"rows": 20, "seconds": 1_000.0, "idle": False}
    assert run_settings(Settings()).publish.idle


def test_a_read_token_alone_is_refused() -> None:
    with pytest.raises(ValidationError, match="write_token"):
        Settings(read_token="long enough")


def test_a_short_token_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError, match="fewer than 8") as told:
        Settings(write_token="sesame")
    assert "sesame" not in str(told.value)


@pytest.mark.parametrize(
    "origin", ["https://app.example/", "app.example", "https://App.example", "https://", "null", ""]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="is no origin; give"):
        Settings(cors_origins=("https://app.example", origin))


def test_all_origins_take_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DR_CORS_ORIGINS", '["*"]')
    with pytest.raises(ValidationError, match="any page could write; set write_token too"):
        Settings()
    assert Settings(write_token="open-sesame").cors_origins == ("*",)


@pytest.mark.parametrize("name", ["read_token", "write_token"])
@pytest.mark.parametrize(
    "token",
    ["ünïcödé-tøken", " sesame-open", "sesame-open ", "sesame-open\n", "sesame\topen", "sesame\x7fopen", " " * 8],
)
def test_a_token_that_no_header_carries_is_refused_and_not_shown(name: str, token: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} could not be presented") as told:
        Settings(**{"write_token": "long enough", name: token})
    assert not any(part in str(told.value) for part in ("sesame", "tøken"))


def test_tokens_are_not_shown() -> None:
    assert "open-sesame" not in repr(Settings(write_token="open-sesame"))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Settings(host=host).loopback is loopback


def test_a_file_that_is_no_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("max_lag = = 3")
    monkeypatch.setenv("STREAM_DR_FILE", str(file))
    with pytest.raises(ValueError, match=r"settings\.toml, which is not TOML"):
        Settings()


def test_a_setting_that_the_stream_has_decided_otherwise_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Directory(tmp_path, limits=SMALL) as directory:
        put(directory, dense(0))
        warn_of_ignored_settings(Settings(dir=tmp_path, target_kind="class"), directory)
        assert caplog.text == ""
        warn_of_ignored_settings(Settings(dir=tmp_path, target_kind="multilabel", n_features=9), directory)
    assert "target_kind=multilabel is passed over: the stream" in caplog.text
    assert "n_features=9 is passed over" in caplog.text


def test_labels_may_be_a_closed_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DR_ALLOWED_LABELS", '["a", "b"]')
    with in_thread(tmp_path / "D", allowed_labels=Settings().allowed_labels) as served:
        refused = post(served.http, arrow([[1.0], [2.0]], ["a", "bb"]))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_targets")
        assert (
            "'bb' (did you mean 'b'?); this stream's labels are 'a', 'b' (allowed_labels)" in refused.json()["detail"]
        )
        assert post(served.http, arrow([[1.0], [2.0]], ["a", "b"])).status_code == 200
        stream = served.http.get("/stream").json()
        assert (stream["rows"], stream["allowed_labels"]) == (2, ["a", "b"])
    monkeypatch.setenv("STREAM_DR_ALLOWED_LABELS", "a,b")
    with pytest.raises(ValueError, match="allowed_labels"):
        Settings()
