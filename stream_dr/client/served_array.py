"""ServedArray: an array that names the model that computed it."""

from typing import Any, Self

import numpy as np

from stream_dr.aliases import JsonDict


class ServedArray(np.ndarray):
    """An ndarray with the model and version that computed it.

    Slices of the array, and arrays computed from the array, have equal attributes.

    Attributes
    ----------
    model : str
        Name of the model.
    version : int
        Version of the model's projection. Projected rows can be compared only if their versions
        are equal. `Client.projection` shows how to convert rows from an older version.
    position : int
        Log position of the last event that the projection includes.
    solution : str
        How the projection was computed: "exact", "diagonal", "refined" or "recurrence".
    unseen : int
        Number of values in the rows whose feature the model has not learned. These values have no
        effect on the result.

    Examples
    --------
    >>> import stream_dr
    >>> with stream_dr.Client(url) as client:  # a running service, as "http://127.0.0.1:8000"
    ...     _ = client.put_model("pca", "pca", n_components=1)
    ...     _ = client.partial_fit([[1.0, 2.0], [3.0, 1.0]], wait=True)
    ...     z = client.transform([[1.0, 2.0]], model="pca")
    >>> z.model, z.shape
    ('pca', (1, 1))
    """

    model: str = ""
    version: int = 0
    position: int = -1
    solution: str = ""
    unseen: int = 0

    @classmethod
    def from_response(cls, values: Any, response: JsonDict) -> Self:
        """Return `values` with fields of a response as attributes.

        If `values` is an array, the result shares its memory.

        response: response of the service, with the fields "model", "version", "position",
            "solution" and "unseen".
        """
        array = np.asarray(values).view(cls)
        array.model = str(response["model"])
        array.solution = str(response["solution"])
        array.version = int(response["version"])
        array.position = int(response["position"])
        array.unseen = int(response["unseen"])
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Copy the attributes of `source`, from which numpy made this array."""
        if isinstance(source, ServedArray):
            vars(self).update(vars(source))
