"""`ds-accum`: finds the subcommand, runs it, and turns whatever happens into an exit code and at most one sentence.

    0    clean
    1    findings at or above --fail-on
    2    called wrongly, something could not be read, or a bug of ours
    130  interrupted; 141 whoever read the output has gone: as for any command of the system

A subcommand is a click command that returns its exit code, None for 0.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from ds_accum import __version__
from ds_accum.cli.messages import print_error
from ds_accum.errors import DSAccumError

__all__ = ["SUBCOMMANDS", "cli", "main"]

# Name -> module in this folder with a command of that name, and what the overview says about it: `ds-accum --help` must
# not pay for loading any of them.
SUBCOMMANDS = {
    "completion": "Print the script that completes commands in a shell.",
    "env": "Print versions and what was detected, for a bug report.",
    "init": "Write a config to start from.",
    "lint": "Find what DeepSpeed would refuse, before a launch.",
    "lsp": "Run the language server, for editors.",
    "rule": "Explain what a finding means, with examples.",
    "schema": "Print a JSON Schema of DeepSpeed's config, for editors.",
}

FAILED = 2
INTERRUPTED = 130
READER_HAS_GONE = 141

# Set to 1 to see where a bug of ours struck.
TRACEBACK_VARIABLE = "DS_ACCUM_TRACEBACK"


class LazyGroup(click.Group):
    """The group of all subcommands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUBCOMMANDS:
            return None
        command = getattr(import_module(f"ds_accum.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _discard_output()
            return READER_HAS_GONE

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        run = functools.partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _never_fail_to_encode()
        sys.exit(_exit_code_of(run))


def _exit_code_of(run: Callable[[], Any]) -> int:
    """What a command returns; an error is said in one sentence first."""
    try:
        return run() or 0
    except click.ClickException as error:
        message = error.format_message().rstrip(".")
        context = getattr(error, "ctx", None)
        command = "ds-accum" if context is None else context.command_path
        print_error(message[:1].lower() + message[1:], help_=f"`{command} --help` says what there is")
        return FAILED
    except click.Abort:
        return INTERRUPTED
    except DSAccumError as error:
        print_error(str(error), help_=error.remedy)
        return FAILED
    except OSError as error:  # a full disk, for instance
        print_error(" ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        _discard_output()
        return FAILED
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        print_error(
            f"ds-accum failed with {type(error).__name__}: {error}",
            help_=f"this is a bug of ds-accum {__version__}: please report it with the command, the file, and what it"
            f" prints with {TRACEBACK_VARIABLE}=1 in the environment",
        )
        return FAILED


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ds-accum")
@click.pass_context
def cli(context: click.Context) -> None:
    """Lint DeepSpeed configs before a launch.

    `ds-accum COMMAND --help` explains a command.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(FAILED)


def main() -> NoReturn:
    """The console script."""
    # What is loaded stays, and a run is short: looking for garbage in it is a tenth of the time that a run takes.
    gc.set_threshold(100_000)
    cli(prog_name="ds-accum")
    raise AssertionError("click exits")


def _discard_output() -> None:
    """Keeps Python from trying once more to write what is left when it exits."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _never_fail_to_encode() -> None:
    """Lets a terminal that can't show a character show its escape: a report must not die of a file's name."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
