"""Softmax."""
from .. import language as nl
from ..jit import jit
@jit
def softmax(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.softmax(nl.load(x)))
    return out
