"""What a rule says (`Finding`, at a path of the config), what the user reads (`Diagnostic`, at a place in the file)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ds_accum.config.document import Path, Position, Span
from ds_accum.lint.fix import Fix, TextFix


class Severity(str, Enum):
    """error: DeepSpeed refuses, crashes, or is wrong at every step, whatever is unknown; warning: it runs, but not as
    written, or may refuse; info: right, with something worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return _RANKS[self]


_RANKS = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.INFO: 0}


class When(str, Enum):
    """When DeepSpeed itself would have noticed."""

    LOAD = "load"
    START = "start"
    FIRST_STEP = "first step"
    NEVER = "never"


class Proof(str, Enum):
    """How a rule is known to be right: shown by running the installed DeepSpeed, another release of it, or the other
    reader of the file that the rule is about (Python's json, ds-accum's engine); or only read in the source, and then
    never above a warning."""

    RUN = "run"
    OTHER_VERSION = "other version"
    OTHER_READER = "other reader"
    READ = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One defect, at a path of the config.

    `at` is the smallest thing to edit: the value of that path, or its key with `on_key`; a path that the file does not
    hold points at its nearest parent. `message` is one sentence of fact, in lower case, without a full stop; `help`
    says what to do. `depends_on` names the unknown input without which this is certain: the linter then says so and
    makes an error a warning. `when` and `severity` override the rule's, `span` the place that `at` has in the
    document. `fix` is what mends it, where that can be said.
    """

    at: Path
    message: str
    help: str | None = None
    on_key: bool = False
    depends_on: str | None = None
    when: When | None = None
    severity: Severity | None = None
    span: Span | None = None
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A finding with its place in the file and its rule. Line and column count from 1, in characters.

    `worlds` are the world sizes for which it holds where several were checked and it does not hold for all of them.
    `fix` is what mends it, where that is the same for all of them and can be said as edits of the text.
    """

    code: str
    name: str
    severity: Severity
    when: When
    message: str
    help: str | None
    filename: str
    start: Position
    end: Position
    path: Path
    worlds: tuple[int, ...] = ()
    fix: TextFix | None = None
