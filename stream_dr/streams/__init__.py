"""Where rows come from and are kept: Arrow codec, shards, log, atomic files, readers of the field's formats."""
