"""What the instructions of TensorE and the microscaled types do."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..dtypes import DTYPES, decode, encode, pack, unpack
from ..errors import NkiWarning
from .machine import Core, semantics

Array = NDArray[Any]
MX_ROWS, QUADRANT = 8, 32  # partitions of one scale; partitions of one quadrant


def _accumulate(core: Core, ins: ir.Instruction, product: Array) -> None:
    """Adds a product to what products have written at dst before, or overwrites, and remembers that it has written."""
    access = core.access(ins, "dst")
    view, dtype = core.view(access), core.memory.dtype(access)
    written = core.memory.summed_view(core.number, access, core.shift(access))
    mode = ins.attributes.get("accumulate")
    product = product.reshape(view.shape)
    if mode is not False:
        old = decode(view, dtype)
        if mode is True:
            if np.isnan(old[~written]).any():
                warnings.warn(
                    f"nc_matmul: accumulate=True adds to PSUM that nothing has written ({ins.location})",
                    NkiWarning,
                    stacklevel=2,
                )
            product = old + product
        else:
            product = np.where(written, old + product, product)
    view[...] = encode(product, dtype)
    written[...] = True


@semantics("nc_matmul")
def nc_matmul(core: Core, ins: ir.Instruction) -> None:
    """stationary^T @ moving in float32."""
    if ins.attributes["is_transpose"]:
        _transpose(core, ins)
        return
    stationary, moving = core.read(ins, "stationary"), core.read(ins, "moving")
    if ins.attributes["perf_mode"] == "double_row":
        stationary, moving = (x.reshape(x.shape[0] * 2, -1) for x in (stationary, moving))
    _accumulate(core, ins, stationary.T @ moving)


def _transpose(core: Core, ins: ir.Instruction) -> None:
    """With an identity as moving operand the product is stationary^T, moved as bits: NaN does not spread."""
    stationary, moving = core.raw(ins, "stationary"), core.read(ins, "moving")
    if np.array_equal(moving, np.eye(*moving.shape, dtype=np.float32)):
        core.write_raw(ins, "dst", stationary.T[:, : moving.shape[1]])
    else:
        core.write(ins, "dst", core.read(ins, "stationary").T @ moving)


@semantics("nc_transpose")
def nc_transpose(core: Core, ins: ir.Instruction) -> None:
    """dst = data^T, as bits."""
    core.write_raw(ins, "dst", core.raw(ins, "data").T)


def _scales(core: Core, ins: ir.Instruction, key: str, rows: int) -> Array:
    """The scale of each partition and element, from the first four partitions of each quadrant."""
    raw = core.raw(ins, key).view(np.uint8)
    values = decode(raw, DTYPES["float8_e8m0fnu"])
    partition = np.arange(rows)
    return values[partition // QUADRANT * QUADRANT + partition % QUADRANT // MX_ROWS]


@semantics("nc_matmul_mx")
def nc_matmul_mx(core: Core, ins: ir.Instruction) -> None:
    """Sum over partitions and packed values of scaled products."""
    sides = []
    for key in ("stationary", "moving"):
        values = unpack(core.raw(ins, key), core.dtype(ins, key))
        values = values * _scales(core, ins, key + "_scale", values.shape[0])[..., None]
        sides.append(np.moveaxis(values, 2, 1).reshape(-1, values.shape[1]))
    _accumulate(core, ins, sides[0].T @ sides[1])


@semantics("quantize_mx")
def quantize_mx(core: Core, ins: ir.Instruction) -> None:
    """Scale 2^(floor(log2 amax) - (Emax - 1)) of each group; Emax 8 for e4m3fn, 15 for e5m2; zeros get 2^-127."""
    values = core.read(ins, "src")
    rows = values.shape[0]
    dtype = core.dtype(ins, "dst")
    emax = 8 if dtype.part == "float8_e4m3fn" else 15
    groups = values.reshape(rows // MX_ROWS, MX_ROWS, -1, 4)
    amax = np.abs(groups).max(axis=(1, 3)).astype(np.float64)
    exponent = np.frexp(np.where(amax > 0, amax, 1.0))[1] - 1
    exponent = np.where(amax > 0, exponent - (emax - 1), -127).clip(-127, 127)
    exponent = np.where(np.isfinite(amax), exponent, 128)
    scaled = groups / np.ldexp(1.0, exponent)[:, None, :, None]
    packed = pack(scaled.astype(np.float32).reshape(rows, -1, 4), dtype)
    core.write_raw(ins, "dst", packed)
    scale = core.raw(ins, "dst_scale").copy()
    group = np.arange(rows // MX_ROWS)
    per = QUADRANT // MX_ROWS
    scale[group // per * QUADRANT + group % per] = (exponent + 127).astype(np.uint8)
    core.write_raw(ins, "dst_scale", scale)
