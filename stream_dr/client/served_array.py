"""ServedArray: an array that a service returned, with the model and version that made it."""

from typing import Any, Self

import numpy as np

from stream_dr.aliases import JsonDict


class ServedArray(np.ndarray):
    """An ndarray that knows which projection made its rows.

    Slices, and arrays that are computed from it, know it too.

    Attributes
    ----------
    model : str
        Name of the model.
    version : int
        Version of its projection. Only answers of the same version can be compared.
        `Client.projection` leads from one version to the newest.
    position : int
        Last event of the log that the projection includes.
    solution : str
        "exact", "diagonal", "refined" or "recurrence".
    unseen : int
        Number of entries of the rows whose feature the projection does not know. They contribute
        nothing.

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
    def of(cls, values: Any, response: JsonDict) -> Self:
        """Return an array of `values` with the fields of a response.

        An array is not copied.
        """
        array = np.asarray(values).view(cls)
        array.model = str(response["model"])
        array.solution = str(response["solution"])
        array.version = int(response["version"])
        array.position = int(response["position"])
        array.unseen = int(response["unseen"])
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Copy the attributes of the array from which this one was made."""
        if isinstance(source, ServedArray):
            self.model = source.model
            self.solution = source.solution
            self.version = source.version
            self.position = source.position
            self.unseen = source.unseen
