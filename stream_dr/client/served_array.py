"""ServedArray: an array that a service answered, and by what."""

from typing import Any, Self

import numpy as np


class ServedArray(np.ndarray):
    """An ndarray like any other, which also knows by what its rows were answered; slices and what is computed of it do, too.

    Attributes
    ----------
    model : str
        The model's name.
    version : int
        Which of its projections: answers of one version may be compared. `Client.projection` leads from one to the newest.
    position : int
        The last event of the log that the projection includes.
    solution : str
        "exact", "diagonal", "refined" or "recurrence".
    unseen : int
        Entries of the rows past the features that the projection knows; they contributed nothing.
    """

    model: str
    version: int
    position: int
    solution: str
    unseen: int

    @classmethod
    def of(cls, values: Any, told: dict[str, Any]) -> Self:
        """An array of `values`, not copied where they are one, with what an answer tells of it."""
        array = np.asarray(values).view(cls)
        array.model, array.solution = str(told["model"]), str(told["solution"])
        array.version, array.position, array.unseen = (int(told[name]) for name in ("version", "position", "unseen"))
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Keep what is known of the array that this one is of."""
        self.model, self.solution = getattr(source, "model", ""), getattr(source, "solution", "")
        self.version, self.position = getattr(source, "version", 0), getattr(source, "position", -1)
        self.unseen = getattr(source, "unseen", 0)
