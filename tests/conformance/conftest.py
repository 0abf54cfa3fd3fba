"""Runs the quick form of a database once a session, in a process of its own, and hands the results to the tests."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from conformance import report

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def sweep() -> Callable[[str], report.Results]:
    """`sweep("op,error")` is the quick run of these kinds of entries, see coverage.py."""
    cache: dict[str, report.Results] = {}

    def run(kinds: str) -> report.Results:
        if kinds not in cache:
            path = ROOT / "build" / "conformance" / f"quick-{kinds.replace(',', '-')}.json"
            path.unlink(missing_ok=True)
            command = [sys.executable, str(ROOT / "tests" / "conformance" / "coverage.py"), "--size", "quick"]
            done = subprocess.run(
                [*command, "--kinds", kinds, "--json", str(path)], capture_output=True, text=True, timeout=3600
            )
            # 1 says that a verdict is unexpected: the tests name it. Anything else is a broken run.
            assert done.returncode in (0, 1) and path.exists(), f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            cache[kinds] = report.Results.read(path)
        return cache[kinds]

    return run


@pytest.fixture(scope="session")
def assert_as_known() -> Callable[[report.Results], None]:
    """Fails on any wrong value, error or crash that is not a known failure, and on any known failure that passes."""

    def check(results: report.Results) -> None:
        unexpected, passing = report.judge(results, report.known_failures(results.about["size"]))
        assert not unexpected, "\n".join([f"{len(unexpected)} unexpected failures:", *unexpected[:50]])
        assert not passing, "\n".join(["these pass now, remove them from known_failures.yaml:", *passing])

    return check
