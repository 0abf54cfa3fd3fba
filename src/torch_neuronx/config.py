"""Environment variables: the one list of their names, types, defaults and meaning.

The documentation page (docs/environment.md) is written from this table. C++ code reads the variables it needs itself,
at first use; a test checks that every name it reads stands here, and that only variables marked as working are read.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from typing import Literal

Kind = Literal["bool", "choice", "cores", "float", "int", "path", "text"]
Status = Literal["works", "nothing to do", "planned"]

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


@dataclasses.dataclass(frozen=True)
class Variable:
    """One environment variable.

    `status`: "works" has the effect described; "nothing to do" is accepted because scripts set it, and asks for
    something that an emulated device always or never does; "planned" belongs to a part that is not built yet.
    """

    name: str
    kind: Kind
    default: str  # as one would write it; "" when unset means something of its own
    meaning: str
    status: Status = "works"
    since: str = "0.1.0"
    choices: tuple[str, ...] = ()
    minimum: int | None = None

    def parse(self, text: str) -> bool | int | float | str:
        """The typed value of `text`. ValueError that names the variable, the value and what is allowed."""
        value = text.strip()
        if self.kind == "bool":
            if value.lower() not in _TRUE + _FALSE:
                raise self._error(text, "0, 1, true or false")
            return value.lower() in _TRUE
        if self.kind == "choice":
            if value not in self.choices:
                raise self._error(text, "one of " + ", ".join(self.choices))
            return value
        if self.kind in ("int", "float"):
            allowed = f"{'an integer' if self.kind == 'int' else 'a number'}" + (
                "" if self.minimum is None else f" of at least {self.minimum}"
            )
            try:
                number = int(value) if self.kind == "int" else float(value)
            except ValueError:
                raise self._error(text, allowed) from None
            if self.minimum is not None and number < self.minimum:
                raise self._error(text, allowed)
            return number
        if self.kind == "cores":
            parse_cores(value, self.name)
        return value

    def _error(self, text: str, allowed: str) -> ValueError:
        return ValueError(f"{self.name}={text!r} is not valid: it takes {allowed}. Correct it or unset it.")


def parse_cores(text: str, name: str = "NEURON_RT_VISIBLE_CORES") -> list[int]:
    """'0-2,5' -> [0, 1, 2, 5]. ValueError for anything else, a core given twice, or a range that runs backwards."""
    error = ValueError(
        f"{name}={text!r} is not valid: it takes core numbers and ranges without repetition, as in 0-2,5. "
        "Correct it or unset it."
    )
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise error
        cores += range(int(first), int(last if dash else first) + 1)
        if dash and int(last) < int(first):
            raise error
    if len(set(cores)) != len(cores):
        raise error
    return cores


def _table(*variables: Variable) -> dict[str, Variable]:
    return {variable.name: variable for variable in variables}


_PLANNED: Status = "planned"
_IDLE: Status = "nothing to do"

VARIABLES: Mapping[str, Variable] = _table(
    # --- the device
    Variable(
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        "choice",
        "trn2",
        "Chip generation to emulate, with the smallest instance that has it. TORCH_NEURONX_INSTANCE_TYPE wins.",
        choices=("trn2", "trn3"),
    ),
    Variable("NEURON_LOGICAL_NC_CONFIG", "choice", "2", "Physical cores in one logical core.", choices=("1", "2")),
    Variable(
        "NEURON_RT_VISIBLE_CORES",
        "cores",
        "",
        "Logical cores this process sees, such as 0-2,5. They become neuron:0, neuron:1, ... in this order. "
        "Wins over NEURON_RT_NUM_CORES.",
    ),
    Variable("NEURON_RT_NUM_CORES", "int", "0", "Number of logical cores this process sees; 0 means all.", minimum=0),
    Variable(
        "LOCAL_RANK",
        "int",
        "",
        "Set by torchrun and accelerate. The device that is current at first: LOCAL_RANK modulo the number of devices.",
        minimum=0,
    ),
    # --- operators
    Variable(
        "TORCH_NEURONX_FALLBACK",
        "choice",
        "warn",
        "What happens when an operator has no native kernel, or computes in a type that Trainium lacks: "
        "count it; count it and warn once; raise.",
        choices=("allow", "warn", "raise"),
    ),
)


def _variable(name: str) -> Variable:
    try:
        return VARIABLES[name]
    except KeyError:
        raise KeyError(
            f"{name} is not a variable of torch_neuronx; the list is torch_neuronx.config.VARIABLES"
        ) from None


def _get(name: str, kinds: tuple[Kind, ...]) -> bool | int | float | str | None:
    variable = _variable(name)
    if variable.kind not in kinds:
        raise TypeError(f"{name} is of kind {variable.kind}, not {' or '.join(kinds)}")
    text = os.environ.get(name, "")
    if text.strip() == "":
        text = variable.default
    return None if text == "" else variable.parse(text)


def get_bool(name: str) -> bool:
    """Value of a variable of kind bool. ValueError when it is set to something else."""
    return bool(_get(name, ("bool",)))


def get_int(name: str) -> int | None:
    """Value of a variable of kind int; None when it is unset and has no default."""
    value = _get(name, ("int",))
    return None if value is None else int(value)


def get_text(name: str) -> str | None:
    """Value of a variable of kind text, path or choice; None when it is unset and has no default."""
    value = _get(name, ("text", "path", "choice"))
    return None if value is None else str(value)


def get_cores(name: str) -> list[int] | None:
    """Value of a variable that lists cores; None when it is unset."""
    value = _get(name, ("cores",))
    return None if value is None else parse_cores(str(value), name)


def check() -> None:
    """ValueError for the first variable in the environment whose value is not valid. Runs when the device starts."""
    for variable in VARIABLES.values():
        text = os.environ.get(variable.name, "")
        if text.strip() and variable.status == "works":
            variable.parse(text)


def warn_unknown(environment: Mapping[str, str] | None = None) -> None:
    """Warn once about TORCH_NEURONX_* names that mean nothing, with the closest name, or that nothing acts on yet."""
    environment = os.environ if environment is None else environment
    for name in sorted(environment):
        if not name.startswith("TORCH_NEURONX_"):
            continue
        if name not in VARIABLES:
            import difflib  # only for a misspelt name: not worth its import time otherwise

            close = difflib.get_close_matches(name, VARIABLES, 1, 0.6)
            hint = f"; did you mean {close[0]}?" if close else "; the list is in docs/environment.md"
            warnings.warn(f"{name} is set, but torch_neuronx knows no such variable{hint}", stacklevel=2)
        elif VARIABLES[name].status == "planned":
            warnings.warn(f"{name} is set, but this version of torch_neuronx does not act on it yet", stacklevel=2)
