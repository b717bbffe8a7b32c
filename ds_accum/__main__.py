"""`python -m ds_accum`: the `ds-accum` command of this very Python."""

from ds_accum.cli.main import main

if __name__ == "__main__":
    main()
