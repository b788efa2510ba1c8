"""Commands of `stream-dr`.

Each command is a function, whose parameters are the command's options.
"""
