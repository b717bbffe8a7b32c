"""`ds-accum schema`: a JSON Schema of DeepSpeed's config, for an editor or for any tool that checks JSON."""

from __future__ import annotations

from pathlib import Path

import click

from ds_accum.cli.files import write_file
from ds_accum.cli.messages import print_note

__all__ = ["schema"]


@click.command(short_help="Print a JSON Schema of DeepSpeed's config, for editors.")
@click.option(
    "--deepspeed-version",
    metavar="VERSION",
    help="The release to describe; else the one installed beside ds-accum, else the newest known.",
)
@click.option(
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it there, in place of what was there before.",
)
def schema(deepspeed_version: str | None, output_file: Path | None) -> None:
    """Print a JSON Schema of DeepSpeed's config, for editors.

    An editor that knows it proposes keys and values, explains them, and marks what DeepSpeed refuses.

    \b
      ds-accum schema --output-file deepspeed.schema.json
      check-jsonschema --schemafile deepspeed.schema.json ds_config.json
    """
    import json

    from ds_accum.cli.installed_deepspeed import release_to_judge_for
    from ds_accum.config.json_schema import json_schema
    from ds_accum.config.schema import stand_in_for

    version, _ = release_to_judge_for(deepspeed_version)
    stand_in = stand_in_for(version)
    if stand_in is not None:
        print_note(stand_in)
    text = json.dumps(json_schema(version), indent=2, ensure_ascii=False) + "\n"
    if output_file is None:
        click.echo(text, nl=False)
    else:
        write_file(output_file, text)
