"""`python -m braidlog` is `braid`."""

from __future__ import annotations

from braidlog.cli.main import main

main()
