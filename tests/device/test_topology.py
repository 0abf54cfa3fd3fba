"""Which chips and cores a process sees, for each way to say it in the environment, and what a wrong value says."""

from __future__ import annotations

import pytest

GIB = 1 << 30


@pytest.fixture
def topology(fresh):
    """The topology in a fresh process with these variables set."""

    def ask(**variables: str):
        return fresh("import torch_neuronx; result = torch_neuronx._C.topology()", **variables)

    return ask


def test_default(topology) -> None:
    assert topology() == {
        "instance": "trn2.3xlarge",
        "chip": "trn2",
        "chips": 1,
        "lnc": 2,
        "logical_cores": 4,
        "visible": [0, 1, 2, 3],
        "hbm_bytes_per_core": 24 * GIB,
        "initial_core": 0,
    }


@pytest.mark.parametrize(
    ("instance", "lnc", "chip", "cores", "gib"),
    [
        ("trn2.3xlarge", "1", "trn2", 8, 12),
        ("trn2.48xlarge", "2", "trn2", 64, 24),
        ("trn2u.48xlarge", "2", "trn2", 64, 24),
        ("trn3pd98.3xlarge", "2", "trn3", 4, 36),
        ("trn3pd98.3xlarge", "1", "trn3", 8, 18),
        ("trn3-gen1", "2", "trn3", 64, 36),
        ("trn3-gen2", "2", "trn3", 16, 36),
        ("trn3-gen2", "1", "trn3", 32, 18),
    ],
)
def test_instances(topology, instance: str, lnc: str, chip: str, cores: int, gib: int) -> None:
    seen = topology(TORCH_NEURONX_INSTANCE_TYPE=instance, NEURON_LOGICAL_NC_CONFIG=lnc)
    assert (seen["instance"], seen["chip"], seen["lnc"]) == (instance, chip, int(lnc))
    assert seen["logical_cores"] == cores and seen["visible"] == list(range(cores))
    assert seen["hbm_bytes_per_core"] == gib * GIB


@pytest.mark.parametrize(
    ("variables", "instance"),
    [
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}, "trn2.3xlarge"),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}, "trn3pd98.3xlarge"),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3", "TORCH_NEURONX_INSTANCE_TYPE": "trn2.48xlarge"}, "trn2.48xlarge"),
        ({"TORCH_NEURONX_INSTANCE_TYPE": "  trn3-gen2\t"}, "trn3-gen2"),
        ({"TORCH_NEURONX_INSTANCE_TYPE": "  "}, "trn2.3xlarge"),  # blank means unset
    ],
)
def test_choice_of_instance(topology, variables: dict[str, str], instance: str) -> None:
    assert topology(**variables)["instance"] == instance


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({"NEURON_RT_VISIBLE_CORES": "0-3"}, [0, 1, 2, 3]),
        ({"NEURON_RT_VISIBLE_CORES": "2"}, [2]),
        ({"NEURON_RT_VISIBLE_CORES": "3,0-1"}, [3, 0, 1]),  # the order is the order of the devices
        ({"NEURON_RT_VISIBLE_CORES": " 1 - 2 , 0 "}, [1, 2, 0]),
        ({"NEURON_RT_VISIBLE_CORES": "1", "NEURON_RT_NUM_CORES": "3"}, [1]),
        ({"NEURON_RT_NUM_CORES": "3"}, [0, 1, 2]),
        ({"NEURON_RT_NUM_CORES": "0"}, [0, 1, 2, 3]),
        ({"NEURON_RT_VISIBLE_CORES": "6-7", "NEURON_LOGICAL_NC_CONFIG": "1"}, [6, 7]),
        ({"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}, list(range(8))),
        ({"NEURON_RT_VIRTUAL_CORE_SIZE": "1", "NEURON_LOGICAL_NC_CONFIG": "1"}, list(range(8))),
        ({"TORCH_NEURONX_INSTANCE_TYPE": "trn2.48xlarge", "NEURON_RT_VISIBLE_CORES": "62-63"}, [62, 63]),
    ],
)
def test_visible_cores(topology, variables: dict[str, str], visible: list[int]) -> None:
    assert topology(**variables)["visible"] == visible


@pytest.mark.parametrize(
    ("variables", "core"),
    [
        ({"LOCAL_RANK": "3"}, 3),
        ({"LOCAL_RANK": "6"}, 2),
        ({"LOCAL_RANK": "3", "NEURON_RT_VISIBLE_CORES": "2"}, 0),
        ({"LOCAL_RANK": "1", "NEURON_RT_NUM_CORES": "2"}, 1),
    ],
)
def test_local_rank_chooses_the_first_core(topology, variables: dict[str, str], core: int) -> None:
    assert topology(**variables)["initial_core"] == core


@pytest.mark.parametrize(
    ("name", "value", "allowed", "others"),
    [
        (
            "TORCH_NEURONX_INSTANCE_TYPE",
            "p5.48xlarge",
            "one of trn2.3xlarge, trn2.48xlarge, trn2u.48xlarge, trn3pd98.3xlarge, trn3-gen1, trn3-gen2",
            {},
        ),
        ("TORCH_NEURONX_INSTANCE_TYPE", "TRN2.3xlarge", "one of trn2.3xlarge", {}),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1", "one of trn2, trn3", {}),
        ("NEURON_LOGICAL_NC_CONFIG", "0", "an integer from 1 to 2", {}),
        ("NEURON_LOGICAL_NC_CONFIG", "3", "an integer from 1 to 2", {}),
        ("NEURON_LOGICAL_NC_CONFIG", "two", "an integer from 1 to 2", {}),
        ("NEURON_RT_VIRTUAL_CORE_SIZE", "4", "an integer from 1 to 2", {}),
        (
            "NEURON_RT_VIRTUAL_CORE_SIZE",
            "1",
            "2, the value of NEURON_LOGICAL_NC_CONFIG",
            {"NEURON_LOGICAL_NC_CONFIG": "2"},
        ),
        ("NEURON_RT_VISIBLE_CORES", "4", "from 0 to 3", {}),
        ("NEURON_RT_VISIBLE_CORES", "8", "from 0 to 7", {"NEURON_LOGICAL_NC_CONFIG": "1"}),
        ("NEURON_RT_VISIBLE_CORES", "2-9", "from 0 to 3", {}),
        ("NEURON_RT_VISIBLE_CORES", "2-1", "from 0 to 3", {}),
        ("NEURON_RT_VISIBLE_CORES", "0,1,0", "without repetition", {}),
        ("NEURON_RT_VISIBLE_CORES", "0,", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", ",", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", "0--1", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", "-1", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", "all", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", "0x1", "core numbers and ranges", {}),
        ("NEURON_RT_VISIBLE_CORES", "99999999999999999999", "core numbers and ranges", {}),
        ("NEURON_RT_NUM_CORES", "5", "an integer from 0 to 4", {}),
        ("NEURON_RT_NUM_CORES", "-1", "an integer from 0 to 4", {}),
        ("NEURON_RT_NUM_CORES", "1.0", "an integer from 0 to 4", {}),
        ("LOCAL_RANK", "-1", "an integer from 0", {}),
        ("LOCAL_RANK", "zero", "an integer from 0", {}),
        ("TORCH_NEURONX_TRACE_LENGTH", "0", "an integer from 1 to 16777216", {}),
        ("TORCH_NEURONX_TRACE_LENGTH", "16777217", "an integer from 1 to 16777216", {}),
    ],
)
def test_wrong_values_name_variable_value_range_and_remedy(
    topology, name: str, value: str, allowed: str, others: dict[str, str]
) -> None:
    with pytest.raises(AssertionError) as caught:
        topology(**{name: value, **others})
    message = str(caught.value)
    assert message.startswith(f"ValueError: {name}='{value}' is not valid: it takes ")
    assert allowed in message
    assert "unset it" in message.lower()


def test_more_cores_than_device_indices(topology) -> None:
    machine = {"TORCH_NEURONX_INSTANCE_TYPE": "trn2.48xlarge", "NEURON_LOGICAL_NC_CONFIG": "1"}
    with pytest.raises(AssertionError, match="ValueError: This process would see") as caught:
        topology(**machine)
    for part in ("128 logical cores", "goes to 126", "NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG=2"):
        assert part in str(caught.value)
    assert topology(**machine, NEURON_RT_NUM_CORES="127")["visible"][-1] == 126
    assert topology(**machine, NEURON_RT_VISIBLE_CORES="127")["visible"] == [127]


def test_an_error_stays_an_error(fresh) -> None:
    code = """
import torch_neuronx
result = []
for _ in range(2):
    try:
        torch_neuronx._C.topology()
    except ValueError as error:
        result.append(str(error))
"""
    first, second = fresh(code, NEURON_RT_NUM_CORES="9")
    assert first == second and "NEURON_RT_NUM_CORES='9'" in first


def test_the_environment_is_read_once(fresh) -> None:
    code = """
import os, torch_neuronx
before = torch_neuronx._C.topology()
os.environ["NEURON_RT_NUM_CORES"] = "1"
result = torch_neuronx._C.topology() == before
"""
    assert fresh(code) is True
