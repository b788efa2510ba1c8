"""Every error stream_dr raises for its caller: one class per cause, each with a stable `code`.

All are `ValueError`s (a `NotFitted` that an estimator raises is scikit-learn's `NotFittedError` too, which is one). A
message says what was given, what was needed and what to do. The service maps `code` to an HTTP status in one table
(`service/problems.py`); the command line prints the code and exits 1.

Why this way: callers match on a class or on a code, never on words; a code never changes its meaning.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, ClassVar, TypeVar

_Error = TypeVar("_Error", bound=BaseException)


_LONGEST = 4_000
"""Characters of a message, or of a detail: a column's name may be as long as a body."""

_LONGEST_NAME, _MOST_COMPARED = 200, 10_000
"""Characters, and number, of names that are compared letter by letter: who sends others can make them cost seconds."""


class StreamDRError(ValueError):
    """Base of all errors; raised when no narrower class fits. `details` holds machine-readable facts (row, column …)."""

    code: ClassVar[str] = "invalid"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(_short(message))
        self.details = {name: _short(fact) if isinstance(fact, str) else fact for name, fact in details.items()}


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def did_you_mean(wrong: object, names: Iterable[object]) -> str:
    """What a message says behind a name that is not there: " (did you mean 'age'?)", the nearest of the names that are, in
    whatever letter case; "" where none is near. A list that is cut off may follow: the wanted name was said before it."""
    text, folded = str(wrong).casefold(), {str(name).casefold(): name for name in names}
    if len(text) > _LONGEST_NAME:
        return ""
    near = [text] if text in folded else get_close_matches(text, list(islice(folded, _MOST_COMPARED)), n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def without_frames(error: _Error) -> _Error:
    """The error, which no longer holds the frames that raised it and its causes, and with them the rows they worked on.

    For an error that is kept, or handed to another thread: the frames of a context manager hold the error itself, so only
    the garbage collector would end them.
    """
    at: BaseException | None = error
    seen = set[int]()
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        at.__traceback__ = None
        at = at.__cause__ or at.__context__
    return error


class FewerComponents(UserWarning):
    """Warned, once a fit, when there are fewer components than `n_components` asked for; the message says how many and
    why."""


class OtherColumns(UserWarning):
    """Told when a table lacks columns that the first rows had, or has others."""


class NarrowKernel(UserWarning):
    """Issued when the gamma of random_fourier makes nearly all rows of the first batch dissimilar; names a better one."""


class OnlyDiagonal(UserWarning):
    """Issued when a table may become too wide for the whole scatter, so that only its diagonal is kept."""


class Uncalibrated(UserWarning):
    """Warned when probabilities are asked of a solution by the diagonal of the scatter alone: they rank the classes, and
    their size says nothing."""


class InvalidParameter(StreamDRError):
    """Raised when a parameter, of an estimator or of a request, has an unknown name or a value outside its range."""

    code = "invalid_parameter"


def unknown_parameter(who: str, given: Iterable[str], known: Iterable[str]) -> InvalidParameter | None:
    """What is said of the first parameter given that `who` does not have; None where it has all."""
    for name in given:
        if name not in known:
            meant = did_you_mean(name, known)
            return InvalidParameter(f"{who} has no parameter {name!r}{meant}; it has {', '.join(known) or 'none'}.")
    return None


class UnknownEstimator(StreamDRError):
    """Raised when a registry key names no estimator."""

    code = "unknown_estimator"


class UnknownModel(StreamDRError):
    """Raised when a directory has no model of that name."""

    code = "unknown_model"


class ModelExists(StreamDRError):
    """Raised when a model of that name is there already with another spec."""

    code = "model_exists"


class ModelFailed(StreamDRError):
    """Raised when a model stopped at an event it could not apply."""

    code = "model_failed"


class InvalidRows(StreamDRError):
    """Raised when rows are not a 2-D numeric array, sparse matrix or table."""

    code = "invalid_rows"


class NotNumeric(InvalidRows, TypeError):
    """Raised when rows hold things that are no numbers at all (a TypeError too, as scikit-learn's checks ask)."""

    code = "invalid_rows"


class WidthMismatch(StreamDRError):
    """Raised when a batch has another number of features, or other columns, than the model or stream."""

    code = "width_mismatch"


def other_width(given: int, known: int) -> WidthMismatch:
    """What an accumulator says of a batch of another width than it has learned."""
    return WidthMismatch(
        f"batch has {given} features; this model was started with {known}. Send those columns or start a new model."
    )


class NotFinite(StreamDRError):
    """Raised when a value is NaN, infinite or beyond 1e100 in size; names row and column."""

    code = "not_finite"


class InvalidIndex(StreamDRError):
    """Raised when a sparse index is negative, repeated within its row, or past the largest width allowed."""

    code = "invalid_index"


class InvalidTargets(StreamDRError):
    """Raised when targets cannot be read or their number differs from the number of rows."""

    code = "invalid_targets"


class TargetsRequired(StreamDRError):
    """Raised when a supervised estimator is given no targets."""

    code = "targets_required"


class TargetKindMismatch(StreamDRError):
    """Raised when targets are of another kind (class, multilabel, continuous) than the model or stream takes."""

    code = "target_kind_mismatch"


class InvalidWeights(StreamDRError):
    """Raised when weights are negative, not finite, of the wrong length, or not taken by this stream or model."""

    code = "invalid_weights"


class EmptyInput(StreamDRError):
    """Raised when `fit` is given no rows or no features."""

    code = "empty_input"


class TooManyFeatures(StreamDRError):
    """Raised when an exact scatter matrix would grow past the width it is kept for."""

    code = "too_many_features"


class LimitExceeded(StreamDRError):
    """Raised when a batch or a state would grow past a stated limit (features, labels, bytes)."""

    code = "limit_exceeded"


class CannotMerge(StreamDRError):
    """Raised when two states differ in spec or width, or when the estimator's state is sequential."""

    code = "cannot_merge"


class CannotUnlearn(StreamDRError):
    """Raised when more would be removed than was learned, or when the estimator cannot remove rows."""

    code = "cannot_unlearn"


class PrecisionLost(CannotUnlearn):
    """Raised when rows are so large beside those that would remain that taking them out leaves too few digits: learn the
    rows that remain anew."""

    code = "precision_lost"


class CannotPredict(StreamDRError):
    """Raised when a model is asked to predict whose method has no rule for targets, or that has learned none."""

    code = "cannot_predict"


class CannotRefine(StreamDRError):
    """Raised when the estimator has no out-of-core solution, or the source is not what the state has seen."""

    code = "cannot_refine"


class NotFitted(StreamDRError):
    """Raised when a projection is asked for before any row was learned."""

    code = "model_empty"


class CatchingUp(NotFitted):
    """Raised when a projection is asked for that a model will have once it has learned, and solved, what the log holds."""

    code = "catching_up"


class NeedsRefine(NotFitted):
    """Raised when only the diagonal of the scatter is kept and the method has no answer from it without refine."""

    code = "needs_refine"


class MalformedInput(StreamDRError):
    """Raised when bytes are not the Arrow stream or JSON, gzip or zstd they are said to be."""

    code = "malformed_input"


class SchemaMismatch(StreamDRError):
    """Raised when a batch's columns are not a layout stream_dr knows, or not this stream's; names the column."""

    code = "schema_mismatch"


def other_table(known: tuple[str, ...], given: tuple[str, ...]) -> SchemaMismatch:
    """What is said of rows that have none of a table's columns; an array's are called x0, x1 …"""
    way = "Send those"
    if given == tuple(f"x{i}" for i in range(len(given))):
        way = "An array's columns have no names of their own: send a frame, or objects, with those"
    return SchemaMismatch(
        f"batch has none of the table's columns {list(known[:5])}; it has {list(given[:5])}"
        f"{did_you_mean(given[0], known)}. {way}, or start a new model.",
        column=known[0],
    )


class DamagedShard(StreamDRError):
    """Raised when a shard cannot be read to its end or its bytes are not those its checksum names."""

    code = "damaged_shard"


class ForeignFile(StreamDRError):
    """Raised when a file was not written by stream_dr."""

    code = "foreign_file"


class UnknownFormat(StreamDRError):
    """Raised when a file was written in another format version."""

    code = "unknown_format"


class DamagedFile(StreamDRError):
    """Raised when a file's checksum does not match its bytes, or its arrays do not fit each other; names the array."""

    code = "damaged_file"


class DirectoryInUse(StreamDRError):
    """Raised when another process writes to the directory, or has written to it, or it was moved; names its pid."""

    code = "directory_in_use"


class DirectoryMissing(StreamDRError):
    """Raised when a directory holds no stream_dr log."""

    code = "directory_missing"


class KeyConflict(StreamDRError):
    """Raised when an idempotency key comes again with another body."""

    code = "key_conflict"


class HistoryGone(StreamDRError):
    """Raised when events before the retained part of the log are needed."""

    code = "history_gone"


class InsufficientStorage(StreamDRError):
    """Raised when the disk has less room than is needed (see `min_free_bytes`), is over its quota, or refuses writes."""

    code = "insufficient_storage"


class SourceMissing(StreamDRError):
    """Raised when a shard, file or data set cannot be found or fetched."""

    code = "source_missing"


class Overloaded(StreamDRError):
    """Raised when bodies waiting in memory, or the events not yet applied, are at their limit; try again later."""

    code = "overloaded"


class ShuttingDown(StreamDRError):
    """Raised when a batch or a job comes while the engine is stopping; send it again after the restart."""

    code = "shutting_down"


class UnknownJob(StreamDRError):
    """Raised when no job has that id."""

    code = "unknown_job"


class RemoteError(StreamDRError):
    """Raised by Client when the service refuses for a reason of its own (access, size, media type) or does not answer.

    details: status and the service's own code, where it answered.
    """

    code = "remote_error"


class UnknownVersion(StreamDRError):
    """Raised when a projection's version was never published or is no longer kept."""

    code = "unknown_version"


class OutputExists(StreamDRError):
    """Raised when files would be written where others of the same kind are already."""

    code = "output_exists"


class ClusterError(StreamDRError):
    """Raised when a Dask cluster does not answer, or cannot do what is asked of it; says which worker and why."""

    code = "cluster"
