"""One result that holds whatever a reporter can meet, made by hand: the golden files must not move with the rules."""

from __future__ import annotations

import pytest

from ds_accum.config.document import Document, Syntax, read_text
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic, Severity, When
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.result import FileResult, LintResult

BATCH = """{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
"""
# Tabs, wide and combining characters, an override of the writing direction, an ANSI escape, a very long line.
HOSTILE = (
    '{\n\t"zero_optimization": {"stage": 2,\t"名前": 1, "e\u0301te\u0301": 2},\n\t"a\u202eb\x1b[31m": null,\n'
    f'  "notes": "{"long " * 60}", "fp16": {{"enable": true}}, "more": "{"and so on " * 30}",\n'
    '  "optimizer": {\n    "type": "Adam"\n  }\n}'
)


def diagnostic(document: Document, excerpt: str, code: str, **fields: object) -> Diagnostic:
    """A diagnostic at the first place where the document holds this text."""
    start = document.text.index(excerpt)
    values: dict[str, object] = {
        "code": code,
        "severity": Severity.ERROR,
        "when": When.LOAD,
        "help": None,
        "filename": document.filename,
        "start": document.position(start),
        "end": document.position(start + len(excerpt)),
        "path": (),
        **fields,
    }
    return Diagnostic(**values)  # type: ignore[arg-type]


@pytest.fixture
def result() -> LintResult:
    """Three files: one with a batch that does not add up, one that tries to confuse a terminal, and a clean one."""
    batch = read_text(BATCH, filename="conf/ds_config.json", syntax=Syntax.HJSON)
    hostile = read_text(HOSTILE, filename="conf/\x1b[2J\u202eho\nstile.json", syntax=Syntax.HJSON)
    clean = read_text("{train_batch_size: 8}", filename="conf/clean.json", syntax=Syntax.HJSON)
    launches = tuple(Launch(world_size=size) for size in (1, 2, 3, 4, 8, 32))
    return LintResult(
        files=(
            FileResult(
                document=batch,
                launches=launches,
                diagnostics=(
                    diagnostic(
                        batch,
                        "256",
                        "DSA101",
                        name="batch-size-mismatch",
                        message="train_batch_size 256 (line 2) is not micro batch 8 (line 3) x accumulation 1 (line 4)"
                        " x data parallel 1 (the world size) = 8",
                        help="set train_batch_size to 8, or launch 32 ranks; or leave one of the three out, and"
                        " DeepSpeed derives it",
                        path=("train_batch_size",),
                        worlds=(1, 2, 3, 4, 8),
                    ),
                    diagnostic(
                        batch,
                        BATCH.strip(),
                        "DSA501",
                        name="missing-optimizer",
                        severity=Severity.WARNING,
                        when=When.START,
                        message="there is no optimizer, unless the script passes its own",
                    ),
                ),
            ),
            FileResult(
                document=hostile,
                launches=launches,
                diagnostics=(
                    diagnostic(
                        hostile,
                        '"名前"',
                        "DSA701",
                        name="unknown-key",
                        message='zero_optimization has no key "名前"',
                        help="remove it",
                        path=("zero_optimization", "名前"),
                    ),
                    diagnostic(
                        hostile,
                        '"a\u202eb\x1b[31m"',
                        "DSA703",
                        name="misspelt-key",
                        severity=Severity.WARNING,
                        when=When.NEVER,
                        message='DeepSpeed ignores the key "a\u202eb\x1b[31m"',
                        path=("a\u202eb\x1b[31m",),
                    ),
                    diagnostic(
                        hostile,
                        '"enable"',
                        "DSA701",
                        name="unknown-key",
                        message='fp16 has no key "enable"',
                        help='did you mean "enabled"?',
                        path=("fp16", "enable"),
                    ),
                    diagnostic(
                        hostile,
                        '"Adam"',
                        "DSA510",
                        name="adam-is-adamw",
                        severity=Severity.INFO,
                        when=When.NEVER,
                        message='the optimizer "Adam" decays weights as AdamW does',
                        path=("optimizer", "type"),
                    ),
                    diagnostic(
                        hostile,
                        "",
                        RULE_FAILED,
                        name="rule-failed",
                        when=When.NEVER,
                        message="rule DSA999 (some-rule) failed: ZeroDivisionError: division by zero",
                        help="this is a bug of ds-accum, not of the config; please report it with the file",
                        path=("DSA999",),
                    ),
                ),
            ),
            FileResult(document=clean, launches=launches, diagnostics=()),
        ),
        version=(0, 19, 8),
        version_source="installed",
    )
