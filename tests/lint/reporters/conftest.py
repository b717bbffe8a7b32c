"""One result that holds whatever a reporter can meet, made by hand: the golden files must not move with the rules."""

from __future__ import annotations

import pytest

from ds_accum.config.document import Document, Syntax, read_text
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic, Severity, When
from ds_accum.lint.fix import RenameKey, TextEdit, TextFix
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.result import FileResult, LintResult
from ds_accum.lint.rule import Rule

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
# What a runner, a browser or an XML reader would act on, in a file whose lines end as on Windows.
INJECTED = (
    '{\r\n  "::error file=a,line=1::%0A::warning::": 1,\r\n  "<script>alert(1)</script>": "]]>&amp;",\r\n'
    '  "[here](https://example.org)": 2\r\n}\r\n'
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
    """Four files: a batch that does not add up, one that tries to confuse a terminal, one other readers, a clean one."""
    batch = read_text(BATCH, filename="conf/ds_config.json", syntax=Syntax.HJSON)
    hostile = read_text(HOSTILE, filename="conf/\x1b[2J\u202eho\nstile.json", syntax=Syntax.HJSON)
    injected = read_text(INJECTED, filename="::set-output name=a,b:c%0A&<i>.json", syntax=Syntax.HJSON)
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
                        fix=TextFix(
                            title="set train_batch_size to 8",
                            edits=(TextEdit(BATCH.index("256"), BATCH.index("256") + 3, "8"),),
                            is_safe=False,
                        ),
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
                fixed=1234,
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
                        fix=TextFix(
                            "rename enable to \u202eenabled\n",
                            (TextEdit(HOSTILE.index('"enable"') + 7, HOSTILE.index('"enable"') + 7, "d"),),
                            is_safe=True,
                            changes=(RenameKey(("fp16", "enable"), "enabled"),),
                        ),
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
            FileResult(
                document=injected,
                launches=launches,
                diagnostics=(
                    diagnostic(
                        injected,
                        '"::error file=a,line=1::%0A::warning::"',
                        "DSA701",
                        name="unknown-key",
                        message='fp16 has no key "::error file=a,line=1::%0A::warning::"',
                        help="remove it 100%\r\n ::error:: ##[error] ::warning::x ::warning::x ::warning::x",
                        path=("::error file=a,line=1::%0A::warning::",),
                    ),
                    diagnostic(
                        injected,
                        '"]]>&amp;"',
                        "DSA007",
                        name="wrong-type",
                        severity=Severity.WARNING,
                        message='"<script>alert(1)</script>" is the string "]]>&amp;"',
                        path=("<script>alert(1)</script>",),
                    ),
                    diagnostic(
                        injected,
                        '"[here](https://example.org)"',
                        "DSA704",
                        name="unknown-root-key",
                        severity=Severity.INFO,
                        when=When.NEVER,
                        message='DeepSpeed ignores the key "[here](https://example.org)"',
                        path=("[here](https://example.org)",),
                    ),
                ),
            ),
            FileResult(document=clean, launches=launches, diagnostics=()),
        ),
        version=(0, 19, 8),
        version_source="installed",
    )


@pytest.fixture(autouse=True)
def known_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule, made by hand, is all that a reporter can look up."""
    rule = Rule(
        code="DSA101",
        name="batch-size-mismatch",
        summary="the three batch sizes do not multiply to each other",
        rationale="The batch sizes of the file\ncontradict each other.\n\nDeepSpeed compares [them](at start).\n",
        when=When.LOAD,
        check=lambda _: (),
        bad=(),
        good=(),
        references=("https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",),
    )
    monkeypatch.setattr("ds_accum.lint.rules.RULES.by_code", {rule.code: rule})
    monkeypatch.setattr("ds_accum.lint.reporters.sarif.__version__", "1.2.3")
