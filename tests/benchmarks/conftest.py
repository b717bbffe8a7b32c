"""Ranks are started as the engine's tests start them; the modules beside this are imported by their bare names."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
for folder in (FOLDER, FOLDER.parent / "engine"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
