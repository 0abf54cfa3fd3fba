"""The door to Trainium's own compiler: writes what `neuronx-cc` takes, calls it, and keeps the NEFF that it makes.

This door has not been tried on Trainium, nor with the real compiler: what is written follows its public documentation
("Neuron Compiler CLI Reference Guide", "How to generate a NEFF file"), and the tests use an executable that stands in
for it.

    neff = neuronx_cc.compile(stablehlo, target="trn2")

The compiler takes an XLA HLO module (`hlo.pb`), one input file, `--framework XLA`, `--target`, and `--lnc`. The cache
is addressed by content: a module, with its target, flags and compiler version, is compiled once. Every file appears
in it whole, under its final name, or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch_neuronx import _C, config
from torch_neuronx.compiler import hlo
from torch_neuronx.compiler.files import write_whole

EXECUTABLE = "neuronx-cc"
TARGETS = ("trn2", "trn3")
LNCS = (1, 2)
# What TorchNeuron passes; neuronx-cc's own default is -O2.
DEFAULT_FLAGS = ("-O1",)
SOURCE, READABLE, COMMAND, NEFF, LOG = "module.hlo_module.pb", "module.mlir", "command.txt", "module.neff", "log.txt"

# Flags that this module sets itself: flag -> where to say it instead.
_LNC_FLAGS = ("--lnc", "-lnc", "--logical-nc-config")
_OWN = {
    "--framework": "it is always XLA",
    "--output": "the cache decides it",
    "--logfile": "it is always log.txt beside the NEFF",
    "--cache_dir": "neuronx-cc refuses it (NCC_EARG002); set TORCH_NEURONX_NEFF_CACHE_DIR",
}


class CompilerNotFoundError(RuntimeError):
    """neuronx-cc is not installed. `folder` has what it would have compiled, and the command."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class CompilationError(RuntimeError):
    """neuronx-cc failed. `folder` has its input, the command and its log."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


@dataclasses.dataclass(frozen=True)
class Options:
    """For what, and how, a module is compiled."""

    target: str
    lnc: int
    flags: tuple[str, ...]

    @classmethod
    def make(cls, target: str | None = None, lnc: int | None = None, flags: Sequence[str] = ()) -> Options:
        """Checks what is given, and takes the rest from the emulated chip and from NEURON_CC_FLAGS.

        `flags` come after those of NEURON_CC_FLAGS, so that they win. ValueError for a target, LNC or flag that
        cannot be, or that disagrees with another.
        """
        chip = _C.topology()
        target = chip["chip"] if target is None else target
        lnc = chip["lnc"] if lnc is None else lnc
        if target not in TARGETS:
            raise ValueError(f"target {target!r} is not one of {', '.join(TARGETS)}")
        if lnc not in LNCS:
            raise ValueError(f"lnc {lnc!r} is not 1 or 2: it is the number of physical cores in a logical one")
        given = [*shlex.split(config.get_text("NEURON_CC_FLAGS") or ""), *flags]
        kept = tuple(_without_own(given, {"--target": target, **dict.fromkeys(_LNC_FLAGS, str(lnc))}))
        default = () if any(flag.startswith(("-O", "--optlevel")) for flag in kept) else DEFAULT_FLAGS
        return cls(target, lnc, (*default, *kept))

    def command(self, source: Path, output: Path, log: Path) -> list[str]:
        """The command line, as neuronx-cc documents it."""
        fixed = ["--framework=XLA", f"--target={self.target}", f"--lnc={self.lnc}", f"--output={output}"]
        return [EXECUTABLE, "compile", str(source), *fixed, f"--logfile={log}", *self.flags]


def _without_own(flags: Sequence[str], settled: dict[str, str]) -> Iterator[str]:
    """The flags without those that only repeat what is settled. ValueError for those that contradict it."""
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        if name in _OWN:
            raise ValueError(
                f"{flag!r} cannot be given to neuronx-cc here: {_OWN[name]}. Take it out of NEURON_CC_FLAGS."
            )
        if name not in settled:
            yield flag
            continue
        value = value if equals else next(rest, "")
        if value != settled[name]:
            raise ValueError(
                f"NEURON_CC_FLAGS says {name} {value or '(nothing)'}, and {settled[name]} is asked for. Take it out of "
                "NEURON_CC_FLAGS, or set the chip with TORCH_NEURONX_INSTANCE_TYPE and NEURON_LOGICAL_NC_CONFIG."
            )


def compile(
    stablehlo: str | bytes,
    *,
    target: str | None = None,
    lnc: int | None = None,
    flags: Sequence[str] = (),
) -> Path:
    """Compiles a StableHLO module, as text or bytecode, to a NEFF, and returns the NEFF's path in the cache.

    Args:
        target: "trn2" or "trn3"; by default the chip that is emulated.
        lnc: physical cores in a logical core, 1 or 2; by default as emulated.
        flags: flags of neuronx-cc, after those of NEURON_CC_FLAGS.

    The cache is TORCH_NEURONX_NEFF_CACHE_DIR, by default `torch-neuronx/neff` in the user's cache folder, with
    TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR in front of it where that is set.

    Raises ValueError for a wrong argument, `hlo.MissingExtraError` without jaxlib, CompilerNotFoundError without
    neuronx-cc, CompilationError when it fails. In the last two cases the error says where the input is.
    """
    options = Options.make(target, lnc, flags)
    module = hlo.from_stablehlo(stablehlo)
    compiler = shutil.which(EXECUTABLE)
    key = _key(module, options, _version(compiler))
    folder, local = cache_folder() / key, _local_cache()
    neff = folder / NEFF
    if not _cache_disabled():
        for found in ([local / key / NEFF] if local else []) + [neff]:
            if found.exists():
                return _near(found, local, key)
    _write_input(folder, stablehlo, module, options)
    if compiler is None:
        raise CompilerNotFoundError(
            f"{EXECUTABLE} is not on PATH, so that there is no NEFF. What it would compile for {options.target} is in "
            f"{folder}: {SOURCE} (HLO), {READABLE} (StableHLO), and the command line in {COMMAND}. Install the Neuron "
            "compiler and run this again, or run the command on a machine that has it.",
            folder,
        )
    _run(compiler, options, folder)
    return _near(neff, local, key)


def cache_folder() -> Path:
    """Where NEFFs are kept, one folder for each module and way to compile it."""
    given = config.get_text("TORCH_NEURONX_NEFF_CACHE_DIR")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch-neuronx" / "neff"


def _local_cache() -> Path | None:
    given = config.get_text("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR")
    return Path(given).expanduser() if given else None


def _cache_disabled() -> bool:
    names = ("TORCH_NEURONX_DISABLE_NEFF_CACHE", "TORCH_NEURONX_NEFF_DISABLE_CACHE")
    return any(config.get_bool(name) for name in names)


def _key(module: bytes, options: Options, version: str) -> str:
    """Names a NEFF by all that it depends on: lines of the program that moved are not part of it."""
    words = (options.target, str(options.lnc), *options.flags, version)
    parts = (hlo.without_locations(module), *(word.encode() for word in words))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def _version(compiler: str | None) -> str:
    """What the compiler says of its version; empty when it says nothing, or is not there."""
    if compiler is None:
        return ""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _write_input(folder: Path, stablehlo: str | bytes, module: bytes, options: Options) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / SOURCE, module)
        write_whole(folder / READABLE, stablehlo.encode() if isinstance(stablehlo, str) else stablehlo)
        command = shlex.join(options.command(Path(SOURCE), Path(NEFF), Path(LOG)))
        write_whole(folder / COMMAND, f"{command}\n".encode())
    except OSError as error:
        raise OSError(
            f"the cache folder {folder} cannot be written: {error.strerror}. Set TORCH_NEURONX_NEFF_CACHE_DIR to a "
            "folder that can."
        ) from error


def _run(compiler: str, options: Options, folder: Path) -> None:
    """Compiles in a folder of its own, which goes: the compiler writes intermediate files where it runs."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".compiling-") as name:
        work = Path(name)
        command = options.command(folder.resolve() / SOURCE, work.resolve() / NEFF, work.resolve() / LOG)
        done = subprocess.run([compiler, *command[1:]], cwd=work, capture_output=True, text=True, check=False)
        logged = (work / LOG).read_text(errors="replace") if (work / LOG).exists() else ""
        write_whole(folder / LOG, f"{logged}{done.stdout}{done.stderr}".encode())
        output = work / NEFF
        if done.returncode != 0 or not output.exists() or output.stat().st_size == 0:
            said = (done.stderr or done.stdout or logged).strip().splitlines()
            status = f"exit status {done.returncode}" if done.returncode else "exit status 0 and no NEFF"
            raise CompilationError(
                f"{EXECUTABLE} ended with {status}: {said[-1] if said else 'it said nothing'}. Its input, command line "
                f"and log are in {folder}.",
                folder,
            )
        output.replace(folder / NEFF)


def _near(neff: Path, local: Path | None, key: str) -> Path:
    """The NEFF in the local cache, copied there from the shared one, where there is a local cache."""
    if local is None or neff.is_relative_to(local):
        return neff
    nearby = local / key / NEFF
    nearby.parent.mkdir(parents=True, exist_ok=True)
    write_whole(nearby, neff.read_bytes())
    return nearby
