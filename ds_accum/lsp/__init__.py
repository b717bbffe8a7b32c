"""The language server: the linter's diagnostics, explanations and fixes in an editor, while a config is typed.

    positions.py    offsets of a text <-> lines and characters as a client counts them
    options.py      what the client says about the launch
    checking.py     a text that is open in an editor -> what the linter says about it, with what holds for the file
    answers.py      diagnostics, hovers and code actions in the protocol's own types
    server.py       which message asks for what, and when

Needs pygls: the extra `ds-accum[lsp]`.
"""
