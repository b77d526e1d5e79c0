"""The arena's pages: HTML that works without JavaScript."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter

__all__ = ["STATIC", "router"]

STATIC = Path(__file__).parent / "static"
"""Style sheets and scripts, served under /static."""

router = APIRouter(include_in_schema=False)
