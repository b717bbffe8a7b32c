"""The `ds-accum` command: one file a subcommand, loaded only when it is the one that runs."""
