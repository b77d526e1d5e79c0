"""The arena's pages: HTML that works without JavaScript."""

from __future__ import annotations

from fastapi import APIRouter

from lowbit_ray.service.pages import board, compare, home, reference, submission
from lowbit_ray.service.pages.problems import PageProblems
from lowbit_ray.service.pages.site import STATIC

__all__ = ["STATIC", "PageProblems", "router"]

router = APIRouter(include_in_schema=False)
for part in (home, board, submission, compare, reference):
    router.include_router(part.router)
