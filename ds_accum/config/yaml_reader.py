"""YAML text -> values and their places, exactly as yaml.safe_load reads it for Accelerate and GPT-NeoX.

    text --PyYAML--> events --here--> nodes, within limits --PyYAML--> value
                                        └── places of keys and values

PyYAML composes nodes itself, but forgets where an alias stands, keeps only the last of two equal keys, and expands
what it is told to. So the nodes are made here, from its events, and constructed by its SafeLoader's own rules.

libyaml's parser is eight times faster than PyYAML's and reads a little more: where a text has anything that the two
are known to see differently, or libyaml finds a mistake, PyYAML's own parser decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from ds_accum.config.document import Problem, ProblemKind, Reading, Span
from ds_accum.config.wording import quoted, shortened, token_end
from ds_accum.config.yaml_problems import YamlProblems, usual_cause

if TYPE_CHECKING:
    from ds_accum.config.document import Limits, Node

__all__ = ["read_yaml"]

_FASTEST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Tabs, tags, question marks, block scalars, directives, further line ends, byte order marks, keys near the longest.
_SEEN_DIFFERENTLY = re.compile("[\t!?|>%\x85\u2028\u2029\ufeff]|[^\n]{900}")
# Found by either parser; PyYAML's needs seconds for what is nested without measure.
_LIMITS = frozenset({ProblemKind.TOO_DEEP, ProblemKind.TOO_LARGE, ProblemKind.TOO_MANY_ALIASES})
_WORD = re.compile(r"\S*")
_UNPRINTABLE = yaml.reader.Reader.NON_PRINTABLE

_TAG = "tag:yaml.org,2002:"
_STRING, _MERGE, _VALUE = f"{_TAG}str", f"{_TAG}merge", f"{_TAG}value"
# What becomes a dict or a list. In other collections (set, omap, pairs) nothing has a path.
_MAPPING, _SEQUENCE = f"{_TAG}map", f"{_TAG}seq"
# Scalars of these tags, if the resolver found them, can't fail to be constructed.
_PLAIN_TAGS = frozenset({_STRING, f"{_TAG}null", f"{_TAG}bool", _MERGE, _VALUE})
_INTEGER, _FLOAT = f"{_TAG}int", f"{_TAG}float"

_Pair: TypeAlias = "tuple[yaml.Node, yaml.Node]"


def read_yaml(text: str, limits: Limits) -> Reading:
    """Values as yaml.safe_load gives them; for a text that it refuses, what can be read, and the problems."""
    problems = []
    unprintable = _UNPRINTABLE.search(text)
    if unprintable is not None:
        message = f"the character U+{ord(unprintable[0]):04X} is not allowed in YAML"
        problems.append(Problem(kind=ProblemKind.SYNTAX, message=message, span=Span(*unprintable.span())))
        text = _UNPRINTABLE.sub("\ufffd", text)
    reading = _Composer(text, _FASTEST_LOADER, limits).read()
    kinds = {problem.kind for problem in reading.problems}
    if not kinds & _LIMITS and (ProblemKind.SYNTAX in kinds or _SEEN_DIFFERENTLY.search(text)):
        reading = _Composer(text, yaml.SafeLoader, limits).read()
    return Reading(value=reading.value, root=reading.root, problems=[*problems, *reading.problems])


class _StopReading(Exception):
    """A limit is reached."""


@dataclass(slots=True)
class _Open:
    """A mapping or a sequence that is being composed."""

    node: Any
    anchor: str | None
    is_flow: bool
    key: Any = None
    key_span: Span | None = None
    end: int = 0
    """Where its last child ends."""
    size: int = 1
    """Values in it, aliases expanded."""
    height: int = 1
    """Levels in it, aliases expanded."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    node: Any
    size: int
    """0 while the node is still open."""
    height: int


@dataclass(slots=True)
class _Composer:
    """One reading: PyYAML's Composer with places, duplicate keys and limits, and without recursion."""

    text: str
    loader_class: Any
    limits: Limits
    loader: Any = field(init=False)
    problems: YamlProblems = field(init=False)
    stack: list[_Open] = field(default_factory=list)
    root: Any = None
    anchors: dict[str, _Anchor] = field(default_factory=dict)
    aliases: int = 0
    nodes: int = 0
    alias_spans: dict[tuple[int, int], Span] = field(default_factory=dict)
    """Where an alias is written: by the id of its pair and the side in it, or the id of its sequence and the index."""
    keys: dict[int, Any] = field(default_factory=dict)
    """Keys that are no strings, by the id of their node."""
    kept: list[Any] = field(default_factory=list)
    """What these ids belong to: it must not be freed before they are looked up."""

    def read(self) -> Reading:
        self.problems = YamlProblems(self.text, self.limits)
        self.loader = self.loader_class(self.text)
        try:
            self._compose()
        except yaml.YAMLError as error:
            self.problems.refused(error)
        except _StopReading:
            pass
        finally:
            while self.stack:
                self._close(len(self.text.rstrip()))
        if self.root is None:
            if not self.problems.found:
                self.problems.report(ProblemKind.EMPTY, "there is no value in the text", Span(0, 0))
            return Reading(value=None if len(self.problems.found) == 1 else {}, root=None, problems=self.problems.found)
        return self._construct()

    def _construct(self) -> Reading:
        try:
            value = self.loader.construct_document(self.root)
            root = self._place(self.root, _span(self.root), None)
        except yaml.YAMLError as error:
            self.problems.refused(error)
        except RecursionError:
            self.problems.report(
                ProblemKind.TOO_DEEP, "merge keys that lead from one to the next too often", Span(0, 1)
            )
        except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
            # What a constructor of PyYAML raises where it takes a value for granted.
            self.problems.report(ProblemKind.SYNTAX, f"PyYAML can't construct the value: {error}", Span(0, 1))
        else:
            return Reading(value=value, root=root, problems=self.problems.found)
        finally:
            self.loader.dispose()
        return Reading(value={}, root=None, problems=self.problems.found)

    # Events -> nodes

    def _compose(self) -> None:
        """The first document: PyYAML's get_single_node."""
        loader = self.loader
        documents = 0
        while True:
            event = loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.ScalarEvent):
                self._add(self._scalar(event), event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._close(_span(event).end)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "expected a single document, but another one starts"
                    self.problems.report(ProblemKind.SYNTAX, message, _span(event), usual_cause(message))
                    raise _StopReading

    def _open(self, event: Any) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        kind: Any = yaml.MappingNode if is_mapping else yaml.SequenceNode
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(kind, None, event.implicit)
        node = kind(tag, [], event.start_mark, event.end_mark, flow_style=event.flow_style)
        if tag not in self.loader.yaml_constructors:
            self._unknown_tag(node)
            node.tag = _MAPPING if is_mapping else _SEQUENCE
        self._count(1)
        self._check_depth(len(self.stack) + 1, event.start_mark.index)
        self._declare(event, node, size=0, height=0)
        self.stack.append(_Open(node, event.anchor, bool(event.flow_style), end=event.end_mark.index))

    def _close(self, end: int) -> None:
        opened = self.stack.pop()
        node = opened.node
        end = max(end if opened.is_flow else opened.end, node.start_mark.index)
        node.end_mark = _mark_at(node.end_mark, end)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            self._check_keys(node)
        if opened.anchor is not None:
            self.anchors[opened.anchor] = _Anchor(node, opened.size, opened.height)
        self._attach(node, _span(node), opened.size, opened.height, None)

    def _scalar(self, event: Any) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        node: Any = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark, style=event.style)
        if event.style in ("|", ">"):
            written = self.text[event.start_mark.index : event.end_mark.index]
            if "+" not in written.partition("\n")[0]:
                # Without a + the line ends behind a block scalar count for nothing.
                node.end_mark = _mark_at(event.end_mark, event.start_mark.index + len(written.rstrip("\r\n")))
        if tag not in _PLAIN_TAGS or not any(event.implicit):
            self._check_scalar(node)
        return node

    def _add(self, node: Any, event: Any) -> None:
        self._count(1)
        self._declare(event, node, size=1, height=0)
        self._attach(node, _span(node), 1, 0, None)

    def _alias(self, event: Any) -> None:
        span = _span(event)
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            message = f"found undefined alias {shortened(event.anchor)}"
            self.problems.report(ProblemKind.SYNTAX, message, span, usual_cause(message))
        elif not anchor.size:
            message = f"the alias {shortened('*' + event.anchor)} stands inside of what it repeats"
            self.problems.report(ProblemKind.TOO_MANY_ALIASES, message, span)
        else:
            self.aliases += 1
            if self.aliases > self.limits.aliases:
                self.problems.report(ProblemKind.TOO_MANY_ALIASES, f"more than {self.limits.aliases:,} aliases", span)
                raise _StopReading
            self._count(anchor.size, span)
            self._check_depth(len(self.stack) + anchor.height, span.start)
            self._attach(anchor.node, span, anchor.size, anchor.height, span)
            return
        self._attach(yaml.ScalarNode(f"{_TAG}null", "null", event.start_mark, event.end_mark), span, 1, 0, None)

    def _attach(self, node: Any, span: Span, size: int, height: int, alias: Span | None) -> None:
        """Put a node, or an alias of it, into the collection that is open."""
        if not self.stack:
            self.root = node
            return
        opened = self.stack[-1]
        opened.size += size
        opened.height = max(opened.height, height + 1)
        opened.end = max(opened.end, span.end)
        parent = opened.node
        is_key = isinstance(parent, yaml.MappingNode) and opened.key is None
        if node.tag in (_MERGE, _VALUE) and not is_key:
            message = (
                f"{shortened(node.value)} means something of its own in YAML, and safe loading refuses it as a value"
            )
            self.problems.report(ProblemKind.TAG, message, span, "put it in quotes")
            node.tag = _STRING
        if isinstance(parent, yaml.SequenceNode):
            if alias is not None:
                self.alias_spans[id(parent), len(parent.value)] = alias
            parent.value.append(node)
        elif is_key:
            opened.key, opened.key_span = node, alias
        else:
            pair = (opened.key, node)
            self.kept.append(pair)
            if opened.key_span is not None:
                self.alias_spans[id(pair), 0] = opened.key_span
            if alias is not None:
                self.alias_spans[id(pair), 1] = alias
            parent.value.append(pair)
            opened.key = None

    # Checks

    def _declare(self, event: Any, node: Any, *, size: int, height: int) -> None:
        if event.anchor is None:
            return
        if event.anchor in self.anchors:
            first = _span(self.anchors[event.anchor].node)
            message = f"found duplicate anchor {shortened('&' + event.anchor)}"
            start = event.start_mark.index
            self.problems.report(
                ProblemKind.SYNTAX, message, Span(start, token_end(self.text, start)), related=(first,)
            )
        self.anchors[event.anchor] = _Anchor(node, size, height)

    def _check_keys(self, node: Any) -> None:
        """Keys twice, and keys that can't be any."""
        seen: dict[Any, Span] = {}
        for pair in list(node.value):
            key_node = pair[0]
            span = self._span_in(pair, 0)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.report(ProblemKind.SYNTAX, "a list or a mapping can't be a key", span)
                node.value.remove(pair)
                continue
            if key_node.tag == _MERGE:
                continue
            key = self._key(key_node)
            if key in seen and self.problems.is_wanted(ProblemKind.DUPLICATE_KEY):
                # Counting lines for a problem that is not kept would make many of them take for ever.
                self.problems.report(
                    ProblemKind.DUPLICATE_KEY,
                    f"the key {quoted(str(key))} appears twice, first at line {self.problems.line(seen[key].start)}",
                    span,
                    "remove one of the two",
                    related=(seen[key],),
                )
            seen[key] = span

    def _key(self, node: Any) -> Any:
        if node.tag in (_STRING, _VALUE):
            return node.value
        if id(node) not in self.keys:
            self.keys[id(node)] = self.loader.construct_object(node)
        return self.keys[id(node)]

    def _check_scalar(self, node: Any) -> None:
        """Find out now what would fail when the whole is constructed, and read it as a string instead."""
        span = _span(node)
        if node.tag not in self.loader.yaml_constructors:
            self._unknown_tag(node)
        elif len(node.value) > self.limits.integer_digits and (
            node.tag == _INTEGER or (node.tag == _FLOAT and ":" in node.value)
        ):
            # A number of base 60 is built with integers, even where it is a float.
            message = (
                f"{shortened(node.value)} can't be read as a number: more than {self.limits.integer_digits} digits"
            )
            self.problems.report(ProblemKind.NUMBER, message, span)
        else:
            try:
                self.loader.construct_object(node, deep=True)
                return
            except Exception as error:  # whatever a constructor raises on a value that it does not expect
                self.loader.recursive_objects.clear()
                self.loader.deep_construct = False
                reason = error.problem if isinstance(error, yaml.MarkedYAMLError) else str(error)
                name = node.tag.removeprefix(_TAG)
                message = f"{shortened(node.value)} can't be read as {name}: {reason}"
                self.problems.report(ProblemKind.NUMBER, message, span, "put it in quotes if it is a string")
        node.tag = _STRING

    def _unknown_tag(self, node: Any) -> None:
        start = node.start_mark.index
        word = _WORD.match(self.text, start)
        message = f"the tag {shortened(node.tag)} is not one that safe loading knows"
        self.problems.report(ProblemKind.TAG, message, Span(start, word.end() if word else start), "remove the tag")

    def _count(self, nodes: int, span: Span | None = None) -> None:
        self.nodes += nodes
        if self.nodes <= self.limits.nodes:
            return
        if span is None:
            self.problems.report(ProblemKind.TOO_LARGE, f"more than {self.limits.nodes:,} values", Span(0, 1))
        else:
            message = f"more than {self.limits.nodes:,} values with all aliases expanded"
            self.problems.report(ProblemKind.TOO_MANY_ALIASES, message, span)
        raise _StopReading

    def _check_depth(self, depth: int, start: int) -> None:
        if depth > self.limits.depth:
            self.problems.too_deep(start)
            raise _StopReading

    # Places

    def _place(self, node: Any, span: Span, key_span: Span | None) -> Node:
        """Where a node, and all that lies below it, is written. Merged members are where their anchor is."""
        children: Any = None
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            children = {
                self._key(pair[0]): self._place(pair[1], self._span_in(pair, 1), self._span_in(pair, 0))
                for pair in node.value
            }
        elif isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE:
            children = [
                self._place(item, self.alias_spans.get((id(node), index)) or _span(item), None)
                for index, item in enumerate(node.value)
            ]
        key_start, key_end = (-1, -1) if key_span is None else (key_span.start, key_span.end)
        return key_start, key_end, span.start, span.end, children

    def _span_in(self, pair: _Pair, side: int) -> Span:
        return self.alias_spans.get((id(pair), side)) or _span(pair[side])


def _span(written: Any) -> Span:
    """Where an event or a node is written."""
    return Span(written.start_mark.index, written.end_mark.index)


def _mark_at(mark: Any, index: int) -> Any:
    """A mark of either parser, elsewhere; only its offset is used."""
    return yaml.Mark(mark.name, index, mark.line, mark.column, None, 0)
