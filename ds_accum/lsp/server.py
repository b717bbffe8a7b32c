"""Which message of a client asks for what: texts are checked when they are opened, saved, or typed and then left alone.

didOpen, didSave                 checked at once
didChange                        checked once nothing has been typed for `DELAY_S`
didClose                         nothing is shown any more
didChangeConfiguration           the launch is read anew, everything is checked again
hover, codeAction                about the text as it is now
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ds_accum import __version__
from ds_accum.config.schema import Version
from ds_accum.errors import DSAccumError
from ds_accum.lint.in_force import CommandLine
from ds_accum.lsp.answers import FIX_ALL, code_actions, hover, protocol_diagnostic
from ds_accum.lsp.checking import Checked, check, syntax_of
from ds_accum.lsp.options import told_by
from ds_accum.lsp.positions import Places

__all__ = ["DELAY_S", "SECTION", "make_server"]

DELAY_S = 0.25
SECTION = "ds-accum"
"""The name of our settings among a client's."""


@dataclass(slots=True)
class _Session:
    """What is known about one client.

    `release` is the DeepSpeed to judge for unless told otherwise, and why that one; `told` what the client says about
    the launch; `complaint` what the user was told last.

    By URI: `checked` is each open text as it was when it was last looked at, `waiting` when it is looked at next, and
    `shown` are those for which the client was sent diagnostics.
    """

    server: LanguageServer
    release: tuple[Version, str]
    delay_s: float
    told: CommandLine
    checked: dict[str, Checked] = field(default_factory=dict)
    waiting: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    complaint: str | None = None

    def read_options(self, options: Any) -> None:
        """A wrong option is said to the user, and the launch stays what it was."""
        try:
            self.told = told_by(options, release=self.release)
        except DSAccumError as error:
            self._complain(error)

    def check_soon(self, uri: str) -> None:
        self._forget_waiting(uri)
        self.waiting[uri] = asyncio.get_running_loop().call_later(self.delay_s, self.check_now, uri)

    def check_now(self, uri: str) -> None:
        """Checks a text, and shows what is found."""
        self._forget_waiting(uri)
        checked = self._check(uri)
        if checked is None or not (checked.is_config or uri in self.shown):
            return
        self.shown.add(uri)
        places = self.places(checked)
        self.server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=uri,
                version=self.server.workspace.get_text_document(uri).version,
                diagnostics=[protocol_diagnostic(item, places) for item in checked.diagnostics],
            )
        )

    def check_all_again(self) -> None:
        for uri in [*self.checked]:
            self.check_now(uri)

    def close(self, uri: str) -> None:
        self._forget_waiting(uri)
        self.checked.pop(uri, None)
        if uri in self.shown:
            self.shown.remove(uri)
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    def current(self, uri: str) -> Checked | None:
        """A text as it is now, checked; None for one that can't be a config."""
        text = self.server.workspace.get_text_document(uri)
        before = self.checked.get(uri)
        if before is not None and before.document.text == text.source and before.told is self.told:
            return before
        return self._check(uri)

    def places(self, checked: Checked) -> Places:
        encoding = self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return Places(checked.document.text, encoding)

    def _check(self, uri: str) -> Checked | None:
        text = self.server.workspace.get_text_document(uri)
        before = self.checked.get(uri)
        location = to_fs_path(uri) if uri.startswith("file:") else None
        syntax = syntax_of(location or uri, text.language_id)
        if syntax is None:
            return None
        try:
            checked = check(
                text.source,
                filename=location or uri,
                syntax=syntax,
                told=self.told,
                path=None if location is None else Path(location),
                was_config=before is not None and before.is_config,
            )
        except DSAccumError as error:  # a settings file that is wrong, a world size that the layout does not fit
            self._complain(error)
            return None
        self.complaint = None
        self.checked[uri] = checked
        return checked

    def _forget_waiting(self, uri: str) -> None:
        handle = self.waiting.pop(uri, None)
        if handle is not None:
            handle.cancel()

    def _complain(self, error: DSAccumError) -> None:
        sentence = f"ds-accum: {error.message}" + (f"; {error.remedy}" if error.remedy else "")
        if sentence == self.complaint:  # once, not with every letter that is typed
            return
        self.complaint = sentence
        self.server.window_show_message(types.ShowMessageParams(type=types.MessageType.Error, message=sentence))


def make_server(*, release: tuple[Version, str], delay_s: float = DELAY_S) -> LanguageServer:
    """A server for one client. `release` is the DeepSpeed to judge for unless the client or a settings file names one,
    and why that one; `delay_s` how long to wait after a letter was typed, in seconds."""
    # The whole text with every change: configs are small, and there is no second idea of where a line ends.
    server = LanguageServer("ds-accum", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    session = _Session(server=server, release=release, delay_s=delay_s, told=told_by(None, release=release))
    _listen_to_texts(server, session)
    _answer_questions(server, session)
    return server


def _listen_to_texts(server: LanguageServer, session: _Session) -> None:
    @server.feature(types.INITIALIZED)
    def initialized(_: LanguageServer, __: types.InitializedParams) -> None:
        # Not earlier: before it has answered `initialize`, a server may not say anything.
        session.read_options(options_at_start)

    options_at_start: Any = None

    @server.feature(types.INITIALIZE)
    def initialize(_: LanguageServer, params: types.InitializeParams) -> None:
        nonlocal options_at_start
        options_at_start = params.initialization_options

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(_: LanguageServer, params: types.DidOpenTextDocumentParams) -> None:
        session.check_now(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(_: LanguageServer, params: types.DidChangeTextDocumentParams) -> None:
        session.check_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(_: LanguageServer, params: types.DidSaveTextDocumentParams) -> None:
        session.check_now(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(_: LanguageServer, params: types.DidCloseTextDocumentParams) -> None:
        session.close(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def did_change_configuration(_: LanguageServer, params: types.DidChangeConfigurationParams) -> None:
        settings = params.settings
        if isinstance(settings, dict) and SECTION in settings:
            session.read_options(settings[SECTION])
            session.check_all_again()


def _answer_questions(server: LanguageServer, session: _Session) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def on_hover(_: LanguageServer, params: types.HoverParams) -> types.Hover | None:
        checked = session.current(params.text_document.uri)
        if checked is None:
            return None
        return hover(checked, session.places(checked), params.position)

    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))
    def on_code_action(_: LanguageServer, params: types.CodeActionParams) -> list[types.CodeAction]:
        checked = session.current(params.text_document.uri)
        if checked is None:
            return []
        capabilities = server.client_capabilities.workspace
        edits = capabilities and capabilities.workspace_edit
        return code_actions(
            checked,
            session.places(checked),
            params,
            version=server.workspace.get_text_document(params.text_document.uri).version,
            with_versions=bool(edits and edits.document_changes),
        )
