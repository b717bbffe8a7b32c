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
from ds_accum.errors import DSAccumError, UsageError

__all__ = ["SUBCOMMANDS", "cli", "main"]

# Name -> module in this folder with a command of that name, and what the overview says about it: `ds-accum --help` must
# not pay for loading any of them.
SUBCOMMANDS = {
    "compare": "Train under each ZeRO stage, DDP and FSDP, and compare on one page.",
    "completion": "Print the script that completes commands in a shell.",
    "env": "Print versions and what was detected, for a bug report.",
    "init": "Write a config to start from.",
    "ledger": "Account for one optimizer step: samples, tokens, bytes, steps.",
    "lint": "Find what DeepSpeed would refuse, before a launch.",
    "lsp": "Run the language server, for editors.",
    "memory": "Estimate what one rank needs, by part, each with its formula.",
    "plan": "Find the layouts that fit a model on GPUs, best first.",
    "rule": "Explain what a finding means, with examples.",
    "schedule": "Draw a pipeline's timeline, and say what its stages wait and hold.",
    "schema": "Print a JSON Schema of DeepSpeed's config, for editors.",
    "steps": "Summarize and plot the step log of a run.",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in SUBCOMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise _unknown_subcommand(name)
        return super().resolve_command(ctx, args)

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
        sentence, remedy = _said(error)
        print_error(sentence, help_=remedy)
        return FAILED
    except click.Abort:
        return INTERRUPTED
    except DSAccumError as error:
        print_error(error.message, help_=error.remedy)
        return FAILED
    except OSError as error:  # a full disk, for instance
        reason = error.strerror or str(error)
        print_error(f"can't write {error.filename or 'the output'}: {reason[:1].lower()}{reason[1:]}")
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


def _said(error: click.ClickException) -> tuple[str, str]:
    """What click says about a wrong call as one sentence, and what to do."""
    context: click.Context | None = getattr(error, "ctx", None)
    remedy = f"`{'ds-accum' if context is None else context.command_path} --help` says what there is"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = error.message
        if error.possibilities:
            remedy = f"did you mean {' or '.join(error.possibilities)}?"
    elif isinstance(error, click.MissingParameter) and error.param is not None and context is not None:
        # click lists the choices below each other; the hint names them already.
        message = f"missing {error.param.param_type_name} {error.param.get_error_hint(context)}"
    message = message.rstrip(".")
    return message[:1].lower() + message[1:], remedy


def _unknown_subcommand(name: str) -> UsageError:
    from difflib import get_close_matches  # a slow import, needed only here
    from pathlib import Path

    close = get_close_matches(name.lower(), SUBCOMMANDS, n=1)
    if close:
        remedy = f"did you mean `ds-accum {close[0]}`?"
    elif Path(name).exists():
        remedy = f"did you mean `ds-accum lint {name}`?"
    else:
        remedy = "`ds-accum --help` says what there is"
    return UsageError(f"there is no subcommand {name!r}", remedy=remedy)


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ds-accum")
@click.pass_context
def cli(context: click.Context) -> None:
    """Lint DeepSpeed configs, plan a training, and compare ZeRO stages in real runs.

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
