"""Environment variables: the one list of their names, types, defaults and meaning.

The documentation page (docs/environment.md) is written from this table. C++ code reads the variables it needs itself,
at first use; a test checks that every name it reads stands here, and that only variables marked as working are read.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["bool", "choice", "cores", "float", "int", "path", "text"]
Status = Literal["works", "nothing to do", "planned"]

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


class Variable(NamedTuple):
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
    maximum: int | None = None

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
            allowed = "an integer" if self.kind == "int" else "a number"
            allowed += "" if self.minimum is None else f" of at least {self.minimum}"
            allowed += "" if self.maximum is None else f" and at most {self.maximum}"
            try:
                number = int(value) if self.kind == "int" else float(value)
            except ValueError:
                raise self._error(text, allowed) from None
            low = number if self.minimum is None else self.minimum
            high = number if self.maximum is None else self.maximum
            if not low <= number <= high:
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


VARIABLES: Mapping[str, Variable] = _table(
    # --- which device
    Variable(
        "TORCH_NEURONX_INSTANCE_TYPE",
        "text",
        "trn2.3xlarge",
        "Instance to emulate: its chip generation and number of chips.",
    ),
    Variable(
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        "choice",
        "",
        "Chip generation to emulate, on the smallest instance that has it. TORCH_NEURONX_INSTANCE_TYPE wins.",
        choices=("trn2", "trn3"),
    ),
    Variable("NEURON_LOGICAL_NC_CONFIG", "choice", "2", "Physical cores in one logical core.", choices=("1", "2")),
    Variable(
        "NEURON_RT_VIRTUAL_CORE_SIZE",
        "choice",
        "",
        "Older spelling of NEURON_LOGICAL_NC_CONFIG; an error when the two disagree.",
        choices=("1", "2"),
    ),
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
    Variable(
        "TORCH_NEURONX_GEMM",
        "choice",
        "auto",
        "The host's library for float32 matrix products: the faster one, by timing both at the first large product; "
        "always MKL; oneDNN where PyTorch has it.",
        choices=("auto", "mkl", "onednn"),
    ),
    Variable(
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
        "bool",
        "0",
        "Only an operator without a native kernel may fall back to the CPU; one that has a kernel which fails raises. "
        "This package never hides a failure behind a fallback, so both values behave the same.",
        "nothing to do",
    ),
    Variable(
        "NEURON_LAUNCH_BLOCKING",
        "bool",
        "0",
        "Wait for each launch. Results are always computed before an operator returns, so errors already appear at the "
        "line that caused them.",
        "nothing to do",
    ),
    Variable(
        "TORCH_NEURONX_ENABLE_STACK_TRACE",
        "bool",
        "0",
        "Record the Python stack of each operator. Errors are raised at the operator itself, with its stack.",
        "nothing to do",
    ),
    Variable(
        "TORCH_NEURONX_ENABLE_ASYNC_NRT", "bool", "0", "Asynchronous runtime of the real device.", "nothing to do"
    ),
    Variable(
        "TORCH_NEURONX_ENABLE_CONCATENATION", "bool", "", "Eager fusion: group operators into one launch.", "planned"
    ),
    Variable("TORCH_NEURONX_ENABLE_PROLOGUE", "bool", "", "Eager fusion: fold work into the next launch.", "planned"),
    Variable("TORCH_NEURONX_ENABLE_NKI_SDPA", "bool", "1", "Attention through the NKI flash kernel.", "planned"),
    Variable(
        "TORCH_NEURONX_EMBEDDING_BWD_NKI_THRESHOLD",
        "int",
        "",
        "Size from which the backward of embedding uses an NKI kernel.",
        "planned",
    ),
    # --- memory
    Variable(
        "PYTORCH_ALLOC_CONF",
        "text",
        "",
        "PyTorch's allocator options, as name:value pairs separated by commas.",
    ),
    Variable(
        "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG",
        "text",
        "",
        "TorchNeuron's allocator options, kMaxSplitSizeBytes=BYTES and kMaxNonSplitRoundingBytes=BYTES, separated by "
        "commas. They win over PyTorch's.",
    ),
    Variable(
        "TORCH_NEURONX_HOST_MEMORY_CHECK",
        "bool",
        "1",
        "Raise an error when the host cannot back the emulated HBM that is asked for; 0 leaves that to the system.",
    ),
    Variable(
        "TORCH_NEURONX_DEBUG_MEMORY",
        "bool",
        "0",
        "Make device memory inaccessible outside kernels, so that a stray access by the host traps.",
    ),
    # --- device time
    Variable(
        "TORCH_NEURONX_TRACE_LENGTH",
        "int",
        "65536",
        "Launches that the device's trace keeps; older ones go.",
        minimum=1,
        maximum=1 << 24,
    ),
    # --- compiler
    Variable("TORCH_NEURONX_DEBUG_DIR", "path", "/tmp/neuron_backend", "Where compilation artifacts go.", "planned"),
    Variable(
        "TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS",
        "bool",
        "0",
        "Keep the FX graph and StableHLO of each compiled graph.",
        "planned",
    ),
    Variable(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
        "bool",
        "1",
        "1: a graph that fails to compile raises. 0: it runs eagerly.",
    ),
    Variable(
        "TORCH_NEURONX_VECTOR_ISA",
        "choice",
        "",
        "Which build of the fused vector engine runs, for tests; by default the best that the processor has.",
        choices=("portable", "avx2", "avx512"),
    ),
    Variable("TORCH_NEURONX_COMPLEX_DECOMPOSE", "bool", "1", "Decompose complex operators before lowering.", "planned"),
    Variable(
        "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY",
        "bool",
        "0",
        "1: a compiled graph raises for inputs on the CPU instead of copying them to the device.",
    ),
    Variable(
        "TORCH_NEURONX_RETAIN_DEVICE_MODE",
        "bool",
        "0",
        "1: outputs of a compiled graph go back to the device of its inputs.",
        "planned",
    ),
    Variable(
        "TORCH_NEURONX_NEFF_CACHE_DIR",
        "path",
        "",
        "Where neuronx_cc.compile keeps what neuronx-cc made; by default torch-neuronx/neff in the cache folder.",
    ),
    Variable(
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
        "path",
        "",
        "A second, local cache in front of that one: NEFFs are looked for there first and copied there.",
    ),
    Variable("TORCH_NEURONX_DISABLE_NEFF_CACHE", "bool", "0", "1: call neuronx-cc each time."),
    Variable("TORCH_NEURONX_NEFF_DISABLE_CACHE", "bool", "0", "Another spelling of the same."),
    Variable("TORCH_NEURONX_ENABLE_STABLEHLO", "bool", "", "Lower through StableHLO.", "planned"),
    Variable("TORCH_NEURONX_MLIR_ATEN_OPS", "bool", "", "Lower ATen operators through MLIR.", "planned"),
    Variable(
        "NEURON_CC_FLAGS",
        "text",
        "",
        "Flags that neuronx_cc.compile gives to neuronx-cc, after --framework, --target and --lnc. Without an -O among "
        "them, -O1 is added.",
    ),
    # --- NKI
    Variable(
        "NKI_PRECISE_FP",
        "bool",
        "1",
        "0: kernels keep 16-bit and 8-bit floating point as float32; nothing is rounded to the narrow types.",
    ),
    Variable("NKI_SIMULATOR", "bool", "0", "Run kernels on the host. They always do.", "nothing to do"),
    # --- metrics and logs
    Variable("TORCH_NEURONX_LOG_LEVEL", "int", "0", "0 to 3; 3 logs most.", "planned", minimum=0),
    Variable("TORCH_NEURONX_METRICS_ENABLED", "bool", "0", "Write tables of metrics.", "planned"),
    Variable("TORCH_NEURONX_ENABLED_METRIC_TABLES", "text", "", "Which tables, separated by commas.", "planned"),
    Variable("TORCH_NEURONX_METRICS_DIR", "path", "/tmp", "Where the tables go.", "planned"),
    # --- distributed
    Variable("TORCH_NEURONX_ENABLE_HOST_CC", "bool", "0", "Collectives driven by the host.", "planned"),
    Variable("NEURON_USE_SPLIT_ALLGATHER", "bool", "1", "All-gather in parts, with less memory.", "planned"),
    Variable("NEURON_USE_SPLIT_REDUCE_SCATTER", "bool", "1", "Reduce-scatter in parts, with less memory.", "planned"),
    Variable("COLLECTIVE_BUCKETSIZE_IN_MB", "int", "512", "Largest part of one collective.", "planned", minimum=1),
    Variable("COLLECTIVE_MIN_BUCKETS", "int", "0", "Least number of parts.", "planned", minimum=0),
    Variable("NEURON_RT_ROOT_COMM_ID", "text", "", "Address at which ranks meet.", "planned"),
    # --- runtime of the real device
    Variable("NEURON_RT_STOCHASTIC_ROUNDING_EN", "bool", "0", "Round stochastically instead of to even.", "planned"),
    Variable("NEURON_RT_EXEC_TIMEOUT", "int", "30", "Seconds after which a launch fails.", "nothing to do", minimum=0),
    Variable("NEURON_RT_LOG_LEVEL", "text", "WARN", "Log level of the runtime.", "nothing to do"),
    Variable("NEURON_RT_LOG_LOCATION", "text", "", "Where the runtime logs.", "nothing to do"),
    Variable("NEURON_RT_INSPECT_ENABLE", "bool", "0", "Profile the device.", "planned"),
    Variable("NEURON_RT_INSPECT_OUTPUT_DIR", "path", "./output", "Where the profile goes.", "planned"),
)


def _variable(name: str) -> Variable:
    try:
        return VARIABLES[name]
    except KeyError:
        raise KeyError(f"{name} is not in torch_neuronx.config.VARIABLES") from None


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
    prefix = "TORCH_NEURONX_"
    for name in sorted(environment):
        if not name.startswith(prefix):
            continue
        if name not in VARIABLES:
            import difflib  # only for a misspelt name: not worth its import time otherwise

            known = {other.removeprefix(prefix): other for other in VARIABLES if other.startswith(prefix)}
            close = difflib.get_close_matches(name.removeprefix(prefix), known, 1, 0.6)
            hint = f"; did you mean {known[close[0]]}?" if close else "; the list is in docs/environment.md"
            warnings.warn(f"{name} is set, but torch_neuronx knows no such variable{hint}", stacklevel=2)
        elif VARIABLES[name].status == "planned":
            warnings.warn(f"{name} is set, but this version of torch_neuronx does not act on it yet", stacklevel=2)
