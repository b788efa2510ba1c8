"""rows: a batch as the numerics see it, and how rows of every form become one."""
