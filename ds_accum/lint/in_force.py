"""What holds for each file: the command line before the file itself, and that before the settings file.

    command line    --world-size 64              every file of the run
    in the file     ds_accum.lint.world_size     this file; num_processes of the Accelerate YAML that launches it
    settings file   world-size = 64              every file below it
    default                                      world size unknown

Rules are chosen in layers instead (`ds_accum.lint.selection`): what the settings file leaves is what the command line
chooses from, unless it selects anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, NamedTuple

from ds_accum.config.launch import Launch
from ds_accum.config.schema import format_version
from ds_accum.errors import LayoutError
from ds_accum.lint.diagnostic import Severity
from ds_accum.lint.inline import NOTHING, read_inline
from ds_accum.lint.result import FileResult, LintResult, judge
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES
from ds_accum.lint.settings import Setting, SettingsFile, SettingsSearch
from ds_accum.lint.targets import Target

__all__ = ["LAUNCH_FIELDS", "CommandLine", "InForce", "Judge", "severity_of"]

# Setting -> the field of a launch.
LAUNCH_FIELDS = {
    "target-deepspeed": "deepspeed_version",
    "world-size": "world_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "cp": "context_parallel_size",
    "sp": "sequence_parallel_size",
    "ep": "expert_parallel_size",
    "framework": "framework",
    "client-optimizer": "client_optimizer",
    "client-scheduler": "client_scheduler",
    "engine": "engine",
    "accelerator": "accelerator",
}
_LAYOUT = ("world-size", "tp", "pp", "cp", "sp", "ep")
_DEFAULT = "default"


class CommandLine(NamedTuple):
    """What one run was told. `given` maps a setting to the option that gives it; `version_source` says why the
    DeepSpeed release of the launches is the one to judge for where none is given."""

    launches: tuple[Launch, ...]
    version_source: str
    given: Mapping[str, str] = MappingProxyType({})
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    has_settings: bool = True
    inline: bool = True


class InForce(NamedTuple):
    """What holds for one target; `shown` are all settings by name, as they are in force and where they come from."""

    launches: tuple[Launch, ...]
    rules: Sequence[Rule]
    fail_on: Severity | None
    shown: Mapping[str, Setting]

    @property
    def version_source(self) -> str:
        return self.shown["target-deepspeed"].origin


class Judge:
    """Lints targets, each with what holds for it."""

    def __init__(self, command_line: CommandLine) -> None:
        self.command_line = command_line
        self._search = SettingsSearch()

    def __call__(self, target: Target) -> FileResult:
        """Raises LayoutError where degrees do not fit a world, UsageError where a settings file is wrong."""
        held = self.in_force(target)
        return judge(target, held.launches, rules=held.rules, inline=self.command_line.inline, fail_on=held.fail_on)

    def result(self, targets: Sequence[Target]) -> LintResult:
        """The result for all targets; raises as a call does."""
        files = tuple(map(self, targets))
        first = self.command_line.launches[0].version
        source = self.command_line.version_source
        versions = sorted({launch.version for file in files for launch in file.launches} or {first})
        if versions != [first]:
            # The settings of one file at least name another release.
            source = self.in_force(targets[0]).version_source
            if len(versions) > 1:
                source = f"for some files {', '.join(map(format_version, versions[:-1]))}"
        return LintResult(files=files, version=versions[-1], version_source=source)

    def excludes(self, path: FilePath) -> bool:
        """Whether the settings file above a path leaves it out of what is found in a folder."""
        file = self._settings_above(path)
        return file is not None and file.excludes(path.absolute())

    def in_force(self, target: Target) -> InForce:
        """What holds for a target; raises as a call does."""
        file = self._settings_above(_path_of(target))
        command_line = self.command_line
        settings = {} if file is None else {k: s for k, s in file.settings.items() if k not in command_line.given}
        inline = read_inline(target.document) if command_line.inline else NOTHING

        told = target.launches([inline.complete(launch, target.document) for launch in command_line.launches])
        launches = tuple(dict.fromkeys(item for launch in told for item in _completed(launch, settings)))

        origins = {key: command_line.given.get(key) or _DEFAULT for key in LAUNCH_FIELDS}
        origins["target-deepspeed"] = command_line.given.get("target-deepspeed") or command_line.version_source
        origins |= {key: settings[key].origin for key in LAUNCH_FIELDS if key in settings}
        name = target.document.filename
        for key, said in (("world-size", inline.world_size), ("framework", inline.framework)):
            if key not in command_line.given:
                if said is not None:
                    origins[key] = f"{name} (ds_accum.lint.{key.replace('-', '_')})"
                elif any(getattr(launch, LAUNCH_FIELDS[key]) is not None for launch in told):
                    origins[key] = " and ".join(item.filename for item in target.launched_by) or name
        for launch in launches:
            _check_layout(launch, name, origins)

        rules = self._rules(file, _path_of(target))
        fail_on = severity_of(settings["fail-on"].value) if "fail-on" in settings else command_line.fail_on
        values: dict[str, Any] = {
            key: tuple(dict.fromkeys(getattr(launch, name) for launch in launches))
            for key, name in LAUNCH_FIELDS.items()
        }
        shown = {key: Setting(values[key], origins[key]) for key in LAUNCH_FIELDS}
        shown |= self._other_settings(file, fail_on)
        return InForce(launches=launches, rules=rules, fail_on=fail_on, shown=shown)

    def _settings_above(self, path: FilePath) -> SettingsFile | None:
        return self._search.above(path) if self.command_line.has_settings else None

    def _rules(self, file: SettingsFile | None, path: FilePath) -> Sequence[Rule]:
        told = self.command_line
        layers: list[tuple[tuple[str, ...] | None, tuple[str, ...]]] = []
        if file is not None:
            layers.append((file.value("select", None), file.value("ignore", ())))
        layers.append((told.select, told.ignore))
        if file is not None:
            for pattern, codes in file.value("per-file-ignores", {}).items():
                if file.means(pattern, path.absolute()):
                    layers.append((None, codes))
        if all(select is None and not ignore for select, ignore in layers):
            return RULES
        from ds_accum.lint.selection import Choice, selected  # most runs ask every rule

        return selected(RULES, [Choice(select=select, ignore=ignore) for select, ignore in layers])

    def _other_settings(self, file: SettingsFile | None, fail_on: Severity | None) -> Iterator[tuple[str, Setting]]:
        told = self.command_line
        of_file = {} if file is None else file.settings
        ignored = [] if "ignore" not in of_file or told.select is not None else [of_file["ignore"]]
        ignored += [Setting(told.ignore, told.given["ignore"])] if told.ignore else []
        yield (
            "select",
            Setting(told.select, told.given["select"])
            if told.select is not None
            else of_file.get("select", Setting(("ALL",), _DEFAULT)),
        )
        yield (
            "ignore",
            Setting(
                tuple(code for item in ignored for code in item.value),
                " and ".join(item.origin for item in ignored) or _DEFAULT,
            ),
        )
        yield "per-file-ignores", of_file.get("per-file-ignores", Setting({}, _DEFAULT))
        fails = told.given.get("fail-on") or (of_file["fail-on"].origin if "fail-on" in of_file else _DEFAULT)
        yield "fail-on", Setting("never" if fail_on is None else fail_on.value, fails)
        yield "exclude", of_file.get("exclude", Setting((), _DEFAULT))


def severity_of(fail_on: str) -> Severity | None:
    """The severity that a `--fail-on` names, None for "never"."""
    return None if fail_on == "never" else Severity(fail_on)


def _path_of(target: Target) -> FilePath:
    """Where settings are looked for: standard input and base64 have the working directory's."""
    name = target.document.filename
    return FilePath("ds_config.json" if name.startswith("<") else name)


def _completed(launch: Launch, settings: Mapping[str, Setting]) -> Iterator[Launch]:
    """The launch with the settings of the file, for each of its world sizes where none is known."""
    changes = {
        name: settings[key].value
        for key, name in LAUNCH_FIELDS.items()
        if key in settings and key != "world-size" and (key != "framework" or launch.framework is None)
    }
    launch = replace(launch, **changes)
    if launch.world_size is None and "world-size" in settings:
        yield from (replace(launch, world_size=size) for size in settings["world-size"].value)
    else:
        yield launch


def _check_layout(launch: Launch, filename: str, origins: Mapping[str, str]) -> None:
    try:
        launch.layout()
    except LayoutError as error:
        said = [f"{key} of {origins[key]}" for key in _LAYOUT if origins[key] != _DEFAULT]
        raise LayoutError(f"{filename}, with {', '.join(said)}: {error}", remedy=error.remedy) from error
