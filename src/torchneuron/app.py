"""The commands. Each imports PyTorch when it runs, and not before: `--help` and completion are quick."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.console import Console

from torchneuron import target
from torchneuron.errors import BAD_INPUT, CommandError
from torchneuron.progress import Ticker, ticking

if TYPE_CHECKING:
    from torch_neuronx.checking import Report

app = typer.Typer(
    name="torchneuron",
    help="PyTorch on Trainium: would a program run there, and as what?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
errors = Console(stderr=True, highlight=False)


class Rule(str, Enum):
    """What "native" means."""

    lowering = "lowering"
    engine = "engine"


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs, instead of tables.")]
Trace = Annotated[bool, typer.Option("--traceback", help="Before an error of the program, print its whole traceback.")]


@contextmanager
def reporting(show_traceback: bool = False) -> Iterator[None]:
    """Prints a CommandError as one paragraph and ends with status 2."""
    try:
        yield
    except CommandError as error:
        if show_traceback and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"torchneuron: error: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="[bold]Examples[/bold]\n\n"
    "torchneuron check train.py --epochs 1  [dim]# as the script is; its arguments come after it[/dim]\n\n"
    "torchneuron check models.py:small  [dim]# def small(): return model, args[/dim]\n\n"
    "torchneuron check --train package.models:small  [dim]# forward and backward[/dim]\n\n"
    "torchneuron check --json train.py > report.json",
)
def check(
    what: Annotated[str, typer.Argument(metavar="TARGET", help="A script, train.py, or a function, MODULE:FUNCTION.")],
    arguments: Annotated[Optional[list[str]], typer.Argument(help="Arguments of the script.")] = None,  # noqa: UP045
    train: Annotated[bool, typer.Option("--train", help="Of a function's model: run the backward as well.")] = False,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Of a function's model: also count its compiled graphs.")
    ] = True,
    rule: Annotated[
        Optional[Rule],  # noqa: UP045 - typer reads it at run time, and on Python 3.10
        typer.Option(help="What native means; lowering, where its extra is installed, unless this says otherwise."),
    ] = None,
    every_line: Annotated[bool, typer.Option("--all", help="Print every row of every table.")] = False,
    as_json: Json = False,
    show_traceback: Trace = False,
) -> None:
    """Run a program on the neuron device and say whether it would run on Trainium.

    Prints the operators that were used, native or not and why; 64-bit and complex types with their lines; shapes that
    vary; how many compilations Trainium would need; the peak of device memory. A [bold]script[/bold] runs unchanged
    and moves its model to "neuron" itself. A [bold]function[/bold] takes no arguments and returns (model, args) or
    (model, args, kwargs), which are moved to the device, or runs its work there itself.

    Exit status: 0, it would run; 1, something would not; 2, there is no verdict (the program failed, or used no
    neuron device).
    """
    with reporting(show_traceback):
        named = target.parse(what)
        if named.function and arguments:
            raise CommandError(f"{what} is a function and takes no arguments, and {' '.join(arguments)} was given.")
        if not named.function:
            target.readable(named.module)
        # The program's own output must not end up in the middle of the JSON.
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), ticking(errors, f"checking {what}") as ticker:
            if named.function:
                report = _check_function(named, train, compiled, rule and rule.value, ticker)
            else:
                report = _check_script(named, arguments or [], rule and rule.value, ticker)
        if as_json:
            print(json.dumps(report.to_dict(), indent=2))
        else:
            from torchneuron import render

            render.check(Console(), report, every_line)
        if not report.ran and not report.out_of_memory:
            raise CommandError(_nothing_ran(what, report))
    raise typer.Exit(0 if report.ok else 1)


def _check_script(named: target.Target, arguments: list[str], rule: Any, ticker: Ticker) -> Report:
    from torch_neuronx import checking

    with checking.recording(rule=rule, progress=ticker) as recorded:
        try:
            target.run_script(named.module, arguments)
        except KeyboardInterrupt:
            errors.print("torchneuron: interrupted: the report is of what ran until then")
    return recorded.report()


def _check_function(named: target.Target, train: bool, compiled: bool, rule: Any, ticker: Ticker) -> Report:
    from torch_neuronx import checking

    function = target.load_function(named)
    with checking.recording(rule=rule, progress=ticker) as recorded, target.naming_errors(str(named), named.module):
        result = function()
    case = target.case(result)
    if case is None:
        report = recorded.report()
        if not report.ran and not report.out_of_memory:
            raise CommandError(
                f"{named} ran nothing on the neuron device and returned {_kind(result)}. {target.PROTOCOL}."
            )
        return report
    with target.naming_errors(str(named), named.module):
        return checking.check(
            case.model, case.args, case.kwargs, train=train, compile=compiled, rule=rule, progress=ticker
        )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _nothing_ran(what: str, report: Report) -> str:
    return (
        f"{what}: {report.verdict}. Move the model and its inputs with .to('neuron'), or take the device from "
        "torch.accelerator.current_accelerator(), which is neuron here."
    )


@app.command(
    epilog="[bold]Examples[/bold]\n\ntorchneuron lower models.py:small -o small.mlir  [dim]# text[/dim]\n\n"
    "torchneuron lower --backward models.py:small -o small.mlirbc  [dim]# portable bytecode[/dim]\n\n"
    "torchneuron lower models.py:small -o small.hlo.pb  [dim]# what neuronx-cc reads[/dim]\n\n"
    "torchneuron lower --target trn3 models.py:small -o small.neff  [dim]# calls neuronx-cc[/dim]",
)
def lower(
    what: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that returns (model, args).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .mlir, .mlirbc, .pb or .neff.")],
    backward: Annotated[
        bool, typer.Option("--backward", help="Forward and backward; the model returns a loss.")
    ] = False,
    chip: Annotated[Optional[str], typer.Option("--target", help="Of a .neff: trn2 or trn3.")] = None,  # noqa: UP045
    lnc: Annotated[Optional[int], typer.Option(help="Of a .neff: physical cores in a logical one.")] = None,  # noqa: UP045
    show_traceback: Trace = False,
) -> None:
    """Write a model as StableHLO, or as what neuronx-cc makes of it.

    The ending of FILE says what is written: text (.mlir), portable bytecode (.mlirbc), XLA's HLO (.pb) or a NEFF
    (.neff), for which neuronx-cc must be installed. That last step has not been tried on Trainium.
    """
    from torchneuron import lowering

    with reporting(show_traceback):
        lowering.check_output(output, chip, lnc)
        named = target.parse(what)
        if not named.function:
            raise CommandError(f"{what} is a script; lowering needs MODULE:FUNCTION. {target.PROTOCOL}.")
        with ticking(errors, f"lowering {what}"):
            print(lowering.write(named, output, backward, chip, lnc))


@app.command(
    name="ls",
    epilog="[bold]Examples[/bold]\n\ntorchneuron ls\n\n"
    "TORCH_NEURONX_INSTANCE_TYPE=trn2.48xlarge torchneuron ls\n\n"
    "NEURON_RT_VISIBLE_CORES=0-1 torchneuron ls --json",
)
def list_devices(as_json: Json = False) -> None:
    """List the devices: the emulated machine and chip, its logical cores, and the processes that use one."""
    from torchneuron import render, system

    with reporting():
        facts = system.topology()
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        render.topology(Console(), facts)


@app.command(
    epilog="[bold]Examples[/bold]\n\ntorchneuron env\n\ntorchneuron env --json",
)
def env(as_json: Json = False) -> None:
    """Print what a bug report needs: versions, the host, the emulated chip, the settings. Nothing secret."""
    from torchneuron import render, system

    with reporting():
        facts = system.environment()
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        render.environment(Console(), facts)
