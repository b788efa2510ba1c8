"""The gate of a stream: what a batch must have in common with the batches before it."""
