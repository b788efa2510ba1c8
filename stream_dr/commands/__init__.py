"""Commands of `stream-dr`. Each is a function, whose parameters are the command's options."""
