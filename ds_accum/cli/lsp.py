"""`ds-accum lsp`: the language server, on standard input and output."""

from __future__ import annotations

import click

from ds_accum.errors import UsageError

__all__ = ["lsp"]


@click.command(short_help="Run the language server, for editors.")
@click.option("--stdio", is_flag=True, help="Talk over standard input and output, as it always does.")
def lsp(stdio: bool) -> None:  # noqa: ARG001 - some editors pass it to every server
    """Run the language server, for editors.

    It shows what the linter finds while a config is typed, explains it, and fixes it. An editor starts it; say to the
    editor what is launched in its initialization options, as in

    \b
      {"worldSize": 64, "framework": "huggingface", "clientOptimizer": true}
    """
    from ds_accum.cli.installed_deepspeed import release_to_judge_for

    try:
        from ds_accum.lsp.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise UsageError(
            f"the language server needs pygls 2, and {error.name} is not installed",
            remedy="pip install 'ds-accum[lsp]'",
        ) from error
    make_server(release=release_to_judge_for(None)).start_io()
