"""What the tool says when it cannot do what it was asked for."""

from __future__ import annotations

BAD_INPUT = 2  # exit status; 1 is a verdict: something would not run on Trainium


class CommandError(Exception):
    """One paragraph for the user: what was wrong, and what to do."""
