"""A text that is open in an editor -> what the linter says about it, and what stands at a place of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ds_accum.config.document import Document, Path, Syntax, read_text
from ds_accum.config.embedded import find_configs, looks_like_deepspeed, may_hold_deepspeed
from ds_accum.config.launch import Launch
from ds_accum.config.references import find_reference
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.in_force import CommandLine, Judge
from ds_accum.lint.origin import PLAIN_TEXT, Origin
from ds_accum.lint.targets import Target

__all__ = ["Checked", "check", "setting_at", "syntax_of"]

_SYNTAX_OF_LANGUAGE = {
    **dict.fromkeys(("json", "jsonc", "json5", "hjson"), Syntax.HJSON),
    "yaml": Syntax.YAML,
}
_SYNTAX_OF_EXTENSION = {
    **dict.fromkeys((".json", ".jsonc", ".json5", ".hjson"), Syntax.HJSON),
    **dict.fromkeys((".yaml", ".yml"), Syntax.YAML),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A text, and its diagnostics for these launches; none if it holds no DeepSpeed config (`is_config`).

    `launches` are those that hold for the file, `told` is what the client said.
    """

    document: Document
    told: CommandLine
    launches: Sequence[Launch]
    diagnostics: Sequence[Diagnostic]
    is_config: bool

    def at(self, offset: int) -> list[Diagnostic]:
        """The diagnostics whose place touches an offset."""
        return [item for item in self.diagnostics if item.start.offset <= offset <= item.end.offset]


def syntax_of(filename: str, language: str | None) -> Syntax | None:
    """How a text is read, by its name or else by what the editor takes it for; None if it can't be a config."""
    by_name = _SYNTAX_OF_EXTENSION.get(FilePath(filename).suffix.lower())
    return by_name or _SYNTAX_OF_LANGUAGE.get(language or "")


def check(
    text: str,
    *,
    filename: str,
    syntax: Syntax,
    told: CommandLine,
    path: FilePath | None = None,
    was_config: bool = False,
) -> Checked:
    """Lints a text if it holds a DeepSpeed config, and if the settings file above it does not exclude it.

    The client speaks before the file, and the file before the settings file, as in `ds_accum.lint.in_force`. `path` is
    where the file lies, if it lies anywhere. A text that was a config before it was edited (`was_config`) is taken for
    one as long as it names a setting: half a config is what one is while it is typed. Raises LayoutError where the
    degrees do not fit the world size that the file or its settings give, UsageError where the settings file is wrong.
    """
    document = read_text(text, filename=filename, syntax=syntax)
    # Anew each time: the settings file may be open in the same editor.
    judge = Judge(told)
    names_a_setting = may_hold_deepspeed(text.encode("utf-8", "replace"))
    is_config = names_a_setting and (looks_like_deepspeed(document) or (was_config and bool(document.problems)))
    if not is_config or (path is not None and judge.excludes(path)):
        return Checked(document=document, told=told, launches=told.launches, diagnostics=(), is_config=False)
    origin = PLAIN_TEXT if path is None else Origin(reference=find_reference(document, path))
    result = judge(Target(document=document, path=path, origin=origin))
    return Checked(
        document=document, told=told, launches=result.launches, diagnostics=result.diagnostics, is_config=True
    )


def setting_at(document: Document, offset: int, launch: Launch) -> tuple[str, str] | None:
    """The block and the key whose name stands at an offset, None where no key of DeepSpeed's does."""
    for path in _paths(document.value):
        span = document.key_span(path)
        if span is not None and span.start <= offset < span.end:
            break
    else:
        return None
    config = next(find_configs(document, launch), None)
    # In another tool's file a key has another name than DeepSpeed's.
    if config is None or config.places or config.base:
        return None
    *block, key = map(str, path)
    return ".".join(block), key


def _paths(value: Any, above: Path = ()) -> Iterator[Path]:
    """Every key below a value, outer ones first."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield (*above, key)
            yield from _paths(held, (*above, key))
