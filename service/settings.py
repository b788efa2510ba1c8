"""Settings of the service: names, units, defaults and meanings.

A setting is taken from the first of these places that has it:

1. the arguments of `serve`,
2. the environment variable `STREAM_DR_<NAME>`,
3. the TOML file that `STREAM_DR_FILE` names,
4. its default.

docs/settings.md shows the table that `settings_table()` returns, and a test compares the two.
"""

import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

import stream_dr

ENGINE_DEFAULTS = stream_dr.RunSettings()
"""Default settings of the library's engine. The service has the same defaults."""

PREFIX = "STREAM_DR_"
KIB, MIB, GIB = 2**10, 2**20, 2**30

Count = Annotated[int, Field(ge=1, le=2**63 - 1)]
CountOrZero = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Integers that SQLite, JSON and a 64-bit machine can hold."""

Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Times in seconds, at most 30 years."""


def _setting(default: Any, unit: str, description: str, **bounds: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"unit": unit}, **bounds)


class Settings(BaseSettings):
    """Settings of a service, fixed while the service runs.

    Raises pydantic's ValidationError for an unknown name or a bad value.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    dir: Path = _setting(Path("stream"), "path", "directory of the log, the models and their snapshots")
    host: str = _setting("127.0.0.1", "address", "address to listen on. An address that is not loopback needs a token")
    port: int = _setting(8000, "port", "port to listen on. 0 takes a free one", ge=0, le=65535)
    read_token: SecretStr | None = _setting(None, "secret", "bearer token for reading. The write token may also read")
    write_token: SecretStr | None = _setting(None, "secret", "bearer token for writing")
    cors_origins: tuple[str, ...] = _setting(
        (),
        "list",
        'origins of pages that may call the service, as JSON: ["https://app.example"]. ["*"] means any and needs a token',
    )
    n_features: Count | None = _setting(
        None, "features", "width of a new stream's sparse rows, if batches do not declare it"
    )
    target_kind: Literal["class", "multilabel", "continuous", "none"] | None = _setting(
        None,
        "kind",
        "kind of targets of a stream without targets so far. If unset, the first batch with targets decides",
    )
    allowed_labels: tuple[str | int | bool, ...] | None = _setting(
        None, "list", "labels that batches may have from now on, as JSON. [] means any. If unset, as before"
    )
    max_features: Count = _setting(1_000_000, "features", "maximum number of features of a stream")
    max_labels: Count = _setting(1_000, "labels", "maximum number of distinct labels or target columns of a stream")
    max_text: Count = _setting(1_000, "characters", "maximum length of a label, an id, a column name or a category")
    max_state_bytes: Count = _setting(
        2 * GIB, "bytes", "maximum size of one model's state, including the memory to solve it"
    )
    max_body_bytes: Count = _setting(64 * MIB, "bytes", "maximum size of an Arrow body, both packed and unpacked")
    max_json_bytes: Count = _setting(
        MIB, "bytes", "maximum size of a JSON body, both packed and unpacked. Reading JSON holds the interpreter lock"
    )
    max_queue_bytes: Count = _setting(
        256 * MIB, "bytes", "maximum size of all request bodies in memory. Above it 429. A single body above it is 413"
    )
    max_lag: Count = _setting(
        10_000, "events", "number of events that a live model may be behind the log. Above it, posts are answered 429"
    )
    min_free_bytes: CountOrZero = _setting(GIB, "bytes", "free disk space below which posts are answered 507")
    keep_versions: int = _setting(
        32,
        "versions",
        "number of published projections to keep for each model, while they take at most 64 MiB. After a restart only "
        "the newest is there",
        ge=1,
        le=10**6,
    )
    publish_rows: Count | None = _setting(
        ENGINE_DEFAULTS.publish.rows,
        "rows",
        "number of rows after which a projection is published. Solving takes at most a twentieth of the time",
    )
    publish_seconds: Seconds = _setting(
        ENGINE_DEFAULTS.publish.seconds, "seconds", "time after which new rows are published, even if they are few"
    )
    publish_idle: bool = _setting(
        ENGINE_DEFAULTS.publish.idle,
        "yes or no",
        "publish also whenever every batch is learned. If no, only after publish_rows or publish_seconds",
    )
    snapshot_rows: Count | None = _setting(
        ENGINE_DEFAULTS.snapshot_rows,
        "rows",
        "number of rows after which a model is snapshotted. If unset, only after snapshot_seconds",
    )
    snapshot_seconds: Seconds = _setting(
        ENGINE_DEFAULTS.snapshot_seconds,
        "seconds",
        "time after which a changed model is snapshotted. Its first projection is snapshotted at once",
    )
    retain_rows: CountOrZero | None = _setting(
        ENGINE_DEFAULTS.retain_rows,
        "rows",
        "number of newest rows to keep in the log, once every model and snapshot is past the older ones. If unset, all",
    )
    test_then_train: bool = _setting(
        ENGINE_DEFAULTS.test_then_train,
        "yes or no",
        "test models on rows before they learn them, for the dashboard. Takes at most a fiftieth of the time",
    )
    wait_timeout: Seconds = _setting(
        30.0, "seconds", "maximum time that ?wait=applied waits. After it, the answer is 202"
    )
    max_head_bytes: int = _setting(
        64 * KIB,
        "bytes",
        "maximum size of a request's head, including its query. Above it 400, in plain text",
        ge=1024,
        le=2**63 - 1,
    )
    body_timeout: Seconds = _setting(30.0, "seconds", "maximum time for a request body to arrive")
    stop_timeout: Seconds = _setting(
        8.0, "seconds", "maximum time for running requests to finish when the service stops"
    )
    drain_timeout: SecondsOrZero = _setting(
        10.0,
        "seconds",
        "maximum time for models to learn the log when the service stops. The rest is learned at the next start",
    )
    max_listeners: CountOrZero = _setting(32, "connections", "maximum number of open /events connections. Above it 429")
    max_connections: Count = _setting(1_000, "connections", "maximum number of open connections. Above it 503")
    warm_up: bool = _setting(
        True, "yes or no", "compile a model's kernels before it is live. At the start, /readyz is 503 until then"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "level", "lowest level that is logged")
    log_format: Literal["text", "json"] = _setting(
        "text", "format", "format of the log on stderr. json means one object a line"
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *args: PydanticBaseSettingsSource, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings, in descending order of precedence.

        Raises FileNotFoundError if there is no settings file at the named path, and ValueError if
        the file is not TOML.
        """
        # pydantic passes its sources by position or by name. The first two are the arguments of the
        # constructor and the environment.
        arguments, environment = (*args, *sources.values())[:2]
        file = os.environ.get(f"{PREFIX}FILE")
        if not file:
            return arguments, environment

        if not Path(file).is_file():
            raise FileNotFoundError(f"{PREFIX}FILE names {file}, which is not a file; unset it or write the file.")
        try:
            return arguments, environment, TomlConfigSettingsSource(settings_cls, Path(file))
        except ValueError as e:
            raise ValueError(f"{PREFIX}FILE names {file}, which is not TOML: {e}.") from e

    @model_validator(mode="after")
    def _check_tokens_and_origins(self) -> "Settings":
        if self.read_token is not None and self.write_token is None:
            raise ValueError("read_token is set without write_token: anybody could write; set write_token too.")
        if "*" in self.cors_origins and self.write_token is None:
            raise ValueError('cors_origins has "*" and no token is set: any page could write; set write_token too.')

        for name in ("read_token", "write_token"):
            token = getattr(self, name)
            if token is None:
                continue
            text = token.get_secret_value()
            if not (text.isascii() and text.isprintable() and text == text.strip()):
                raise ValueError(
                    f"{name} could not be presented in a header. Choose one of printable ASCII characters that neither "
                    "begins nor ends with a space."
                )
            if len(text) < 8:
                raise ValueError(f"{name} has fewer than 8 characters; use a long random one.")
        return self

    @field_validator("cors_origins")
    @classmethod
    def _check_origin_syntax(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not re.fullmatch(r"\*|https?://[^/\sA-Z]+", origin):
                raise ValueError(
                    f"{origin!r} is no origin; give https://app.example or http://localhost:3000, without a path."
                )
        return origins

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach `host`."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def setting_rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield each setting's variable, default, unit and meaning as texts."""
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        unit = extra["unit"] if isinstance(extra, dict) else ""
        default = str(field.default)
        if field.default in (None, ()):
            default = "unset"
        elif isinstance(field.default, int) and field.default > 9_999:
            default = f"{field.default:,}"
        yield f"{PREFIX}{name.upper()}", default, str(unit), field.description or ""


def settings_table() -> str:
    """Return all settings as the Markdown table of docs/settings.md."""
    lines = ["| variable | default | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {default} | {unit} | {meaning} |" for name, default, unit, meaning in setting_rows()]
    return "\n".join(lines) + "\n"
