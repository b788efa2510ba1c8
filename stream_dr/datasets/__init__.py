"""Where rows come from: readers of the field's formats, conversion to shards, public data sets, generated rows."""
