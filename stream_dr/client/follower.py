"""Follower: a service's projection that answers in another process.

The process gets the file of a release from the service, and asks again from time to time. It
applies the projection as the service does, so the results have the same bits.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.client.client import model_path
from stream_dr.client.connection import Connection, error_from_response
from stream_dr.client.payloads import ServedArray, arrow_stream_bytes, prediction_array, sendable_rows
from stream_dr.directory.draft import parse_rows
from stream_dr.models.release import Release, read_release
from stream_dr.running.predict import predict
from stream_dr.running.query import transform

TIMEOUT_SECONDS = 5.0
"""Maximum number of seconds that a request to the service waits for the network."""

T = TypeVar("T")

_BLAS_LOCK = threading.Lock()
"""Lock of the number of BLAS threads, a setting of the process. Two threads must not change it at once."""

GONE = (errors.UnknownModel, errors.UnknownRelease)
"""Answers after which a follower must not go on: somebody has deleted the model or the release."""


class _Fetched(NamedTuple):
    """Projection that the service has sent, and the ETag of its file."""

    release: Release
    etag: str


class Follower:
    """Copy of a model's projection, which asks a service for new versions.

    `follow` creates it. Threads may share a follower.

    Parameters
    ----------
    new_connection : callable
        Function without arguments that returns a new Connection to the service.
    path, query : str, dict
        Path and query of the URL of the projection's file.
    seconds : float
        Least time between two requests to the service.

    Attributes
    ----------
    error : StreamDRError or None
        Why the last request to the service has failed. None if it has not.
    """

    def __init__(
        self, new_connection: Callable[[], Connection], path: str, query: dict[str, str], seconds: float
    ) -> None:
        self._new_connection = new_connection
        self._path = path
        self._query = query
        self._seconds = seconds
        self._lock = threading.Lock()
        self._blas = ThreadpoolController()

        self.error: errors.StreamDRError | None = None
        self._asked_at = -math.inf
        self._confirmed_at = -math.inf
        self._fetched = self._fetch(None)

    def transform(self, X: Any) -> ServedArray:
        """Project rows X (rows, features) in this process.

        The result is a float64 array (rows, components), equal to that of `Client.transform`.

        Raises UnknownModel or UnknownRelease if the service says that it has none. Other failures
        of the service are ignored, and stored in `error`.
        """
        result = self._apply(transform, X)
        return ServedArray.from_response(result.z, vars(result))

    def predict(self, X: Any) -> ServedArray:
        """Predict the targets of rows X (rows, features) in this process.

        The result is equal to that of `Client.predict`.

        Raises CannotPredict, and the errors of `transform`.
        """
        response = self._apply(predict, X).to_json()
        return ServedArray.from_response(prediction_array(response), response)

    @property
    def age(self) -> float:
        """Seconds since the service last confirmed that the copy is the newest."""
        return time.monotonic() - self._confirmed_at

    def _apply(self, function: Callable[[Release, Block], T], X: Any) -> T:
        """Return the result of `function` for the current release and rows X.

        The rows are encoded and parsed as in a request to the service, so the result is the same.
        """
        rows, names = sendable_rows(X)
        release = self._current()
        body = arrow_stream_bytes(Block(rows, names=names))
        block = parse_rows(body, "arrow", None, release.schema.names or ())
        # The service multiplies matrices with one thread. More threads may round differently.
        with _BLAS_LOCK, self._blas.limit(limits=1):
            return function(release, block)

    def _current(self) -> Release:
        """Return the newest projection, as a Release.

        The service is asked for a newer one if `seconds` have passed since the last request.
        """
        is_due = time.monotonic() - self._asked_at >= self._seconds
        # While another thread asks, go on with the release that is there.
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._fetched = self._fetch(self._fetched)
                self.error = None
            except errors.StreamDRError as e:
                self.error = errors.remove_stack_frames(e)
            finally:
                self._lock.release()
        if isinstance(self.error, GONE):
            raise self.error
        return self._fetched.release

    def _fetch(self, known: _Fetched | None) -> _Fetched:
        """Return the service's projection, or `known` if it is still the newest.

        known: the projection fetched last, or None if there is none.
        """
        self._asked_at = time.monotonic()
        headers = {} if known is None else {"If-None-Match": known.etag}
        with closing(self._new_connection()) as service:
            response = service.get_without_retries(self._path, params=self._query, headers=headers)
        if known is None or response.status_code != 304:
            if not response.is_success:
                raise error_from_response(response)
            known = _Fetched(read_release(response.content), response.headers.get("etag", ""))
        self._confirmed_at = self._asked_at
        return known


def follow(
    url: str, model: str, release: str | None = None, *, seconds: float = 10.0, token: str | None = None
) -> Follower:
    """Return a copy of a model's projection that answers in this process.

    The copy has the methods `transform` and `predict`, whose results equal those of the service bit
    for bit on the same kind of machine. If the service has a new version of the
    projection, the copy is replaced by it. If the service does not answer, the copy stays in use,
    and its attribute `age` is the number of seconds since the service last confirmed it.

    Parameters
    ----------
    url : str
        Address of the service.
    model : str
        Name of the model.
    release : str or None
        Name of a release of the model. None follows what the model publishes.
    seconds : float
        Least time between two requests to the service, in seconds. A request is sent only if
        `transform` or `predict` is called.
    token : str or None
        Bearer token, if the service requires one.

    Raises RemoteError if the service does not answer now, UnknownModel, UnknownRelease, NotFitted.

    Examples
    --------
    >>> import stream_dr
    >>> X = [[1.0, 2.0], [3.0, 1.0], [2.0, 2.0], [4.0, 0.0]]
    >>> with stream_dr.Client(url) as client:  # a running service, as "http://127.0.0.1:8000"
    ...     _ = client.put_model("lda", "lda")
    ...     _ = client.partial_fit(X, ["a", "b", "a", "b"], key="first", wait=True)
    >>> stream_dr.follow(url, "lda").predict(X[:1]).tolist()
    ['a']
    """
    if not seconds >= 0:
        raise errors.InvalidParameter(f"seconds={seconds!r}; give the least time between two requests, 0 or more.")
    query = {"form": "release"}
    if release is not None:
        query["release"] = release
    new_connection = partial(Connection, url, token, TIMEOUT_SECONDS, retries=0)
    return Follower(new_connection, f"{model_path(model)}/projection", query, seconds)
