"""Blocks (batches of rows), and conversion of all input rows to them."""
