"""Asking a process that has not used the device yet: the environment is read once, so each question needs a new one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

# Importing torch takes seconds, so it is done once; each question is answered by a fork of the process that did it.
SERVER = """
import json, os, sys, torch, torch_neuronx
for line in sys.stdin:
    question = json.loads(line)
    child = os.fork()
    if child == 0:
        for name, value in question["env"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        scope = {}
        try:
            exec(question["code"], scope)
            answer = {"result": scope["result"]}
        except Exception as error:
            answer = {"raised": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        print(json.dumps({"raised": "exit", "message": f"status {status}"}), flush=True)
"""
UNSET = (
    "TORCH_NEURONX_INSTANCE_TYPE",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_RT_VIRTUAL_CORE_SIZE",
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
    "LOCAL_RANK",
    "TORCH_NEURONX_TRACE_LENGTH",
)


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def fresh(server: subprocess.Popen[str]) -> Callable[..., Any]:
    """`fresh(code, NAME="value")`: the variable `result` after running `code` in a new process with this environment.

    An exception of the code raises AssertionError "<type>: <message>" here.
    """

    def ask(code: str, **variables: str) -> Any:
        assert server.stdin is not None and server.stdout is not None
        env: Mapping[str, str | None] = {**dict.fromkeys(UNSET), **variables}
        server.stdin.write(json.dumps({"code": code, "env": env}) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if "result" not in answer:
            raise AssertionError(f"{answer['raised']}: {answer['message']}")
        return answer["result"]

    return ask
