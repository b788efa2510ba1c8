"""Targets of rows, and the parsing of what a caller passes as y."""
