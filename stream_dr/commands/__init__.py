"""Commands of `stream-dr`, one function per file. Its parameters are the command's options."""
