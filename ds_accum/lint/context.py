"""What a rule may look at: the document, the launch, the config as DeepSpeed reads it, and the batch it comes to."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ds_accum.config.document import Document, Path
from ds_accum.config.embedded import EmbeddedConfig
from ds_accum.config.huggingface import Mismatch, find_mismatches
from ds_accum.config.launch import Engine, Launch
from ds_accum.config.model import BlockReading, DeepSpeedConfig
from ds_accum.config.paths import mapping_at
from ds_accum.config.resolve import BatchResolution, resolve_batch
from ds_accum.config.schema import Version
from ds_accum.lint.origin import PLAIN_TEXT, Origin

if TYPE_CHECKING:
    from ds_accum.lint.rule import Rule

_Found = TypeVar("_Found")


class Review(NamedTuple):
    """What the other rules have said about a document, for the rules about its suppressions.

    `ignored` maps the codes that the document suppresses to the reasons, `found` are the codes of all findings, the
    suppressed ones among them, `asked` those of the rules that were asked, `known` those of all rules.
    """

    ignored: Mapping[str, str]
    found: frozenset[str]
    asked: frozenset[str]
    known: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LintContext:
    """One config of one document, for one launch.

    Paths are those of the DeepSpeed config; `embedded` knows where in the document each of them stands. `review` is
    there for a rule that needs it.
    """

    document: Document
    embedded: EmbeddedConfig
    launch: Launch
    config: DeepSpeedConfig
    origin: Origin
    review: Review | None = None
    _found: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, document: Document, embedded: EmbeddedConfig, launch: Launch, origin: Origin = PLAIN_TEXT
    ) -> LintContext:
        config = DeepSpeedConfig.read(embedded.values, version=launch.version)
        return cls(document, embedded, launch, config, origin)

    @property
    def values(self) -> Mapping[str, Any]:
        """The root keys of the config, with what the framework fills in if its arguments are known, else without."""
        return self.embedded.values

    @property
    def version(self) -> Version:
        return self.launch.version

    def once(self, name: str, find: Callable[[], _Found]) -> _Found:
        """What `find` returns, called by the first who asks and kept under a name of its own for the others."""
        if name not in self._found:
            self._found[name] = find()
        found: _Found = self._found[name]
        return found

    @property
    def batch(self) -> BatchResolution:
        """The three batch sizes, resolved."""
        return self.once("batch", lambda: resolve_batch(self.values, self.launch))

    @property
    def has_filled_in_batch(self) -> bool:
        """Whether a framework fills in one of the batch sizes, so that nothing can be said about their product."""
        return any(
            path[0] in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
            for path in self.embedded.filled_in
        )

    @property
    def engine(self) -> Engine:
        """Whose engine runs the config: as said, else ours if the `ds_accum` block tells more than the linter."""
        if self.launch.engine is not None:
            return self.launch.engine
        block = self.values.get("ds_accum", {"lint": {}})
        return "stock" if isinstance(block, dict) and block.keys() == {"lint"} else "ds-accum"

    def block(self, name: str) -> BlockReading:
        return self.config.block(name)

    def siblings(self, path: Path) -> Container[Any]:
        """The keys beside the one at a path, and that one."""
        return mapping_at(self.values, path[:-1])

    def line(self, *path: str | int) -> str:
        """Where a value is written, and what it is filled in from: "line 4", "line 4, from bf16 of --hf-args"."""
        place = self.embedded.locate(path)
        source = self.embedded.sources.get(path)
        if source is not None and self.document.value_span(place) is None:
            return source
        line = f"line {self.document.position(self.document.nearest_span(place).start).line}"
        return line if source is None else f"{line}, from {source}"

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """What Trainer refuses, with the arguments of the launch; none if they are not known."""
        arguments = self.launch.hf_arguments
        if arguments is None:
            return ()
        return self.once(
            "mismatches", lambda: tuple(find_mismatches(self.embedded.written, arguments, self.launch.world_size))
        )

    @property
    def builds_optimizer_from_config(self) -> bool | None:
        """Whether DeepSpeed builds the optimizer that the config names, and the script passes none; None: unknown."""
        if self.block("optimizer").get("type") is None:
            return False
        return None if self.launch.client_optimizer is None else not self.launch.client_optimizer
