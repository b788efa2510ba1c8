"""Reasons why a model has published no projection, as errors for requests."""

from stream_dr.errors import CatchingUp, NotFitted, StreamDRError
from stream_dr.models.model import Model


def unpublished_error(model: Model) -> StreamDRError:
    """Return the error for a request to a model without a projection.

    ModelFailed if the model has failed, CatchingUp if there will be a projection in a moment, else
    NotFitted or the solver's error of that kind.
    """
    if model.failure is not None:
        return model.failure_error(model.failure)
    kind, why = _unsolved_reason(model)
    return kind(f"model {model.name!r} {why}")


def _unsolved_reason(model: Model) -> tuple[type[NotFitted], str]:
    """Return the class and the text of the error."""
    if model.position < model.log_end:
        return CatchingUp, (
            f"has published no projection yet: it has learned the log up to position {model.position} of {model.log_end}. "
            "Ask again in a moment, while a service or a replay runs."
        )
    if model.rows == 0:
        return NotFitted, "has published no projection yet: it has learned no row. Send rows first."

    error = model.solve_error
    if error is not None:
        kind = type(error) if isinstance(error, NotFitted) else NotFitted
        if isinstance(error, StreamDRError):
            return kind, f"has no projection of its {model.rows} rows: {error}"
        return kind, f"could not be solved ({type(error).__name__}); the log has the details."

    if model.policy is not None and not model.auto_publishes:
        return NotFitted, (
            f"has not been published since it learned its {model.rows} rows ({model.policy.described}): "
            f"POST /models/{model.name}/publish."
        )
    return CatchingUp, (
        f"is not solved yet for its {model.rows} rows; a service or a replay that runs does so in a moment."
    )
