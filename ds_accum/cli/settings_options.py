"""The options of `ds-accum lint` about rules and settings, and what they come to: a `Judge` for the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.launch_options import LaunchOptions
from ds_accum.cli.sections import option
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.lint.in_force import InForce, Judge
    from ds_accum.lint.settings import Setting
    from ds_accum.lint.targets import Target

__all__ = ["judge_of", "settings_lines", "settings_options"]

_RULES = "Rules and settings"

_OPTIONS = (
    option(
        "--select",
        multiple=True,
        metavar="CODES",
        section=_RULES,
        help="Ask only these rules: codes, first characters of codes, or ALL, separated by commas.",
    ),
    option(
        "--ignore",
        multiple=True,
        metavar="CODES",
        section=_RULES,
        help="Leave these out; of --select and --ignore the longer code wins.",
    ),
    option("--no-settings", "--isolated", "no_settings", is_flag=True, section=_RULES, help="Read no settings file."),
    option(
        "--no-inline-config",
        is_flag=True,
        section=_RULES,
        help="Heed nothing that a config says about itself in ds_accum.lint: for a gate that nobody may open alone.",
    ),
    option(
        "--show-settings",
        is_flag=True,
        section=_RULES,
        help="Lint nothing, print every setting in force and where it comes from.",
    ),
    option(
        "--baseline",
        metavar="FILE",
        section=_RULES,
        help="Report only what this file does not know, and say what of it is found no more.",
    ),
    option(
        "--write-baseline",
        metavar="FILE",
        section=_RULES,
        help="Record everything that is found in a file for --baseline; the exit code is 0.",
    ),
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets each of them as an argument."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def judge_of(
    launch: LaunchOptions,
    *,
    select: Iterable[str],
    ignore: Iterable[str],
    fail_on: str,
    no_settings: bool,
    no_inline_config: bool,
) -> Judge:
    """What judges the files of this run. Raises UsageError and LayoutError for what the command line gets wrong."""
    from ds_accum.lint.in_force import CommandLine, Judge, severity_of

    version, version_source = launch.version()
    given = _given()
    command_line = CommandLine(
        launches=tuple(launch.launches(version)),
        version_source=version_source,
        given=given,
        select=_codes("--select", select) if "select" in given else None,
        ignore=_codes("--ignore", ignore),
        fail_on=severity_of(fail_on),
        has_settings=not no_settings,
        inline=not no_inline_config,
    )
    return Judge(command_line)


def _given() -> dict[str, str]:
    """Setting -> the options that give it in this call."""
    from ds_accum.lint.in_force import LAUNCH_FIELDS

    # A parameter of the command is called like the field of the launch that it gives.
    settings = {field: setting for setting, field in LAUNCH_FIELDS.items()}
    settings |= dict.fromkeys(("nodes", "gpus_per_node", "hostfile"), "world-size")
    settings |= {"select": "select", "ignore": "ignore", "fail_on": "fail-on"}
    context = click.get_current_context()
    given: dict[str, str] = {}
    for parameter in context.command.params:
        key = settings.get(parameter.name or "")
        if (
            key is not None
            and context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        ):
            given[key] = f"{given[key]} {parameter.opts[0]}" if key in given else parameter.opts[0]
    return given


def _codes(name: str, words: Iterable[str]) -> tuple[str, ...]:
    given = [word.strip() for argument in words for word in argument.split(",")]
    if not given:
        return ()
    from ds_accum.lint.rules import RULES
    from ds_accum.lint.selection import validated

    try:
        return validated(given, RULES)
    except UsageError as error:
        raise UsageError(f"{name}: {error}", remedy=error.remedy) from error


# ----------------------------------------------------------------------------------------------------- --show-settings


def settings_lines(judge: Judge, targets: Iterable[Target]) -> Iterable[str]:
    """The settings in force, once for all files that share them."""
    groups: dict[str, list[str]] = {}
    for target in targets:
        page = "\n".join(_lines_of(judge.in_force(target)))
        groups.setdefault(page, []).append(target.document.filename)
    for number, (page, names) in enumerate(groups.items()):
        if number:
            yield ""
        yield from names
        yield page


def _lines_of(held: InForce) -> Iterable[str]:
    rows = [(key, _said(key, setting), setting.origin) for key, setting in held.shown.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        yield f"  {key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip()
    yield f"  rules asked: {len(held.rules)}"


def _said(key: str, setting: Setting) -> str:
    value = setting.value
    if isinstance(value, dict):
        return "; ".join(f"{pattern}: {', '.join(codes)}" for pattern, codes in value.items()) or "none"
    if key == "target-deepspeed":
        from ds_accum.config.schema import format_version

        return ", ".join(format_version(version) for version in value)
    if not isinstance(value, tuple):
        return str(value)
    words = {None: "not given", True: "yes", False: "no"}
    return ", ".join(words[item] if item is None or isinstance(item, bool) else str(item) for item in value) or "none"
