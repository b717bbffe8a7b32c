"""`ds-accum lint`: names what to lint and for which launch; everything else is `ds_accum.lint`."""

from __future__ import annotations

import sys
from typing import BinaryIO, TextIO

import click

from ds_accum.cli.launch_options import LaunchOptions, launch_options
from ds_accum.cli.messages import COLORS, print_error, terminal_for
from ds_accum.cli.sections import SectionedCommand, option

__all__ = ["FAIL_ON", "FORMATS", "lint"]

# The keys of `ds_accum.lint.reporters.REPORTERS`, and the severities: said here so that --help loads neither.
FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")
FAIL_ON = ("error", "warning", "info", "never")

_OUTPUT = "Output"


@click.command(
    cls=SectionedCommand,
    short_help="Find what DeepSpeed would refuse, before a launch.",
    epilog="""\b
Exit code:
  0  clean
  1  findings at or above --fail-on
  2  called wrongly, something could not be read, or a bug of ds-accum""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@launch_options
@option(
    "--stdin-filename",
    metavar="FILE",
    section=_OUTPUT,
    help="What to call standard input; its extension says how it is read.",
)
@option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    default="full",
    show_default=True,
    section=_OUTPUT,
    help=f"How to print findings: {', '.join(FORMATS)}.",
)
@option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    metavar="SEVERITY",
    default="error",
    show_default=True,
    section=_OUTPUT,
    help="What makes the exit code 1: error, warning, info, or never.",
)
@option(
    "--color",
    type=click.Choice(COLORS),
    metavar="WHEN",
    default="auto",
    show_default=True,
    section=_OUTPUT,
    help="auto (on a terminal, unless NO_COLOR or FORCE_COLOR is set), always, never.",
)
def lint(
    paths: tuple[str, ...],
    launch: LaunchOptions,
    stdin_filename: str | None,
    format_name: str,
    fail_on: str,
    color: str,
) -> int:
    """Find what DeepSpeed would refuse, before a launch.

    A PATH is a config file, a folder (its DeepSpeed configs are found by what they hold), a quoted glob, - for standard
    input, or a config in base64. YAML files of Accelerate and GPT-NeoX are understood too.

    \b
      ds-accum lint ds_config.json --world-size 64
      ds-accum lint configs --nodes 2 --gpus-per-node 8 --tp 2
      ds-accum lint 'conf/**/ds_*.json' --world-size 1-16 --format concise
    """
    from ds_accum.lint.diagnostic import Severity
    from ds_accum.lint.linter import RULE_FAILED
    from ds_accum.lint.reporters import reporter_of
    from ds_accum.lint.result import LintResult, judge
    from ds_accum.lint.targets import STANDARD_INPUT, find_targets

    if stdin_filename is not None and STANDARD_INPUT not in paths:
        raise click.UsageError("--stdin-filename names standard input, which is read only for a PATH of -.")
    version, version_source = launch.version()
    launches = launch.launches(version)
    targets = find_targets(paths, standard_input=_standard_input(), standard_input_name=stdin_filename)
    for problem in targets.problems:
        print_error(str(problem), help_=problem.remedy, color=color)
    result = LintResult(
        files=tuple(judge(target, launches) for target in targets.found),
        version=version,
        version_source=version_source,
    )
    terminal = terminal_for(sys.stdout, color)
    text = "".join(reporter_of(format_name)(result, terminal))
    click.echo(text, nl=False, color=terminal.color)
    if targets.problems or any(item.code == RULE_FAILED for item in result.diagnostics):
        return 2
    return int(fail_on != "never" and result.reaches(Severity(fail_on)))


def _standard_input() -> BinaryIO | None:
    """None where the process was started without one."""
    stream: TextIO | None = sys.stdin
    return None if stream is None else stream.buffer
