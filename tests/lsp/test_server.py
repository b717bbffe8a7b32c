"""`ds-accum lsp` as an editor runs it: a process on standard input and output, spoken to by pygls' own client.

Everything waits at most `TIMEOUT_S`: a server that says nothing fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
URI = "file:///nowhere/ds_config.json"
MISMATCH = '{"😋": 1, "train_batch_size": 100, "train_micro_batch_size_per_gpu": 8}'
GOOD = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0}'
COMMAND = (sys.executable, "-m", "ds_accum", "lsp")


class Editor:
    """A client, and what the server tells it."""

    def __init__(self) -> None:
        self.client = LanguageClient("test", "1")
        self.shown: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.said: asyncio.Queue[str] = asyncio.Queue()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def show(params: types.PublishDiagnosticsParams) -> None:
            self.shown.put_nowait(params)

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def say(params: types.ShowMessageParams) -> None:
            self.said.put_nowait(params.message)

    async def start(
        self,
        options: Any = None,
        encodings: list[types.PositionEncodingKind] | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> types.InitializeResult:
        await self.client.start_io(*command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
        result = await within_time(
            self.client.initialize_async(
                types.InitializeParams(
                    capabilities=types.ClientCapabilities(
                        general=types.GeneralClientCapabilities(position_encodings=encodings)
                    ),
                    process_id=os.getpid(),
                    initialization_options=options,
                )
            )
        )
        self.client.initialized(types.InitializedParams())
        return result

    async def stop(self) -> None:
        await within_time(self.client.shutdown_async(None))
        self.client.exit(None)
        await within_time(self.client.stop())

    def open(self, text: str, *, uri: str = URI, language: str = "json") -> None:
        item = types.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, text: str, *, version: int, uri: str = URI) -> None:
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                text_document=types.VersionedTextDocumentIdentifier(uri=uri, version=version),
                content_changes=[types.TextDocumentContentChangeWholeDocument(text=text)],
            )
        )

    async def diagnostics(self) -> types.PublishDiagnosticsParams:
        return await within_time(self.shown.get())

    async def codes(self) -> list[Any]:
        return [item.code for item in (await self.diagnostics()).diagnostics]


async def within_time(what: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(what, TIMEOUT_S)


@contextlib.asynccontextmanager
async def editor(
    options: Any = None,
    encodings: list[types.PositionEncodingKind] | None = None,
    command: tuple[str, ...] = COMMAND,
) -> AsyncIterator[Editor]:
    one = Editor()
    await one.start(options, encodings, command)
    try:
        yield one
        await one.stop()
    finally:
        process = one.client._server
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        # The process is gone; nothing may look for it once the loop is closed.
        for pipe in (process.stdin, process.stdout, process.stderr) if process is not None else ():
            transport = getattr(pipe, "_transport", None)
            if transport is not None:
                transport.close()
        await asyncio.sleep(0)


def in_an_editor(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 4 * TIMEOUT_S))


def test_a_config_is_checked_when_it_is_opened_typed_saved_and_closed() -> None:
    async def test() -> None:
        async with editor({"worldSize": 8, "clientOptimizer": True}) as one:
            one.open(MISMATCH)
            first = await one.diagnostics()
            assert (first.uri, first.version) == (URI, 1)
            assert {"DSA101", "DSA102"} & {item.code for item in first.diagnostics}
            # Only the last of what is typed in one go is looked at.
            for version in range(2, 7):
                one.change(MISMATCH + " " * version, version=version)
            one.change(GOOD, version=7)
            fixed = await one.diagnostics()
            assert (fixed.version, *fixed.diagnostics) == (7,)
            one.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(URI)))
            assert not (await one.diagnostics()).diagnostics
            one.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI)))
            closed = await one.diagnostics()
            assert (closed.version, *closed.diagnostics) == (None,)
            assert one.shown.empty()

    in_an_editor(test)


@pytest.mark.parametrize(
    ("encodings", "column"),
    [
        (None, 30),
        ([types.PositionEncodingKind.Utf8, types.PositionEncodingKind.Utf16], 32),
        ([types.PositionEncodingKind.Utf32], 29),
    ],
)
def test_places_are_counted_as_the_client_counts(
    encodings: list[types.PositionEncodingKind] | None, column: int
) -> None:
    async def test() -> None:
        async with editor({"worldSize": 8}, encodings) as one:
            one.open(MISMATCH)
            shown = await one.diagnostics()
            (batch,) = (item for item in shown.diagnostics if item.code in ("DSA101", "DSA102"))
            assert batch.range.start == types.Position(0, column)
            # A hover asks in the same units.
            answer = await within_time(
                one.client.text_document_hover_async(
                    types.HoverParams(types.TextDocumentIdentifier(URI), types.Position(0, column))
                )
            )
            assert batch.code in answer.contents.value

    in_an_editor(test)


def test_files_that_hold_no_config_are_left_alone() -> None:
    async def test() -> None:
        async with editor() as one:
            one.open('{"name": "a-package"}', uri="file:///nowhere/package.json")
            one.open('x = {"train_batch_size": 0}', uri="file:///nowhere/train.py", language="python")
            one.open('{"train_batch_size": 0}', uri="untitled:Untitled-1")
            assert (await one.diagnostics()).uri == "untitled:Untitled-1"
            # What is said about one that stops being a config is taken back.
            one.change("{}", version=2, uri="untitled:Untitled-1")
            assert not (await one.diagnostics()).diagnostics
            assert one.shown.empty()

    in_an_editor(test)


def test_a_wrong_option_is_said_and_a_later_one_takes_effect() -> None:
    async def test() -> None:
        async with editor({"world_size": 8}) as one:
            assert "there is no option world_size; did you mean worldSize?" in await within_time(one.said.get())
            one.open('{"train_batch_size": 9, "gradient_clipping": 1.0}')
            assert "DSA102" not in await one.codes()
            settings = {"ds-accum": {"worldSize": 8}}
            one.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
            assert "DSA102" in await one.codes()

    in_an_editor(test)


def test_a_settings_file_holds_in_an_editor_too_and_a_wrong_one_is_said_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with editor() as one:
            settings, uri = tmp_path / "ds-accum.toml", (tmp_path / "ds_config.json").as_uri()
            settings.write_text("world-size = 8\n", encoding="utf-8")
            text = '{"train_batch_size": 9, "gradient_clipping": 1.0}'
            one.open(text, uri=uri)
            assert "DSA102" in await one.codes()
            settings.write_text("world-size = 9\n", encoding="utf-8")
            one.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))
            assert "DSA102" not in await one.codes()
            settings.write_text("worldsize = 9\n", encoding="utf-8")
            one.change(text + " ", version=2, uri=uri)
            assert 'there is no setting "worldsize"; did you mean world-size?' in await within_time(one.said.get())
            saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
            one.client.text_document_did_save(saved)
            await within_time(  # the answer comes after all that saving has the server say
                one.client.text_document_hover_async(
                    types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 0))
                )
            )
            settings.unlink()
            one.client.text_document_did_save(saved)
            await one.diagnostics()
            assert one.said.empty()

    in_an_editor(test)


def test_what_the_server_can_do_is_announced() -> None:
    async def test() -> None:
        one = Editor()
        result = await one.start()
        capabilities = result.capabilities
        assert result.server_info is not None and result.server_info.name == "ds-accum"
        assert capabilities.position_encoding == types.PositionEncodingKind.Utf16
        assert capabilities.hover_provider
        assert isinstance(capabilities.code_action_provider, types.CodeActionOptions)
        kinds = capabilities.code_action_provider.code_action_kinds
        assert kinds is not None and [str(getattr(kind, "value", kind)) for kind in kinds] == [
            "quickfix",
            "source.fixAll.ds-accum",
        ]
        await one.stop()

    in_an_editor(test)


def test_a_fix_is_offered_and_mends_the_text_that_the_editor_holds() -> None:
    async def test() -> None:
        async with editor({"worldSize": 8}) as one:
            text = '{"😋": 1, "train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": true}}'
            one.open(text)
            shown = await one.diagnostics()
            (unknown,) = (item for item in shown.diagnostics if item.code == "DSA701")
            actions = await within_time(
                one.client.text_document_code_action_async(
                    types.CodeActionParams(
                        types.TextDocumentIdentifier(URI),
                        unknown.range,
                        types.CodeActionContext(diagnostics=[unknown], only=[types.CodeActionKind.QuickFix]),
                    )
                )
            )
            (action,) = (item for item in actions if item.title == "DSA701: rename overlap_com to overlap_comm")
            (edit,) = action.edit.changes[URI]
            units = text.encode("utf-16-le")
            start, end = 2 * edit.range.start.character, 2 * edit.range.end.character
            mended = (units[:start] + edit.new_text.encode("utf-16-le") + units[end:]).decode("utf-16-le")
            assert mended == text.replace("overlap_com", "overlap_comm")

    in_an_editor(test)


def test_the_server_ends_when_its_client_is_gone() -> None:
    process = subprocess.run(COMMAND, input=b"", cwd=REPOSITORY, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert process.stdout == b""


def test_without_pygls_the_command_says_what_to_install() -> None:
    hide = (
        "import sys\nsys.modules['pygls'] = None\nsys.modules['lsprotocol'] = None\n"
        "from ds_accum.cli.main import main\nsys.argv = ['ds-accum', 'lsp']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: the language server needs pygls 2, and lsprotocol is not installed",
        "help: pip install 'ds-accum[lsp]'",
    ]


def test_a_message_that_is_no_json_does_not_end_the_server() -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "shutdown"})
    messages = "".join(f"Content-Length: {len(text)}\r\n\r\n{text}" for text in ("{nonsense", request))
    done = subprocess.run(
        COMMAND, input=messages.encode(), cwd=REPOSITORY, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert b'"id":1' in done.stdout.replace(b" ", b"")
