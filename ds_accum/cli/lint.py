"""`ds-accum lint`: names what to lint and for which launch; everything else is `ds_accum.lint`."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

from ds_accum.cli.launch_options import LaunchOptions, launch_options
from ds_accum.cli.messages import COLORS, print_error, terminal_for
from ds_accum.cli.sections import SectionedCommand, option
from ds_accum.cli.settings_options import judge_of, settings_lines, settings_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ds_accum.lint.targets import Target

__all__ = ["FAIL_ON", "FORMATS", "lint"]

# The keys of `ds_accum.lint.reporters.REPORTERS`, and the severities: said here so that --help loads neither.
FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")
FAIL_ON = ("error", "warning", "info", "never")

_OUTPUT = "Output"
_FIXES = "Fixes"


@click.command(
    cls=SectionedCommand,
    short_help="Find what DeepSpeed would refuse, before a launch.",
    epilog="""\b
Exit code:
  0  clean
  1  findings at or above --fail-on; with --fix, those that are left; with
     --diff, any difference
  2  called wrongly, something could not be read or written, or a bug of
     ds-accum""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@launch_options
@settings_options
@option(
    "--fix",
    is_flag=True,
    section=_FIXES,
    help="Fix what can be fixed without a change to the training. The text of standard input goes to standard output.",
)
@option("--diff", is_flag=True, section=_FIXES, help="Write nothing, print what --fix would change as a unified diff.")
@option(
    "--unsafe-fixes",
    is_flag=True,
    section=_FIXES,
    help="With --fix or --diff: apply also what may change the training, or is only one of several remedies.",
)
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
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    section=_OUTPUT,
    help="Write the report there instead of standard output.",
)
@option(
    "--quiet",
    "-q",
    is_flag=True,
    section=_OUTPUT,
    help="Only findings at or above --fail-on, and no summary.",
)
@option(
    "--statistics",
    is_flag=True,
    section=_OUTPUT,
    help="Print how often each rule found something, in place of the findings.",
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
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    no_settings: bool,
    no_inline_config: bool,
    show_settings: bool,
    baseline: str | None,
    write_baseline: str | None,
    stdin_filename: str | None,
    fix: bool,
    diff: bool,
    unsafe_fixes: bool,
    format_name: str,
    fail_on: str,
    output_file: Path | None,
    quiet: bool,
    statistics: bool,
    color: str,
) -> int:
    """Find what DeepSpeed would refuse, before a launch.

    A PATH is a config file, a folder (its DeepSpeed configs are found by what they hold), a quoted glob, - for standard
    input, or a config in base64. YAML files of Accelerate and GPT-NeoX are understood too.

    \b
      ds-accum lint ds_config.json --world-size 64
      ds-accum lint configs --nodes 2 --gpus-per-node 8 --tp 2
      ds-accum lint 'conf/**/ds_*.json' --world-size 1-16 --format concise
      ds-accum lint ds_config.json --fix
    """
    from ds_accum.lint.linter import RULE_FAILED
    from ds_accum.lint.reporters import reporter_of
    from ds_accum.lint.targets import STANDARD_INPUT, find_targets

    if stdin_filename is not None and STANDARD_INPUT not in paths:
        raise click.UsageError("--stdin-filename names standard input, which is read only for a PATH of -.")
    if fix and diff:
        raise click.UsageError("--fix writes what --diff only shows: give one of them.")
    if unsafe_fixes and not (fix or diff):
        raise click.UsageError("--unsafe-fixes says which fixes --fix and --diff apply: give one of them too.")
    if (fix or diff) and (baseline is not None or write_baseline is not None):
        raise click.UsageError("--fix and --diff know nothing of a baseline: leave it out.")
    if diff and (format_name != "full" or statistics or output_file is not None):
        other = "--statistics" if statistics else f"--format {format_name}" if output_file is None else "--output-file"
        raise click.UsageError(f"--diff prints a difference and no report: leave {other} out.")
    if show_settings and (fix or diff or baseline is not None or write_baseline is not None):
        other = "--fix" if fix else "--diff" if diff else "--baseline" if baseline is not None else "--write-baseline"
        raise click.UsageError(f"--show-settings lints nothing: leave {other} out.")
    if statistics and format_name != "full":
        raise click.UsageError(f"--statistics is a report of its own: leave --format {format_name} out.")
    judge = judge_of(
        launch,
        select=select,
        ignore=ignore,
        fail_on=fail_on,
        no_settings=no_settings,
        no_inline_config=no_inline_config,
    )
    standard_input = _standard_input()
    if fix and STANDARD_INPUT in paths and standard_input is not None:
        standard_input = BytesIO(standard_input.read())
    targets = find_targets(
        paths,
        standard_input=standard_input,
        standard_input_name=stdin_filename,
        is_excluded=None if no_settings else judge.excludes,
    )
    for written, name in ((output_file, "--output-file"), (write_baseline, "--write-baseline")):
        if written is not None and _is_one_of(Path(written), targets.found):
            raise click.UsageError(f"{name} {written} would replace a config that is linted.")
    for problem in targets.problems:
        print_error(str(problem), help_=problem.remedy, color=color)
    if show_settings:
        click.echo("\n".join(settings_lines(judge, targets.found)))
        return 2 if targets.problems else 0
    if fix or diff:
        from ds_accum.cli.fixing import fix_targets, print_diff, result_of, write

        fixed = fix_targets(targets.found, judge, unsafe=unsafe_fixes, color=color)
        if diff:
            return 2 if targets.problems else int(print_diff(fixed))
        write(fixed, standard_input)
        result = result_of(fixed, judge)
    else:
        result = judge.result(targets.found)
    has_failed = bool(targets.problems) or any(item.code == RULE_FAILED for item in result.diagnostics)
    if baseline is not None or write_baseline is not None:
        from ds_accum.cli.baselines import record, without_known

        if write_baseline is not None:
            record(result, write_baseline, baseline, color=color)
            return 2 if has_failed else 0
        assert baseline is not None
        result = without_known(result, baseline, judge, targets.found, color=color)
    # Where the fixed text of standard input goes to standard output, the report goes to standard error.
    is_filter = fix and STANDARD_INPUT in paths
    stream = sys.stderr if is_filter else sys.stdout
    terminal = terminal_for(stream if output_file is None else None, color)
    report = reporter_of("statistics" if statistics else format_name)
    text = "".join(report(result.only_failing() if quiet else result, terminal))
    if output_file is None:
        click.echo(text, nl=False, color=terminal.color, err=is_filter)
    else:
        from ds_accum.cli.files import write_file

        write_file(output_file, text)
    return 2 if has_failed else int(result.fails)


def _is_one_of(path: Path, targets: Iterable[Target]) -> bool:
    """Whether one of the linted files is at this path, under whatever name."""
    return path.exists() and any(target.path is not None and path.samefile(target.path) for target in targets)


def _standard_input() -> BinaryIO | None:
    """None where the process was started without one."""
    stream: TextIO | None = sys.stdin
    return None if stream is None else stream.buffer
