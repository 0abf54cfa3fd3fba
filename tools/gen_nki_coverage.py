"""Writes docs/nki-coverage.md: each name of the kernel interface, what it runs on, its state, its tests.

Usage: gen_nki_coverage.py [--check]    (--check: exit status 1 when the page is not up to date)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from nki.isa.table import INSTRUCTIONS  # noqa: E402
from nki.ops import ALU  # noqa: E402

PAGE = ROOT / "docs" / "nki-coverage.md"
HEAD = """# Coverage of the kernel interface

<!-- Written by tools/gen_nki_coverage.py; run `make docs` after a change. -->

Every function of `nki.isa`, `nki.language` and `nki.collectives`. "Tests" are the files in `tests/nki` that use a
name; the library in `nki.kernels`, which they test too, is not counted.
What is *missing* raises `NkiNotImplementedError`.
"""


def sources() -> dict[str, str]:
    """Text of each test file by its name without `test_nki_`."""
    files = sorted((ROOT / "tests" / "nki").glob("test_nki_*.py"))
    skip = "test_nki_package.py"  # lists all names
    return {path.stem.removeprefix("test_nki_"): path.read_text() for path in files if path.name != skip}


def used_in(name: str, module: str, texts: dict[str, str]) -> list[str]:
    """Test files that use a name as `module.name`, or as a string that a test looks up."""
    long = {"nisa": "nki.isa", "nl": "nki.language", "ncc": "nki.collectives"}[module]
    pattern = re.compile(rf'\b(?:{module}|{re.escape(long)})\.{name}\b|"{name}"')
    return [title for title, text in texts.items() if pattern.search(text)]


def rows(module: object, prefix: str, names: list[str]) -> list[tuple[str, str, str, list[str]]]:
    """(name, engines and generation, state, tests) of each function."""
    texts = sources()
    result = []
    for name in names:
        spec = INSTRUCTIONS.get(name) if module is nisa else None
        runs = ", ".join(spec.engines) + (f"; NeuronCore-v{spec.version}" if spec.version > 2 else "") if spec else ""
        text = getattr(module, name).__doc__ or ""
        refused = module is nl and name in ALU and ALU[name].version is None
        state = "missing" if "NkiNotImplementedError" in text else "refused: no chip has it" if refused else "works"
        result.append((name, runs, state, used_in(name, prefix, texts)))
    return result


def functions(module: object, names: list[str]) -> list[str]:
    """Names of functions, without classes, modules and constants."""
    found = (name for name in names if callable(getattr(module, name)) and not isinstance(getattr(module, name), type))
    return sorted(found)


def table() -> dict[str, list[tuple[str, str, str, list[str]]]]:
    """Rows by heading."""
    collectives = [name for name in vars(ncc) if not name.startswith("_") and getattr(vars(ncc)[name], "__doc__", None)]
    collectives = [name for name in collectives if name not in ("here", "annotations", "Any", "NkiNotImplementedError")]
    return {
        "nki.isa": rows(nisa, "nisa", functions(nisa, nisa.__all__)),
        "nki.language": rows(nl, "nl", functions(nl, nl.__all__)),
        "nki.collectives": rows(ncc, "ncc", functions(ncc, collectives)),
    }


def page() -> str:
    """The text of docs/nki-coverage.md."""
    lines = [HEAD]
    for title, items in table().items():
        missing = sum(state == "missing" for _, _, state, _ in items)
        lines += [f"## {title}: {len(items) - missing} of {len(items)}", ""]
        lines += ["| name | runs on | state | tests |", "|---|---|---|---|"]
        for name, runs, state, tests in items:
            lines.append(f"| `{name}` | {runs} | {state} | {', '.join(tests)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
