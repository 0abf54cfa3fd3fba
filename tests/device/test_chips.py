"""The chips' numbers: each has a source, they agree with each other, and the compiled tables hold the same."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torch_neuronx import _C, chips
from torch_neuronx.chips.spec import Number

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "gen_chip_data.py"
DIRECTORY = ROOT / "src" / "torch_neuronx" / "chips"

SPECS = [*chips.CHIPS.values(), *chips.INSTANCES.values()]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_chip_data", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_number_has_a_source(spec: chips.ChipSpec | chips.InstanceType) -> None:
    texts = {"name", "chip"}
    for name, value in vars(spec).items():
        if name in texts:
            continue
        assert isinstance(value, Number), f"{spec.name}.{name} is a bare {type(value).__name__}"
        assert value >= 0
        assert len(value.source) > 8, f"{spec.name}.{name}"
        assert "http" not in value.source, "sources are documents and sections, addresses go out of date"


def test_a_number_without_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="7 has no source"):
        Number(7, "")


def test_numbers_are_integers_that_keep_their_source() -> None:
    number = Number(3, "somewhere")
    assert number == 3 and number * 2 == 6 and repr(number) == "3"
    for other in (copy.deepcopy(number), pickle.loads(pickle.dumps(number))):
        assert other == 3 and other.source == "somewhere"


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        chips.CHIPS["trn2"].cores = Number(4, "a test")  # type: ignore[misc]


@pytest.mark.parametrize("name", list(chips.CHIPS))
def test_numbers_agree_with_each_other(name: str) -> None:
    chip = chips.CHIPS[name]
    assert chip.sbuf_bytes % chip.sbuf_partitions == 0
    assert chip.sbuf_usable_bytes_per_partition < chip.sbuf_bytes // chip.sbuf_partitions
    assert chip.dma_sustained_bytes_per_second < chip.dma_bytes_per_second
    assert chip.cores % chip.hbm_stacks == 0, "cores share a stack equally"
    assert chip.hbm_bytes % (chip.hbm_stacks << 30) == 0
    for field in ("tensor_sustained_permille", "hbm_sustained_permille"):
        assert 500 <= getattr(chip, field) <= 1000


# Published totals of a chip, which the figures of one core must come close to: AWS rounds clocks differently.
@pytest.mark.parametrize(
    ("name", "bfloat16", "float32", "float8", "microscaled"),
    [("trn2", 667e12, 181e12, 1299e12, 0), ("trn3", 671e12, 183e12, 1299e12, 2517e12)],
)
def test_core_figures_add_up_to_the_chip(
    name: str, bfloat16: float, float32: float, float8: float, microscaled: float
) -> None:
    chip = chips.CHIPS[name]
    flops = 2 * chip.tensor_rows * chip.tensor_cols * chip.tensor_clock_hz * chip.cores
    assert flops == pytest.approx(bfloat16, rel=0.07)
    assert flops / chip.tensor_float32_passes == pytest.approx(float32, rel=0.15)
    assert flops * chip.tensor_float8_speedup == pytest.approx(float8, rel=0.05)
    assert flops * chip.tensor_mx_speedup == pytest.approx(microscaled, rel=0.01)


def test_published_figures() -> None:
    trn2, trn3 = chips.CHIPS["trn2"], chips.CHIPS["trn3"]
    assert (trn2.hbm_bytes, trn3.hbm_bytes) == (96 << 30, 144 << 30)
    assert (trn2.sbuf_bytes, trn3.sbuf_bytes) == (28 << 20, 32 << 20)
    assert (trn2.neuroncore_version, trn3.neuroncore_version) == (3, 4)
    assert (trn2.vector_clock_hz, trn3.vector_clock_hz) == (960_000_000, 1_200_000_000)


def test_instances_refer_to_chips() -> None:
    assert chips.DEFAULT_INSTANCE in chips.INSTANCES
    for instance in chips.INSTANCES.values():
        assert instance.chip in chips.CHIPS
        assert instance.ultraserver_chips % instance.chips == 0
    for chip in chips.CHIPS:
        sizes = [instance.chips for instance in chips.INSTANCES.values() if instance.chip == chip]
        assert sizes[0] == min(sizes), "the first instance of a generation stands for it, and is the smallest"


@pytest.mark.parametrize("name", list(chips.CHIPS))
def test_compiled_chip_is_the_same(name: str) -> None:
    assert _C.chip(name) == {"name": name, **chips.numbers(chips.CHIPS[name])}


def test_compiled_instances_are_the_same() -> None:
    expected = [
        {"name": instance.name, "chip": instance.chip, **chips.numbers(instance)}
        for instance in chips.INSTANCES.values()
    ]
    assert _C.instances() == expected


def test_unknown_chip() -> None:
    with pytest.raises(ValueError, match="there is no chip 'trn9'; there are trn2, trn3"):
        _C.chip("trn9")


def generate(out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", str(TOOL), str(DIRECTORY), str(out)], capture_output=True, text=True)


def test_tables_are_written_only_when_they_change(tmp_path: Path) -> None:
    out = tmp_path / "device" / "chip_data.inc"
    assert generate(out).returncode == 0
    text, written = out.read_text(), out.stat().st_mtime_ns
    assert generate(out).returncode == 0
    assert out.stat().st_mtime_ns == written, "an unchanged table must not cause a rebuild"
    out.write_text("old")
    assert generate(out).returncode == 0
    assert out.read_text() == text, "the output depends on the numbers only"
    assert [path.name for path in out.parent.iterdir()] == [out.name], "a temporary file was left behind"


def test_tables_hold_every_field(tmp_path: Path) -> None:
    text = tool().tables(tool().load_chips(DIRECTORY))
    for chip in chips.CHIPS.values():
        for name, value in chips.numbers(chip).items():
            assert f".{name} = {int(value)}u" in text
    assert f'kDefaultInstance = "{chips.DEFAULT_INSTANCE}"' in text


def test_generator_errors(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not a package"):
        tool().load_chips(tmp_path)
    with pytest.raises(SystemExit, match="Usage"):
        tool().main([])


def test_chips_need_neither_torch_nor_the_extension() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import gen_chip_data, pathlib; "
        f"chips = gen_chip_data.load_chips(pathlib.Path({str(DIRECTORY)!r})); "
        "assert chips.CHIPS['trn3'].cores == 8; "
        "assert chips.cost.cost(chips.cost.Work(kind='move'), chips.CHIPS['trn2'], 2).total == 1210; "
        "print([name for name in ('torch', 'numpy', 'torch_neuronx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_page_is_up_to_date() -> None:
    page = ROOT / "tools" / "gen_chip_doc.py"
    done = subprocess.run([sys.executable, str(page), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}docs/chips.md is out of date: run `make docs`"
