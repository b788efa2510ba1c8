"""Why a model has published no projection, as the error that who asks for one gets."""

from stream_dr.errors import CatchingUp, NotFitted, StreamDRError
from stream_dr.models.model import Model


def why_unpublished(model: Model) -> StreamDRError:
    """ModelFailed where the model has failed, CatchingUp where there will be a projection in a moment, else NotFitted, or
    what its solver raised of that kind."""
    if model.failure is not None:
        return model.failed(model.failure)
    kind, why = _unsolved(model)
    return kind(f"model {model.name!r} {why}")


def _unsolved(model: Model) -> tuple[type[NotFitted], str]:
    if model.position < model.goal:
        return CatchingUp, (
            f"has published no projection yet: it has learned the log up to position {model.position} of {model.goal}. "
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

    if model.policy is not None and not model.soon:
        return NotFitted, (
            f"has not been published since it learned its {model.rows} rows ({model.policy.described}): "
            f"POST /models/{model.name}/publish."
        )
    return CatchingUp, (
        f"is not solved yet for its {model.rows} rows; a service or a replay that runs does so in a moment."
    )
