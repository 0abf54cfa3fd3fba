"""The Python code in the documentation runs, and prints what the page says it prints.

Every fenced block that is marked ```python runs in a fresh process, the blocks of one page one after another. A block
marked ```text right after it holds the expected output; `...` in it stands for anything.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)
MARK = "--- end of block ---"


def program_and_expected(text: str) -> tuple[str, list[str | None]]:
    """All Python blocks of a page as one program, and for each block its expected output."""
    code: list[str] = []
    expected: list[str | None] = []
    position = 0
    for match in BLOCK.finditer(text):
        language, body = match.groups()
        if language == "python":
            code.append(body + f"print({MARK!r})\n")
            expected.append(None)
        elif expected and expected[-1] is None and text[position : match.start()].strip() == "":
            expected[-1] = body
        position = match.end()
    return "\n".join(code), expected


def runnable() -> list[Path]:
    return [page for page in PAGES if program_and_expected(page.read_text())[1]]


@pytest.mark.parametrize("page", runnable(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks(page: Path, run_python, tmp_path, monkeypatch) -> None:
    program, expected = program_and_expected(page.read_text())
    monkeypatch.chdir(tmp_path)
    outputs = run_python(program, timeout=300).stdout.split(MARK + "\n")
    checker = doctest.OutputChecker()
    for want, got in zip(expected, outputs, strict=False):
        if want is not None:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert checker.check_output(want, got, flags), f"the page says\n{want}\nbut it prints\n{got}"


def test_there_are_examples() -> None:
    assert ROOT / "README.md" in runnable()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md":
            assert f"({page.relative_to(ROOT / 'docs')})" in index, f"docs/index.md does not list {page.name}"
