"""`ds-accum completion`: what a shell has to run so that Tab completes subcommands, options, their values and rules."""

from __future__ import annotations

import click

__all__ = ["SHELLS", "completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    For this shell alone: source <(ds-accum completion bash)

    For every session, write it to a file where the shell looks for it:

    \b
      bash  ~/.local/share/bash-completion/completions/ds-accum
      zsh   ~/.zfunc/_ds-accum, with ~/.zfunc in fpath
      fish  ~/.config/fish/completions/ds-accum.fish
    """
    from click.shell_completion import get_completion_class

    root = context.find_root()
    name = root.info_name or "ds-accum"
    # click's own choice of a name, so that what the script calls is what click listens for.
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    completer = get_completion_class(shell)
    assert completer is not None
    # Unlike `source()`, this does not ask which bash is installed: the script may be for another machine.
    made = completer(root.command, {}, name, variable)
    click.echo(made.source_template % made.source_vars())
