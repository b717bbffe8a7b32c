"""A value without quotes is text that goes on to the end of its line, with a comma or a comment in it.

DeepSpeed reads configs with Hjson. A value that is no number and none of `true`, `false` and `null` needs quotes
there, or it takes the rest of the line: `dtype: bf16, # as on the cluster` is the text "bf16, # as on the cluster",
and `True`, `None` and `NaN` are text as well. Where DeepSpeed looks at the value it then refuses it; where it only
tests it, any text is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.document import Path, Syntax
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  train_batch_size: 8
  dataloader_drop_last: False,
  optimizer: {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="dataloader_drop_last",
                message='without quotes this is text to the end of the line: "False,"',
            ),
        ),
        fixed="""{
  train_batch_size: 8
  dataloader_drop_last: false
  optimizer: {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "wandb": {
    "enabled": false,
    "project": mine  # one for all
  }
}
""",
        reports=(
            Report(
                at="wandb.project",
                message='without quotes this is text to the end of the line: "mine  # one for all"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "wandb": {
    "enabled": false,
    "project": mine
  }
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  train_batch_size: 8
  dataloader_drop_last: false, # the last batch counts
  optimizer: {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
    Example(config='{\n  train_batch_size: 8\n  wandb: {\n    project: mine\n    group: "a, # b"\n  }\n}\n'),
)

_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}
_NOT_A_NUMBER = ("NaN", "Infinity", "-Infinity")
# A mark of a comment behind a blank: without one it may be part of a path or a URL.
_TAIL = re.compile(r"(?:^|\s)(?:#|//|/\*)|,\s*$")


def check(context: LintContext) -> Iterator[Finding]:
    document = context.document
    if document.syntax is not Syntax.HJSON:
        return
    found = []
    for path, value in _strings(context.values, ()):
        word, tail = value.rstrip(", "), _TAIL.search(value)
        if tail is None and word not in _WORDS and word not in _NOT_A_NUMBER:
            continue
        span = document.nearest_span(context.embedded.locate(path))
        if document.text[span.start : span.start + 1] not in ('"', "'"):
            found.append((path, value, _without_tail(value if tail is None else value[: tail.start()])))
    if not found:
        return
    path, value, _ = found[0]
    more = f", and so are {len(found) - 1:,} more values" if len(found) > 1 else ""
    yield Finding(
        at=path,
        message=f"without quotes this is text to the end of the line: {shown(value)}{more}",
        help="put text in quotes; numbers, true, false and null need none",
        fix=Fix(
            title="write what stands before the comma or the comment",
            changes=tuple(SetValue(path, meant) for path, _, meant in found),
        ),
    )


def _without_tail(text: str) -> Any:
    text = text.strip().rstrip(",").strip()
    return _WORDS.get(text, text)


def _strings(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, (*path, index))


RULE = Rule(
    code="DSA712",
    name="text-to-the-end-of-the-line",
    summary="a value without quotes has taken a comma or a comment along",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://hjson.github.io/syntax.html",),
)
