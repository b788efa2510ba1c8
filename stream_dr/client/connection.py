"""Connection: requests to a service, with retries, and errors raised as their classes.

An attempt without an answer, or with 429, 502, 503 or 504, is repeated. That is safe: what changes
anything carries an idempotency key, or may be repeated.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from stream_dr import errors

_RETRY_STATUS = (429, 502, 503, 504)
"""Status codes after which the same request may succeed."""


class Connection:
    """HTTP connection to a service. Parameters as of Client."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise errors.InvalidParameter(
                f"retries={retries!r}; give the number of attempts after the first, 0 or more."
            )
        headers = {"Authorization": f"Bearer {checked_header('token', token)}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries = retries

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request, with retries, and return the response.

        Raises the error that the response describes, or RemoteError.
        """
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as e:
                if last:
                    raise errors.RemoteError(
                        f"{self._http.base_url} did not answer ({type(e).__name__}: {e}) in {attempt + 1} attempts; "
                        "is `stream-dr serve` running there?"
                    ) from e
                time.sleep(_pause_seconds(attempt))
                continue

            if response.status_code not in _RETRY_STATUS or last:
                break
            time.sleep(max(_pause_seconds(attempt), _retry_after(response)))

        if response.is_success:
            return response
        raise error_of(response)

    def get_once(self, path: str) -> httpx.Response:
        """Send GET without retries and return the response, whatever its status.

        Raises RemoteError if the service does not answer.
        """
        try:
            return self._http.get(path)
        except httpx.TransportError as e:
            raise errors.RemoteError(f"{self._http.base_url} did not answer ({type(e).__name__}: {e}).") from e

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """Send GET and give the response's lines as they arrive.

        Raises the error that the response describes, or RemoteError, also if the connection is
        lost.
        """
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response)
                yield response.iter_lines()
        except httpx.TransportError as e:
            raise errors.RemoteError(f"{self._http.base_url} broke off ({type(e).__name__}: {e}).") from e


def error_of(response: httpx.Response) -> errors.StreamDRError:
    """Return the error that a response describes.

    Its class has the response's code, or that of its reason for codes that only the service has.
    Other fields become details.
    """
    try:
        problem = response.json()
        code = problem.pop("code")
        detail = problem.pop("detail")
    except (ValueError, KeyError, AttributeError, TypeError):
        return errors.RemoteError(f"status {response.status_code}: {response.text[:200]}", status=response.status_code)

    details = {name: value for name, value in problem.items() if name not in ("type", "title")}
    class_code = code if code in _CLASSES else str(details.get("reason"))
    if class_code not in _CLASSES:
        return errors.RemoteError(f"{detail} ({code})", code=code, **details)
    return _CLASSES[class_code](detail, **details)


def error_class(code: str) -> type[errors.StreamDRError]:
    """Return the error class with that code, or RemoteError."""
    return _CLASSES.get(code, errors.RemoteError)


_CLASSES: dict[str, type[errors.StreamDRError]] = {}
for _kind in vars(errors).values():
    if isinstance(_kind, type) and issubclass(_kind, errors.StreamDRError):
        _CLASSES.setdefault(_kind.code, _kind)
# The parameter is one of the request, not of an estimator.
_CLASSES["invalid_request"] = errors.InvalidParameter


def checked_header(name: str, value: str) -> str:
    """Return a value that is valid in a header, or raise InvalidParameter."""
    if not (isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()):
        raise errors.InvalidParameter(
            f"{name} goes into a header; it must be of printable ASCII characters and neither begin nor end with a space."
        )
    return value


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds of Retry-After, or 0."""
    # A proxy may send a date, which is ignored.
    seconds = response.headers.get("retry-after", "")
    return float(seconds) if seconds.isdigit() else 0.0


def _pause_seconds(attempt: int) -> float:
    """Return the seconds to wait before the next attempt."""
    # Spread at random, so that many clients do not return at once.
    return min(5.0, 0.1 * 2.0**attempt) * random.uniform(0.5, 1.0)
