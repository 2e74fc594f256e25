"""The version of braidlog, for whoever has to tell it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0.dev0"
