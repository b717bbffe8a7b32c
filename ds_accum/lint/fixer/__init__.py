"""A fix in keys and values -> edits of the text it is about, and many fixes -> a text with nothing left to fix.

    Fix + Document --edits.py--> TextFix         one finding: which characters change
    Document + lint --passes.py--> Fixed         all that can be applied together, again and again until none is left

    intended.py     the values that a fix asks for: what the new text is held against
    members.py      an object as it is written: its members, and what stands between them
    braces.py       adding to and removing from {...}: JSON, Hjson (with its root without braces), YAML in flow style
    blocks.py       the same for YAML's indented blocks
    writing.py      how keys and values are written
    pieces.py       several rounds of edits as one

No edit is believed: the new text is read again, and has to hold exactly the values that were asked for and no others. A
fix that can't be said so is none. What is not part of a change stays as it is, to the character: comments, order,
indentation, line ends, the byte order mark.
"""

from ds_accum.lint.fixer.edits import in_document, text_fix
from ds_accum.lint.fixer.passes import Fixed, apart, fix_document

__all__ = ["Fixed", "apart", "fix_document", "in_document", "text_fix"]
