"""Connection: requests to a service, sent again where that is safe, and its errors raised as their classes.

An attempt that had no answer, or 429, 502, 503 or 504, is made again: what changes anything carries an idempotency key, or
may be asked for twice.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from stream_dr import errors

_AGAIN = (429, 502, 503, 504)
"""Answers after which the same request may succeed."""


class Connection:
    """A service at `url`; token, timeout, retries as of Client."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise errors.InvalidParameter(
                f"retries={retries!r}; give the number of attempts after the first, 0 or more."
            )
        headers = {"Authorization": f"Bearer {header('token', token)}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries = retries

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The answer, after as many attempts as allowed. Raises the error it tells, or RemoteError."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = self._http.request(method, path, **request)
            except httpx.TransportError as e:
                if last:
                    raise errors.RemoteError(
                        f"{self._http.base_url} did not answer ({type(e).__name__}: {e}) in {attempt + 1} attempts; "
                        "is `stream-dr serve` running there?"
                    ) from e
                time.sleep(_pause(attempt))
                continue
            if answer.status_code not in _AGAIN or last:
                break
            time.sleep(max(_pause(attempt), _asked(answer)))
        if answer.is_success:
            return answer
        raise error_of(answer)

    def once(self, path: str) -> httpx.Response:
        """What GET answers, whatever it is, asked once. Raises RemoteError where nobody answers."""
        try:
            return self._http.get(path)
        except httpx.TransportError as e:
            raise errors.RemoteError(f"{self._http.base_url} did not answer ({type(e).__name__}: {e}).") from e

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """The lines that GET answers, as they come. Raises the error it tells, or RemoteError, also where they break off."""
        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    raise error_of(answer)
                yield answer.iter_lines()
        except httpx.TransportError as e:
            raise errors.RemoteError(f"{self._http.base_url} broke off ({type(e).__name__}: {e}).") from e


def error_of(answer: httpx.Response) -> errors.StreamDRError:
    """The error an answer tells: the class with its code, or with the reason's where the code is of the service alone, its
    sentence, and its facts as details."""
    try:
        told = answer.json()
        code, detail = told.pop("code"), told.pop("detail")
    except (ValueError, KeyError, AttributeError, TypeError):
        return errors.RemoteError(f"status {answer.status_code}: {answer.text[:200]}", status=answer.status_code)
    facts = {name: fact for name, fact in told.items() if name not in ("type", "title")}
    known = code if code in _CLASSES else str(facts.get("reason"))
    if known not in _CLASSES:
        return errors.RemoteError(f"{detail} ({code})", code=code, **facts)
    return _CLASSES[known](detail, **facts)


def error_class(code: str) -> type[errors.StreamDRError]:
    """The class with that code, else RemoteError."""
    return _CLASSES.get(code, errors.RemoteError)


_CLASSES: dict[str, type[errors.StreamDRError]] = {}
for _kind in vars(errors).values():
    if isinstance(_kind, type) and issubclass(_kind, errors.StreamDRError):
        _CLASSES.setdefault(_kind.code, _kind)
_CLASSES["invalid_request"] = errors.InvalidParameter  # of the request, not of an estimator


def header(name: str, value: str) -> str:
    """What stands in a header. Raises InvalidParameter."""
    if not (isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()):
        raise errors.InvalidParameter(
            f"{name} goes into a header; it must be of printable ASCII characters and neither begin nor end with a space."
        )
    return value


def _asked(answer: httpx.Response) -> float:
    """Seconds that the answer asks to wait; a proxy's date is none."""
    told = answer.headers.get("retry-after", "")
    return float(told) if told.isdigit() else 0.0


def _pause(attempt: int) -> float:
    """Seconds before the next attempt; spread, so that many clients do not come back at once."""
    return min(5.0, 0.1 * 2**attempt) * random.uniform(0.5, 1.0)
