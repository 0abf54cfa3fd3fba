"""A random program as one function under torch.compile(fullgraph=True), with its backward."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo

from programs.program import Outcome, Program, restore, seed_all, start, step


def source(program: Program, results: list[str], device: str) -> str:
    """The statements that compute, as `def program(inputs...)`; it returns the variables `results` as a tuple."""
    inputs = [s.out[0] for s in program.statements if s.is_input]
    body = [
        s.reference if device == "cpu" and s.reference is not None else s.text
        for s in program.statements
        if not s.is_input
    ]
    lines = [f"def program({', '.join(inputs)}):", *(f"    {line}" for line in body)]
    return "\n".join([*lines, f"    return ({' '.join(r + ',' for r in results)})", ""])


def loss(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """A number that every result with a graph contributes to."""
    parts = [t.float().square().sum() for t in tensors if t.requires_grad and t.is_floating_point()]
    return torch.stack(parts).sum() if parts else None


def backward(outcome: Outcome) -> None:
    """Gradients of all inputs, from all results."""
    try:
        total = loss([t for _, t in sorted(outcome.tensors().items()) if not t.is_leaf])
        if total is not None:
            total.backward()
    except RuntimeError as error:  # written to: a saved tensor, or the base of one of several views
        outcome.errors[-1] = type(error).__name__
        outcome.messages[-1] = str(error)


def execute_compiled(program: Program, device: str, backend: str) -> Outcome:
    """Inputs are made outside of the graph; its results replace the variables of the program."""
    outcome = start(device)
    for i, statement in enumerate(program.statements):
        if statement.is_input:
            step(statement, i, device, outcome)
    made = {name for s in program.statements for name in s.out}
    results = sorted(made - outcome.env.keys())
    namespace = dict(outcome.env)
    exec(compile(source(program, results, device), "<program>", "exec"), namespace)
    torch._dynamo.reset()
    seed_all(program.seed)
    try:
        inputs = [outcome.env[s.out[0]] for s in program.statements if s.is_input]
        run: Any = torch.compile(namespace["program"], backend=backend, fullgraph=True)
        found = run(*inputs)
        outcome.env.update(zip(results, found, strict=True))
        backward(outcome)
    except Exception as error:
        outcome.errors[-1] = type(error).__name__
        outcome.messages[-1] = " ".join(str(error).split())[:300]
    finally:
        restore()
    return outcome
