"""Rows of a batch as the numerics see them, and the conversion of all input to them."""
