"""Rows of a batch as arrays of numbers, and the conversion of all input to them."""
