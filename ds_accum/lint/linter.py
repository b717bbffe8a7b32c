"""Text + launches -> diagnostics: read, find the config in it, ask every rule, put each finding at its place.

What a document says to the linter in its own `ds_accum` block holds (`ds_accum.lint.inline`), unless `inline` is false:
its suppressions, and what its launch is where the caller leaves that open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import NamedTuple

from ds_accum.config.document import Document, Path, Syntax, read_bytes, read_text
from ds_accum.config.embedded import EmbeddedConfig, find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.references import find_reference
from ds_accum.lint.context import LintContext, Review
from ds_accum.lint.diagnostic import Diagnostic, Finding, Severity, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.inline import NOTHING, Inline, read_inline
from ds_accum.lint.origin import PLAIN_TEXT, Origin
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES, Rules
from ds_accum.lint.words import words_of

# A rule that raises is reported under this code; the others still run.
RULE_FAILED = "DSA000"


def lint_text(
    text: str,
    *,
    filename: str = "<text>",
    launches: Sequence[Launch] = (Launch(),),
    syntax: Syntax | None = None,
    rules: Sequence[Rule] = RULES,
    origin: Origin = PLAIN_TEXT,
) -> list[Diagnostic]:
    """The diagnostics of a config given as text, in the order of the file.

    `launches` are the launches to judge it for, usually one a world size. The syntax is taken from the file name's
    extension unless given.
    """
    syntax = syntax or _syntax_of(filename)
    document = read_text(text, filename=filename, syntax=syntax)
    return lint_document(document, launches=launches, rules=rules, origin=origin)


def lint_file(
    path: str | FilePath, *, launches: Sequence[Launch] = (Launch(),), rules: Sequence[Rule] = RULES
) -> list[Diagnostic]:
    """The diagnostics of a config file. Raises OSError if it can't be read."""
    path = FilePath(path)
    document = read_bytes(path.read_bytes(), filename=str(path))
    origin = Origin(reference=find_reference(document, path))
    return lint_document(document, launches=launches, rules=rules, origin=origin)


def lint_document(
    document: Document,
    *,
    launches: Sequence[Launch] = (Launch(),),
    rules: Sequence[Rule] = RULES,
    origin: Origin = PLAIN_TEXT,
    inline: bool = True,
) -> list[Diagnostic]:
    """The diagnostics of a document that was read already, without those that it suppresses itself.

    Raises LayoutError where the degrees of a launch do not fit its world size.
    """
    return list(examine(document, launches=launches, rules=rules, origin=origin, inline=inline).found)


class Examination(NamedTuple):
    """What was found in a document, and what of it the document suppresses, both in the order of the text."""

    found: tuple[Diagnostic, ...]
    suppressed: tuple[Diagnostic, ...] = ()


def examine(
    document: Document,
    *,
    launches: Sequence[Launch] = (Launch(),),
    rules: Sequence[Rule] = RULES,
    origin: Origin = PLAIN_TEXT,
    inline: bool = True,
) -> Examination:
    """As `lint_document`, with what is suppressed."""
    settings = read_inline(document) if inline else NOTHING
    launches = [settings.complete(launch, document) for launch in launches]
    fixes = _FixesOf(document, origin)
    diagnostics = _lint_for_each(document, origin, launches, rules, fixes)
    if not settings.ignore:
        return Examination(found=tuple(diagnostics))
    diagnostics = _in_order([*diagnostics, *_reviewed(document, settings, diagnostics, rules, fixes)])
    hidden = settings.ignore.keys() & {rule.code for rule in RULES}
    return Examination(
        found=tuple(item for item in diagnostics if item.code not in hidden),
        suppressed=tuple(item for item in diagnostics if item.code in hidden),
    )


def _reviewed(
    document: Document, settings: Inline, diagnostics: Sequence[Diagnostic], rules: Sequence[Rule], fixes: _FixesOf
) -> Iterator[Diagnostic]:
    """What there is to say about the suppressions themselves."""
    review = Review(
        ignored=settings.ignore,
        found=frozenset(item.code for item in diagnostics),
        asked=frozenset(rule.code for rule in rules),
        known=tuple(RULES),
    )
    context = replace(LintContext.of(document, EmbeddedConfig(values={}), Launch()), review=review)
    for rule in rules:
        if rule.needs == "review":
            for diagnostic, fix in _ask(rule, context):
                yield fixes.give(diagnostic, fix)


def _lint_for_each(
    document: Document, origin: Origin, launches: Sequence[Launch], rules: Sequence[Rule], fixes: _FixesOf
) -> list[Diagnostic]:
    """What is found for any launch. A finding at the same place under several launches is one diagnostic, with the
    numbers of the first; it has a fix if it holds under all of them and is mended by the same."""
    for launch in launches:
        launch.layout()
    found: dict[tuple[object, ...], Diagnostic] = {}
    worlds: dict[tuple[object, ...], list[int]] = {}
    mends: dict[tuple[object, ...], list[Fix | None]] = {}
    for launch in launches:
        seen: Counter[tuple[str, Path]] = Counter()
        for diagnostic, fix in _lint_once(document, origin, launch, rules):
            place = (diagnostic.code, diagnostic.path)
            key: tuple[object, ...] = (*place, seen[place])
            seen[place] += 1
            found.setdefault(key, diagnostic)
            worlds.setdefault(key, []).append(launch.world_size or 0)
            mends.setdefault(key, []).append(fix)
    diagnostics = [
        fixes.give(item, _common(mends[known]))
        if len(worlds[known]) == len(launches)
        else replace(item, worlds=tuple(worlds[known]))
        for known, item in found.items()
    ]
    return _in_order(diagnostics)


def _in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda item: (item.start.offset, item.code, item.message))


def _common(fixes: Sequence[Fix | None]) -> Fix | None:
    """What mends a finding under all launches, if it is the same."""
    return fixes[0] if all(fix == fixes[0] for fix in fixes) else None


class _FixesOf:
    """The fixes of one document as edits, as long as that is cheap: for each the text is read again, and it may hold
    thousands."""

    def __init__(self, document: Document, origin: Origin) -> None:
        self._document = document
        # What stands in base64 in a command has no text to edit.
        self._characters = 0 if origin.is_base64 else 1_000_000

    def give(self, diagnostic: Diagnostic, fix: Fix | None) -> Diagnostic:
        """The diagnostic with its fix, if that can be said as edits of the text."""
        self._characters -= 0 if fix is None else len(self._document.text) * len(fix.changes)
        if fix is None or self._characters < 0:
            return diagnostic
        from ds_accum.lint.fixer import text_fix  # a clean config has nothing to fix

        return replace(diagnostic, fix=text_fix(self._document, fix))


def _lint_once(
    document: Document, origin: Origin, launch: Launch, rules: Iterable[Rule]
) -> Iterator[tuple[Diagnostic, Fix | None]]:
    """Each diagnostic with its fix, in paths of the document."""
    configs = list(find_configs(document, launch))
    framework = configs[0].framework if configs else launch.framework
    whole = LintContext.of(document, EmbeddedConfig(values={}), replace(launch, framework=framework), origin)
    embedded = [
        LintContext.of(document, config, replace(launch, framework=config.framework), origin) for config in configs
    ]
    # All of them where somebody has chosen; else those that can have something to say.
    asked = rules.about(words_of(document, configs, launch)) if isinstance(rules, Rules) else rules
    for rule in asked:
        if rule.needs != "review":
            for context in [whole] if rule.needs == "document" else embedded:
                yield from _ask(rule, context)


def _ask(rule: Rule, context: LintContext) -> Iterator[tuple[Diagnostic, Fix | None]]:
    try:
        findings = list(rule.check(context))
    except Exception as error:
        at = context.document.position(0)
        failure = Diagnostic(
            code=RULE_FAILED,
            name="rule-failed",
            severity=Severity.ERROR,
            when=When.NEVER,
            message=f"rule {rule.code} ({rule.name}) failed: {type(error).__name__}: {error}",
            help="this is a bug of ds-accum, not of the config; please report it with the file",
            filename=context.document.filename,
            start=at,
            end=at,
            path=(rule.code,),
        )
        yield failure, None
        return
    for finding in findings:
        yield _locate(rule, finding, context), _fix_in_document(finding, context)


def _fix_in_document(finding: Finding, context: LintContext) -> Fix | None:
    if finding.fix is None:
        return None
    from ds_accum.lint.fixer import in_document

    return in_document(finding.fix, context.embedded)


def _locate(rule: Rule, finding: Finding, context: LintContext) -> Diagnostic:
    document = context.document
    span = finding.span or document.nearest_span(context.embedded.locate(finding.at), key=finding.on_key)
    severity = finding.severity or rule.severity
    message = finding.message
    if finding.depends_on is not None:
        severity = Severity.WARNING if severity is Severity.ERROR else severity
        message = f"{message}, {finding.depends_on}"
    return Diagnostic(
        code=rule.code,
        name=rule.name,
        severity=severity,
        when=finding.when or rule.when,
        message=message,
        help=finding.help,
        filename=document.filename,
        start=document.position(span.start),
        end=document.position(span.end),
        path=finding.at,
    )


def _syntax_of(filename: str) -> Syntax:
    return Syntax.YAML if filename.lower().endswith((".yaml", ".yml")) else Syntax.HJSON
