"""Environment variables: parsing, errors, and that the table says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from torch_neuronx import config

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r'"((?:TORCH_NEURONX|NEURON|COLLECTIVE|NKI)_[A-Z0-9_]+|LOCAL_RANK|PYTORCH_ALLOC_CONF)"')


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("TORCH_NEURONX_DEBUG_MEMORY", "1", True),
        ("TORCH_NEURONX_DEBUG_MEMORY", "True", True),
        ("TORCH_NEURONX_DEBUG_MEMORY", " off ", False),
        ("TORCH_NEURONX_FALLBACK", "raise", "raise"),
        ("TORCH_NEURONX_TRACE_LENGTH", "12", 12),
        ("NEURON_RT_VISIBLE_CORES", "0-2,5", "0-2,5"),
        ("TORCH_NEURONX_DEBUG_DIR", "/a b", "/a b"),
    ],
)
def test_parse(name: str, text: str, value: object) -> None:
    parsed = config.VARIABLES[name].parse(text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("TORCH_NEURONX_DEBUG_MEMORY", "maybe", "0, 1, true or false"),
        ("TORCH_NEURONX_FALLBACK", "Warn", "one of allow, warn, raise"),
        ("TORCH_NEURONX_TRACE_LENGTH", "many", "an integer of at least 1"),
        ("TORCH_NEURONX_TRACE_LENGTH", "0", "an integer of at least 1"),
        ("TORCH_NEURONX_TRACE_LENGTH", "99999999", "at most 16777216"),
        ("NEURON_RT_VISIBLE_CORES", "0-", "core numbers and ranges"),
        ("NEURON_RT_VISIBLE_CORES", "3-1", "core numbers and ranges"),
        ("NEURON_RT_VISIBLE_CORES", "1,0-2", "without repetition"),
        ("NEURON_RT_VISIBLE_CORES", "-1", "core numbers and ranges"),
        ("NEURON_LOGICAL_NC_CONFIG", "3", "one of 1, 2"),
    ],
)
def test_errors_name_variable_value_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ValueError) as caught:
        config.VARIABLES[name].parse(text)
    for part in (name, repr(text), allowed, "unset"):
        assert part in str(caught.value)


def test_accessors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_NEURONX_DEBUG_MEMORY", "TORCH_NEURONX_TRACE_LENGTH", "NEURON_RT_VISIBLE_CORES", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert config.get_bool("TORCH_NEURONX_DEBUG_MEMORY") is False
    assert config.get_int("TORCH_NEURONX_TRACE_LENGTH") == 65536
    assert config.get_int("LOCAL_RANK") is None
    assert config.get_text("TORCH_NEURONX_INSTANCE_TYPE") == "trn2.3xlarge"
    assert config.get_cores("NEURON_RT_VISIBLE_CORES") is None
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "4,0-1")
    assert config.get_cores("NEURON_RT_VISIBLE_CORES") == [4, 0, 1]
    monkeypatch.setenv("TORCH_NEURONX_TRACE_LENGTH", "  ")  # empty means unset
    assert config.get_int("TORCH_NEURONX_TRACE_LENGTH") == 65536
    with pytest.raises(TypeError, match="TORCH_NEURONX_TRACE_LENGTH is of kind int, not bool"):
        config.get_bool("TORCH_NEURONX_TRACE_LENGTH")
    with pytest.raises(KeyError, match="TORCH_NEURONX_NONSENSE"):
        config.get_bool("TORCH_NEURONX_NONSENSE")


def test_defaults_are_valid() -> None:
    for variable in config.VARIABLES.values():
        if variable.default:
            variable.parse(variable.default)
        assert not variable.choices or variable.kind == "choice"
        assert variable.meaning.endswith(".")


def test_unknown_names_are_warned_about_with_the_closest_one() -> None:
    with pytest.warns(UserWarning) as caught:
        config.warn_unknown(
            {
                "TORCH_NEURONX_FALBACK": "warn",
                "TORCH_NEURONX_ZZZ": "1",
                "TORCH_NEURONX_METRICS_DIR": "/x",
                "TORCH_NEURONX_FALLBACK": "warn",
                "NEURON_SOMETHING_ELSE": "1",
            }
        )
    assert [str(warning.message) for warning in caught] == [
        "TORCH_NEURONX_FALBACK is set, but torch_neuronx knows no such variable; did you mean TORCH_NEURONX_FALLBACK?",
        "TORCH_NEURONX_METRICS_DIR is set, but this version of torch_neuronx does not act on it yet",
        "TORCH_NEURONX_ZZZ is set, but torch_neuronx knows no such variable; the list is in docs/environment.md",
    ]


def test_nothing_is_said_about_an_environment_without_mistakes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.warn_unknown({"TORCH_NEURONX_FALLBACK": "allow", "PATH": "/bin"})


def test_import_warns_once(run_python) -> None:
    done = run_python("import torch, torch_neuronx", env={"TORCH_NEURONX_FALBACK": "warn"})
    assert done.stderr.count("did you mean TORCH_NEURONX_FALLBACK?") == 1


def test_a_wrong_value_stops_the_device_from_starting(run_python) -> None:
    program = """
import torch
try:
    torch.empty(1, device="neuron")
except (RuntimeError, ValueError) as error:
    print(error)
"""
    for name, text in (
        ("TORCH_NEURONX_FALLBACK", "perhaps"),
        ("TORCH_NEURONX_TRACE_LENGTH", "0"),
        ("NEURON_RT_VISIBLE_CORES", "x"),
        ("TORCH_NEURONX_INSTANCE_TYPE", "p5.48xlarge"),
    ):
        output = run_python(program, env={name: text}).stdout
        assert name in output and text in output


def names_read_by(folder: Path, suffixes: tuple[str, ...]) -> set[str]:
    """Variables whose name stands in quotes in the sources, config.py itself apart."""
    found: set[str] = set()
    for path in folder.rglob("*"):
        if path.suffix in suffixes and path.name != "config.py":
            found.update(NAME.findall(path.read_text()))
    return found


def test_table_agrees_with_the_sources() -> None:
    read = names_read_by(ROOT / "csrc", (".cpp", ".h")) | names_read_by(ROOT / "src", (".py",))
    assert read <= set(config.VARIABLES), f"not in the table: {sorted(read - set(config.VARIABLES))}"
    works = {name for name, variable in config.VARIABLES.items() if variable.status == "works"}
    assert works - read <= {"PYTORCH_ALLOC_CONF"}, "the table promises more"  # PyTorch reads this one
    assert read <= works, f"read, but not said to work: {sorted(read - works)}"


def test_page_is_up_to_date() -> None:
    tool = ROOT / "tools" / "gen_environment_doc.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}docs/environment.md is out of date: run `make docs`"
