"""ServedArray: an array that a service returned, with the model and version that made it."""

from typing import Any, Self

import numpy as np


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
    """

    model: str
    version: int
    position: int
    solution: str
    unseen: int

    @classmethod
    def of(cls, values: Any, response: dict[str, Any]) -> Self:
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
        self.model = getattr(source, "model", "")
        self.solution = getattr(source, "solution", "")
        self.version = getattr(source, "version", 0)
        self.position = getattr(source, "position", -1)
        self.unseen = getattr(source, "unseen", 0)
