"""Connection: requests to a service, with retries.

A request is sent again if there is no response, or if the status is 429, 502, 503 or 504. This is
safe: batches and unlearn requests carry an idempotency key, and other requests may be repeated.

A response that describes an error is raised as an exception. The class of the exception is the
class in `stream_dr.errors` that has the error's code.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from stream_dr import errors

_RETRIED_STATUSES = (429, 502, 503, 504)
"""Status codes of responses after which the request is sent again."""


class Connection:
    """HTTP connection to a service.

    Parameters
    ----------
    url, token, timeout, retries
        Address, bearer token, seconds to wait and number of further attempts, as in `Client`.
    """

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise errors.InvalidParameter(
                f"retries={retries!r}; give the number of attempts after the first, 0 or more."
            )
        headers = {}
        if token:
            headers = {"Authorization": f"Bearer {checked_header('token', token)}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries = retries

    def close(self) -> None:
        """Close the HTTP connections to the service."""
        self._http.close()

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request, with retries, and return the response.

        method: HTTP method.
        path: path of the URL.
        request: further arguments of `httpx.Client.request`.

        Raises the error of stream_dr that an error response describes. Raises RemoteError
        if the service does not answer.
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
                time.sleep(_random_pause_seconds(attempt))
                continue

            # Try again after a status that may be temporary, unless this was the last attempt.
            if response.status_code not in _RETRIED_STATUSES or last:
                break
            pause = _random_pause_seconds(attempt)
            # A proxy may send a date in the header Retry-After. A date does not change the pause.
            seconds = response.headers.get("retry-after", "")
            if seconds.isdigit():
                pause = max(pause, float(seconds))
            time.sleep(pause)

        if response.is_success:
            return response
        raise error_from_response(response)

    def get_without_retries(self, path: str, **request: Any) -> httpx.Response:
        """Send a GET request without retries, and return the response.

        request: further arguments of `httpx.Client.get`.

        A response whose status is an error is returned, too. Raises RemoteError if the service
        does not answer.
        """
        try:
            return self._http.get(path, **request)
        except httpx.RequestError as e:
            raise errors.RemoteError(f"{self._http.base_url} did not answer ({type(e).__name__}: {e}).") from e

    @contextmanager
    def stream_lines(self, path: str) -> Iterator[Iterator[str]]:
        """Yield an iterator over the lines of a GET response.

        The iterator yields each line as soon as the line arrives. Use this method in a
        with-statement.

        Raises the error that the response describes, and RemoteError if the connection is lost.
        """
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise error_from_response(response)
                yield response.iter_lines()
        except httpx.TransportError as e:
            raise errors.RemoteError(f"{self._http.base_url} broke off ({type(e).__name__}: {e}).") from e


def error_from_response(response: httpx.Response) -> errors.StreamDRError:
    """Return the error that a response describes.

    The field `code` of the response selects a class of `stream_dr.errors`. If no class has this
    code, the field `reason` selects the class. If no class has this code either, the error is a
    RemoteError.

    The other fields of the response become details of the error.
    """
    try:
        problem = response.json()
        code = problem.pop("code")
        detail = problem.pop("detail")
    except (ValueError, KeyError, AttributeError, TypeError):
        return errors.RemoteError(f"status {response.status_code}: {response.text[:200]}", status=response.status_code)

    details = {name: value for name, value in problem.items() if name not in ("type", "title")}
    # A code without a class is used only by the service. Its `reason` may be a code with a class.
    class_code = code if code in ERROR_CLASSES else str(details.get("reason"))
    if class_code not in ERROR_CLASSES:
        return errors.RemoteError(f"{detail} ({code})", code=code, **details)
    return ERROR_CLASSES[class_code](detail, **details)


ERROR_CLASSES: dict[str, type[errors.StreamDRError]] = {}
for _kind in vars(errors).values():
    if isinstance(_kind, type) and issubclass(_kind, errors.StreamDRError):
        ERROR_CLASSES.setdefault(_kind.code, _kind)
# The service uses this code for an invalid parameter of a request.
ERROR_CLASSES["invalid_request"] = errors.InvalidParameter


def checked_header(value_name: str, value: str) -> str:
    """Return `value` if an HTTP header can have this value.

    Raises InvalidParameter for other values.

    value_name: name of the value in the error message.
    """
    if not (isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()):
        raise errors.InvalidParameter(
            f"{value_name} goes into a header; it must be of printable ASCII characters and neither begin nor end "
            "with a space."
        )
    return value


def _random_pause_seconds(attempt: int) -> float:
    """Return the seconds to wait before the next attempt, partly random."""
    # attempt: number of the attempt that failed. The first attempt has number 0.
    seconds = min(5.0, 0.1 * 2.0**attempt)
    # The pause is random, so that many clients do not retry at the same moment.
    return seconds * random.uniform(0.5, 1.0)
