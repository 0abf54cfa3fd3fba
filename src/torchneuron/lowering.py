"""What `lower` does."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from torchneuron import target
from torchneuron.errors import CommandError

ENDINGS = {".mlir": "StableHLO as text", ".mlirbc": "portable bytecode", ".pb": "HLO", ".neff": "a NEFF"}


def check_output(output: Path, chip: str | None, lnc: int | None) -> None:
    """CommandError for a file that cannot be written, before anything long begins."""
    if output.suffix not in ENDINGS:
        endings = ", ".join(f"{ending} ({what})" for ending, what in ENDINGS.items())
        raise CommandError(f"{str(output)!r} does not say what to write. End it in one of {endings}.")
    if output.suffix != ".neff" and (chip is not None or lnc is not None):
        raise CommandError(f"--target and --lnc are for neuronx-cc, and {output} is not a .neff. Leave them out.")
    folder = output.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise CommandError(f"{str(folder)!r} is not a folder that can be written. Make it, or name another FILE.")


def write(named: target.Target, output: Path, backward: bool, chip: str | None, lnc: int | None) -> str:
    """Lowers the model that a function gives and writes it. Returns one line about it."""
    from torch_neuronx.compiler import hlo, neuronx_cc
    from torch_neuronx.compiler.files import write_whole
    from torch_neuronx.lowering import api, errors

    with target.naming_errors(str(named), named.module):
        case = target.case(target.load_function(named)())
    if case is None:
        raise CommandError(f"{named} returned no model. For `lower` a FUNCTION returns (model, args).")
    args = tuple(case.args) if isinstance(case.args, (tuple, list)) else (case.args,)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch.export warns of its own use of pytrees
            lowered = api.lower(case.model, args, case.kwargs, backward=backward)
        if output.suffix == ".neff":
            neff = neuronx_cc.compile(lowered.text_with_locations(), target=chip, lnc=lnc)
            write_whole(output, neff.read_bytes())
        elif output.suffix == ".pb":
            write_whole(output, hlo.from_stablehlo(lowered.text_with_locations()))
        else:
            lowered.save(output)
    except (
        errors.LoweringError,
        hlo.MissingExtraError,
        neuronx_cc.CompilerNotFoundError,
        neuronx_cc.CompilationError,
        ValueError,
        OSError,
    ) as error:
        raise CommandError(str(error)) from error
    operators = sum(lowered.operators.values())
    return f"{output}: {ENDINGS[output.suffix]}, {lowered.operations()} operations from {operators} operator calls"
