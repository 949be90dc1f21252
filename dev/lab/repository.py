"""Where the repository is, and which of its packages are the product."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = sorted({path.parent.name for path in ROOT.glob("*/__init__.py")} - {"dev", "tests"})
