"""What the linter says, in the protocol's own types: diagnostics, hovers and code actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lsprotocol import types

from ds_accum.config.json_schema import describe_key
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.explanation import rule_values
from ds_accum.lint.fix import TextEdit, TextFix
from ds_accum.lint.fixer import apart
from ds_accum.lint.rules import RULES
from ds_accum.lsp.checking import Checked, setting_at
from ds_accum.lsp.positions import Places

__all__ = ["FIX_ALL", "code_actions", "hover", "protocol_diagnostic"]

SOURCE = "ds-accum"
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.{SOURCE}"

_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}


def protocol_diagnostic(item: Diagnostic, places: Places) -> types.Diagnostic:
    """The fact, on a second line what to do, and for which worlds it holds where it does not for all."""
    lines = [item.message]
    if item.worlds:
        lines[0] += f" (at world size {', '.join(map(str, item.worlds))})"
    if item.help is not None:
        lines.append(item.help)
    return types.Diagnostic(
        range=places.range(item.start.offset, item.end.offset),
        severity=_SEVERITIES[item.severity],
        code=item.code,
        source=SOURCE,
        message="\n".join(lines),
    )


# --- hover ------------------------------------------------------------------------------------------------------------


def hover(checked: Checked, places: Places, position: types.Position) -> types.Hover | None:
    """Why what is found at a place matters; where nothing is, what the setting of that name does."""
    offset, launch = places.offset(position), checked.launches[0]
    found = checked.at(offset)
    if found:
        said = "\n\n---\n\n".join(map(_explained, found))
        area = places.range(found[0].start.offset, found[0].end.offset)
    else:
        setting = setting_at(checked.document, offset, launch) if checked.is_config else None
        text = setting and _described(*setting, launch)
        if not setting or not text:
            return None
        said, area = f"**{setting[1]}**\n\n{text}", None
    return types.Hover(contents=types.MarkupContent(kind=types.MarkupKind.Markdown, value=said), range=area)


def _explained(item: Diagnostic) -> str:
    rule = RULES.by_code.get(item.code)
    if rule is None:  # a failure of ours
        return f"**{item.code} {item.name}**\n\n{item.message}"
    why = str(rule_values(rule)["rationale"])
    return f"**{item.code} {item.name}** ({item.severity.value}): {rule.summary}\n\n{why}"


def _described(block: str, key: str, launch: Launch) -> str | None:
    try:
        return describe_key(launch.version, block, key)
    except KeyError:  # no block of DeepSpeed's
        return None


# --- code actions -----------------------------------------------------------------------------------------------------


def code_actions(
    checked: Checked,
    places: Places,
    params: types.CodeActionParams,
    *,
    version: int | None,
    with_versions: bool,
) -> list[types.CodeAction]:
    """A quick fix for each finding in the range that can be mended, and one action for all that is safe to mend.

    `version` is that of the text; `with_versions` says that the client refuses an edit of a text that has changed.
    """
    start, end = places.offset(params.range.start), places.offset(params.range.end)
    uri = params.text_document.uri

    def edit(edits: Iterable[TextEdit]) -> types.WorkspaceEdit:
        changes = [types.TextEdit(range=places.range(item.start, item.end), new_text=item.text) for item in edits]
        if not with_versions:
            return types.WorkspaceEdit(changes={uri: changes})
        document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(text_document=document, edits=[*changes])])

    actions = []
    if _wanted(types.CodeActionKind.QuickFix.value, params.context.only):
        for item in checked.diagnostics:
            if item.fix is None or item.end.offset < start or item.start.offset > end:
                continue
            actions.append(
                types.CodeAction(
                    title=_title(item.code, item.fix),
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[protocol_diagnostic(item, places)],
                    is_preferred=item.fix.is_safe,
                    edit=edit(item.fix.edits),
                )
            )
    # As many as can be applied at once; the rest is for a second time.
    together = apart(item for item in checked.diagnostics if item.fix is not None and item.fix.is_safe)
    safe = sorted(change for item in together if item.fix is not None for change in item.fix.edits)
    if safe and _wanted(FIX_ALL, params.context.only):
        actions.append(
            types.CodeAction(title="ds-accum: apply all safe fixes", kind=FIX_ALL, edit=edit(safe), is_preferred=None)
        )
    return actions


def _title(code: str, fix: TextFix) -> str:
    return f"{code}: {fix.title}{'' if fix.is_safe else ' (changes the training)'}"


def _wanted(kind: str, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether a client that asks for some kinds of actions gets this one: a kind stands for all below it."""
    if only is None:
        return True
    asked = [item.value if isinstance(item, types.CodeActionKind) else item for item in only]
    return any(kind == item or kind.startswith(f"{item}.") or not item for item in asked)
