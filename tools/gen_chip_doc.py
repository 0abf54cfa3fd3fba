"""Writes docs/chips.md from src/torch_neuronx/chips: every number with its source.

Usage: gen_chip_doc.py [--check]    (--check: exit status 1 when the page is not up to date)
"""

from __future__ import annotations

import sys
from pathlib import Path

from gen_chip_data import load_chips

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "chips.md"

HEAD = """# Chips and machines

<!-- Written by tools/gen_chip_doc.py from src/torch_neuronx/chips; change it there. -->

The numbers of Trainium2 and Trainium3 that the emulated device works with: how much memory a device has, and how long
work takes ([device time](device-time.md)). `src/torch_neuronx/chips` is the one place where they stand; the build turns
them into the tables of the compiled part, and this page is written from them. Nothing here was measured on the machine
that runs this package.

```python
from torch_neuronx import chips

trn2 = chips.CHIPS["trn2"]
print(trn2.hbm_bytes // 2**30, "GiB:", trn2.hbm_bytes.source)
```
```text
96 GiB: Neuron documentation, Trainium2 architecture
```

A *logical NeuronCore*, which is one `neuron` device, is made of one or two physical ones (`NEURON_LOGICAL_NC_CONFIG`,
2 by default). Two physical cores share one stack of HBM: a device has a whole stack at LNC 2 and half of one at LNC 1.

`TORCH_NEURONX_INSTANCE_TYPE` chooses the machine; `NEURON_PLATFORM_TARGET_OVERRIDE=trn3` chooses the smallest machine
of a generation. A process sees one machine; an UltraServer is several of them.

In the tables of the chips, HBM and NeuronLink figures are of the whole chip, the link to the host is of a logical core
in one direction, and everything else is of one physical core. "xpu-perf" is a public set of micro-benchmarks of
torch-neuronx 2.12.3 on one LNC 2 core of a trn2.3xlarge, September 2026.
"""

UNITS = (  # suffix of a field's name; divisors and units, of which the first that leaves at least 1 is taken
    ("_bytes_per_second", ((10**12, "TB/s"), (10**9, "GB/s"))),
    ("_bits_per_second", ((10**9, "Gbit/s"),)),
    ("_bytes_per_partition", ((1, "bytes"),)),
    ("_bytes", ((2**30, "GiB"), (2**20, "MiB"))),
    ("_hz", ((10**9, "GHz"),)),
    ("_ns", ((1000, "us"),)),
    ("_ps", ((1000, "ns"),)),
    ("_permille", ((10, "%"),)),
)


def with_unit(name: str, value: int) -> str:
    """'2.4 GHz' for tensor_clock_hz = 2400000000."""
    for suffix, units in UNITS:
        if name.endswith(suffix):
            divisor, unit = next(((d, u) for d, u in units if value >= d), units[-1])
            return f"{value / divisor:,.5g} {unit}" if divisor > 1 else f"{value:,} {unit}"
    return f"{value:,}"


def plain(name: str) -> str:
    """Name of a field without its unit, in words."""
    if name.endswith("_bytes_per_second"):
        return name.removesuffix("_bytes_per_second").replace("_", " ") + " bandwidth"
    for suffix, _ in UNITS:
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def page() -> str:
    """The text of docs/chips.md."""
    chips = load_chips(ROOT / "src" / "torch_neuronx" / "chips")
    lines = [HEAD, "## Machines", ""]
    lines += ["| name | chip | chips | devices at LNC 2 | memory of a device | UltraServer | network |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for instance in chips.INSTANCES.values():
        chip = chips.CHIPS[instance.chip]
        default = " (default)" if instance.name == chips.DEFAULT_INSTANCE else ""
        whole = f"{instance.ultraserver_chips} chips" if instance.ultraserver_chips else ""
        efa = instance.efa_bits_per_second
        network = with_unit("_bits_per_second", efa) if efa else "not published"
        cores = instance.chips * chip.cores // 2
        memory = with_unit("_bytes", chip.hbm_bytes * 2 // chip.cores)
        cells = (f"`{instance.name}`{default}", chip.name, instance.chips, cores, memory, whole, network)
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += ["", "The type names of the machines in Trn3 UltraServers are not published: `trn3-gen1` and `trn3-gen2`"]
    lines += ["are names of this package.", ""]
    for chip in chips.CHIPS.values():
        lines += [f"## {chip.name}", ""]
        lines += ["| number | value | source |", "|---|---|---|"]
        lines += [
            f"| {plain(name)} | {with_unit(name, int(value))} | {value.source} |"
            for name, value in chips.numbers(chip).items()
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
