"""For people at a terminal: each finding with its sentence, the line it is about, the remedy, and a summary.

    ds_config.json:2:23: error[DSA101] batch-size-mismatch
      train_batch_size 256 (line 2) is not micro batch 8 (line 3) x accumulation 2
      (line 4) x data parallel 8 (the world size) = 128
        |
      2 |   "train_batch_size": 256,
        |                       ^^^
        = help: set train_batch_size to 128, or ...
        = fix: remove train_batch_size (unsafe; --fix --unsafe-fixes applies it)
        = note: DeepSpeed refuses this when it loads the config

    1 error in 1 file, for DeepSpeed 0.19.8 (installed) at world size 8
    --fix --unsafe-fixes would fix 1

The text of the file is shown as it is, except that tabs are spread and that what a terminal would act on is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Document
from ds_accum.config.schema import format_version, stand_in_for
from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Diagnostic, Severity, When
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.reporters.terminal import Terminal, inert, wrapped
from ds_accum.lint.result import LintResult
from ds_accum.lint.rules import RULES

__all__ = ["diagnostic_lines", "report", "summary"]

_INDENT = "  "

# When DeepSpeed, or who reads the config before it, would have noticed: of what it is sure to meet, and of what depends
# on something unknown.
_SURE = {
    When.LOAD: "{} refuses this when it loads the config",
    When.START: "{} refuses this at start, once every rank is up",
    When.FIRST_STEP: "{} fails on this at the first step",
    When.NEVER: "{} never notices this",
}
_UNSURE = {
    When.LOAD: "{} may refuse this when it loads the config",
    When.START: "{} may refuse this at start, once every rank is up",
    When.FIRST_STEP: "{} may fail on this at the first step",
    When.NEVER: "{} never notices this",
}


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:
    """Every finding, a blank line after each, then the summary; nothing if there was nothing to lint."""
    if not result.files:
        return
    for file in result.files:
        for diagnostic in file.diagnostics:
            document = file.document if file.has_excerpts else None
            for line in diagnostic_lines(diagnostic, document, file.world_sizes, terminal):
                yield f"{inert(line)}\n"
            yield "\n"
    if not result.has_summary:
        return
    for line in (*summary(result, terminal), *_fixes(result, terminal), *_version_note(result, terminal)):
        yield f"{line}\n"


def diagnostic_lines(
    diagnostic: Diagnostic, document: Document | None, world_sizes: tuple[int, ...], terminal: Terminal
) -> Iterator[str]:
    """One finding; `world_sizes` are those that its file was judged for. Without the document no line is shown."""
    place = f"{printable(diagnostic.filename)}:{diagnostic.start.line}:{diagnostic.start.column}:"
    rule = terminal.paint_as(diagnostic.severity, f"{diagnostic.severity.value}[{diagnostic.code}]")
    yield f"{terminal.paint(place, 'bold')} {rule} {diagnostic.name}"
    for line in wrapped(printable(diagnostic.message), terminal.width - len(_INDENT)):
        yield _INDENT + terminal.paint(line, "bold")

    margin = " " * len(str(diagnostic.start.line))
    gutter = f"{_INDENT}{margin} "
    remarks = list(_remarks(diagnostic, world_sizes))
    if document is None:
        remarks.append(("note", "no line is shown: the file is a link to one outside the project"))
    else:
        from ds_accum.lint.reporters.excerpt import excerpt_of  # a clean file has none

        excerpt = excerpt_of(document, diagnostic.start, diagnostic.end, width=terminal.width - len(gutter) - 2)
        bar = terminal.paint("|", "dim")
        yield f"{gutter}{bar}"
        yield f"{_INDENT}{terminal.paint(str(excerpt.line_number), 'dim')} {bar} {excerpt.text}".rstrip()
        carets = terminal.paint_as(diagnostic.severity, "^" * excerpt.caret_columns)
        yield f"{gutter}{bar} {' ' * excerpt.caret_column}{carets}"

    for label, text in remarks:
        sign = f"= {label}: "
        first, *rest = wrapped(printable(text), terminal.width - len(gutter) - len(sign))
        yield f"{gutter}{terminal.paint('=', 'dim')} {terminal.paint(f'{label}:', 'bold')} {first}"
        for line in rest:
            yield f"{gutter}{' ' * len(sign)}{line}"


def summary(result: LintResult, terminal: Terminal) -> Iterator[str]:
    """What was found, in how many files, and for which DeepSpeed and world sizes."""
    counts = {severity: result.count(severity) for severity in Severity}
    found = {severity: _counted(count, severity.value) for severity, count in counts.items() if count}
    version = f"DeepSpeed {format_version(result.version)} ({result.version_source})"
    sizes = result.world_sizes
    worlds = f" at world size{'s' if len(sizes) > 1 else ''} {_ranges(sizes)}" if sizes else ", world size not given"
    without = sum(not file.world_sizes for file in result.files)
    if sizes and without:
        worlds += f" (not given for {_counted(without, 'file')})"
    said = ", ".join(found.values()) or "nothing found"
    suppressed = sum(len(file.suppressed) for file in result.files)
    if suppressed:
        said = f"{said} ({suppressed:,} suppressed)"
    first, *rest = wrapped(f"{said} in {_counted(len(result.files), 'file')}, for {version}{worlds}", terminal.width)
    # Only what is laid out already can be painted: the escapes would count as columns.
    for severity, count in found.items():
        first = first.replace(count, terminal.paint_as(severity, count), 1)
    yield first if found else first.replace(said, terminal.paint(said, "bold", "green"), 1)
    yield from rest


def _fixes(result: LintResult, terminal: Terminal) -> Iterator[str]:
    """What was fixed, file by file, and how much more could be."""
    for file in result.files:
        if file.fixed:
            yield from wrapped(printable(f"fixed {file.fixed:,} in {file.document.filename}"), terminal.width)
    safe, unsafe = result.count_fixable(is_safe=True), result.count_fixable(is_safe=False)
    said = [f"--fix would fix {safe:,}"] * bool(safe)
    if unsafe:
        said.append(f"--unsafe-fixes {unsafe:,} more" if safe else f"--fix --unsafe-fixes would fix {unsafe:,}")
    if said:
        yield ", ".join(said)


def _remarks(diagnostic: Diagnostic, world_sizes: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if diagnostic.help is not None:
        yield "help", diagnostic.help
    if diagnostic.fix is not None:
        how = "safe; --fix applies it" if diagnostic.fix.is_safe else "unsafe; --fix --unsafe-fixes applies it"
        yield "fix", f"{diagnostic.fix.title} ({how})"
    if diagnostic.code == RULE_FAILED:
        return
    if diagnostic.worlds:
        sizes = "size" if len(diagnostic.worlds) == 1 else "sizes"
        yield "note", f"at world {sizes} {_ranges(diagnostic.worlds)} of {_ranges(world_sizes)}"
    if diagnostic.severity is Severity.ERROR:
        yield "note", _SURE[diagnostic.when].format(_who_notices(diagnostic))
    elif diagnostic.severity is Severity.WARNING:
        yield "note", _UNSURE[diagnostic.when].format(_who_notices(diagnostic))


def _who_notices(diagnostic: Diagnostic) -> str:
    rule = RULES.by_code.get(diagnostic.code)  # None for a rule that a caller has brought
    return "DeepSpeed" if rule is None else rule.noticed_by


def _version_note(result: LintResult, terminal: Terminal) -> Iterator[str]:
    """That the release is none of those that the rules were made from."""
    stand_in = stand_in_for(result.version)
    if stand_in is not None:
        yield from wrapped(f"note: {stand_in}", terminal.width)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _ranges(sizes: tuple[int, ...]) -> str:
    """World sizes, ascending, four and more in a row as a range: "1, 2, 8-16"."""
    said: list[str] = []
    begin = 0
    for index, size in enumerate(sizes):
        if index + 1 < len(sizes) and sizes[index + 1] == size + 1:
            continue
        run = sizes[begin : index + 1]
        said += [f"{run[0]}-{run[-1]}"] if len(run) > 3 else map(str, run)
        begin = index + 1
    return ", ".join(said)
