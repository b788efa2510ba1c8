"""Rows of a batch as the numerics see them, and the conversion of every input form to such rows."""
