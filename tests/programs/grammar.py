"""What random programs are made of: tables of expressions, with the exactness that the device owes for each.

`kinds`: the operand's types, f(loat), i(nteger), b(ool). `noise`: see program.Statement. Where it is 0, IEEE arithmetic
leaves no choice (one rounding of the exact result), or nothing is computed, and the device has to give the CPU's bits.
LIBM: transcendental functions. PyTorch's own vectorised ones are allowed up to 4 units in the last place
(Sleef's "u10" is 1, some are u35), the device's are others; the two errors add up.
SUMS: sums are added up in another order, each partial sum rounded, in float32 also for 16-bit types: so many units of
the last place of the sum of absolute values.
"""

from __future__ import annotations

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTS = (torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTS, torch.bool)
DTYPE_WEIGHTS = (8, 4, 2, 2, 2, 2)
SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 129, 1000)

LIBM = 4.0
SUMS = 4.0

# --- one operand: expression, kinds, noise
UNARY: tuple[tuple[str, str, float], ...] = (
    ("-{a}", "fi", 0),
    ("{a}.abs()", "fi", 0),
    ("torch.relu({a})", "fi", 0),
    ("{a}.sign()", "fib", 0),
    ("{a}.square()", "fi", 0),
    ("{a}.sqrt()", "f", 0),
    ("{a}.abs().sqrt()", "f", 0),
    ("{a}.floor()", "f", 0),
    ("{a}.ceil()", "f", 0),
    ("{a}.round()", "f", 0),
    ("{a}.trunc()", "f", 0),
    ("{a}.frac()", "f", 0),
    ("{a}.reciprocal()", "f", 0),
    ("{a}.clamp(-1.5, 2)", "f", 0),
    ("{a}.clamp(min=0)", "fi", 0),
    ("{a}.clamp(max=1)", "fi", 0),
    ("~{a}", "ib", 0),
    ("{a}.logical_not()", "fib", 0),
    ("{a}.isnan()", "f", 0),
    ("{a}.isfinite()", "f", 0),
    ("{a}.nan_to_num(0.5, 9.0, -9.0)", "f", 0),
    ("{a}.clone()", "fib", 0),
    ("{a}.contiguous()", "fib", 0),
    ("copy.deepcopy({a}.detach())", "fib", 0),
    ("F.threshold({a}, 0.1, -1)", "f", 0),
    ("F.hardtanh({a})", "f", 0),
    ("F.leaky_relu({a}, 0.125)", "f", 0),
    ("F.relu6({a})", "f", 0),
    ("F.hardsigmoid({a})", "f", 2),  # (x + 3) / 6 by a product with 1/6 or by a division
    ("F.hardswish({a})", "f", 2),
    ("{a}.sin()", "fib", LIBM),
    ("{a}.cos()", "f", LIBM),
    ("{a}.tanh()", "fi", LIBM),
    ("{a}.sigmoid()", "fib", LIBM),
    ("{a}.exp()", "f", LIBM),
    ("{a}.clamp(max=3).exp()", "f", LIBM),
    ("{a}.expm1()", "f", LIBM),
    ("{a}.log()", "f", LIBM),
    ("{a}.abs().log1p()", "f", LIBM),
    ("{a}.rsqrt()", "f", LIBM),
    ("{a}.erf()", "f", LIBM),
    ("{a}.atan()", "f", LIBM),
    ("F.gelu({a})", "f", LIBM),
    ("F.gelu({a}, approximate='tanh')", "f", LIBM),
    ("F.silu({a})", "f", LIBM),
    ("F.softplus({a})", "f", LIBM),
    ("F.elu({a})", "f", LIBM),
    ("F.logsigmoid({a})", "f", LIBM),
    ("F.mish({a})", "f", 2 * LIBM),
)

# --- a tensor and a number {s}
SCALAR: tuple[tuple[str, str, float], ...] = (
    ("{a} + {s}", "fib", 0),
    ("{a} - {s}", "fi", 0),
    ("{s} - {a}", "fi", 0),
    ("{a} * {s}", "fib", 0),
    ("{a} / {s}", "fi", 1),  # a division, or a product with the reciprocal
    ("{s} / {a}", "f", 0),
    ("{a} // 3", "i", 0),
    ("{a} % 3", "i", 0),
    ("{a} % 0.75", "f", 2),
    ("torch.add({a}, {s}, alpha=2)", "fi", 1),  # one rounding or two
    ("{a} ** 2", "fi", 0),
    ("{a} ** 3", "f", 1),
    ("{a}.abs() ** 0.5", "f", 0),
    ("{a}.abs() ** 1.3", "f", LIBM),
    ("{a} > {s}", "fib", 0),
    ("{a} <= {s}", "fib", 0),
    ("{a} == {s}", "fib", 0),
    ("{a} != 0", "fib", 0),
    ("{a} << 2", "i", 0),
    ("{a} >> 1", "i", 0),
    ("{a} & 6", "i", 0),
    ("{a} ^ 5", "i", 0),
    ("{a}.clamp(min={s})", "fi", 0),
    ("{a}.masked_fill({a} > {s}, 1)", "fib", 0),
    ("torch.where({a} > {s}, {a}, 0)", "fi", 0),
)

# --- two tensors that broadcast
BINARY: tuple[tuple[str, str, float], ...] = (
    ("{a} + {b}", "fib", 0),
    ("{a} - {b}", "fi", 0),
    ("{a} * {b}", "fib", 0),
    ("{a} / {b}", "f", 0),
    ("{a} / ({b}.abs() + 1)", "fi", 0),
    ("torch.maximum({a}, {b})", "fib", 0),
    ("torch.minimum({a}, {b})", "fib", 0),
    ("torch.fmax({a}, {b})", "f", 0),
    ("{a} > {b}", "fib", 0),
    ("{a} <= {b}", "fib", 0),
    ("{a} == {b}", "fib", 0),
    ("{a} != {b}", "fib", 0),
    ("{a}.logical_and({b})", "fib", 0),
    ("{a} & {b}", "ib", 0),
    ("{a} | {b}", "ib", 0),
    ("{a} ^ {b}", "ib", 0),
    ("torch.where({a} > 0, {a}, {b})", "fib", 0),
    ("torch.where({b} > 0.5, {a}, {b})", "fib", 0),
    ("{a}.masked_fill({b} > 0, 0.5)", "f", 0),
    ("torch.add({a}, {b}, alpha=0.3)", "f", 1),
    ("torch.sub({a}, {b}, alpha=2)", "fi", 1),
    ("torch.atan2({a}, {b})", "f", LIBM),
    ("torch.hypot({a}, {b})", "f", LIBM),
    ("{a}.abs() ** {b}", "f", 2 * LIBM),
    ("torch.lerp({a}, {b}, 0.3)", "F", 2),
    ("torch.addcmul({a}, {a}, {b}, value=0.5)", "F", 2),
    ("torch.addcdiv({a}, {a}, {b}.abs() + 0.5, value=0.5)", "F", 2),
    ("torch.nn.functional.mse_loss({a}, {b}, reduction='none')", "F", 1),
    ("F.smooth_l1_loss({a}, {b}, reduction='none')", "F", 2),
    ("torch.where({a} > 0, {b}.sin(), {a} * {b})", "f", LIBM),
    ("({a} * 0.5).add_({b}.detach().tanh())", "F", LIBM),
)

# --- rows: {d} is a dimension or a tuple of them, {k} keepdim. noise and the scale of what is added up
REDUCTION: tuple[tuple[str, str, float, str], ...] = (
    ("{a}.sum({d}, keepdim={k})", "fib", SUMS, "{a}.abs().sum()"),
    ("{a}.sum()", "fib", SUMS, "{a}.abs().sum()"),
    ("{a}.sum({d}, dtype=torch.float32)", "fib", SUMS, "{a}.abs().float().sum()"),
    ("{a}.mean({d}, keepdim={k})", "f", SUMS, "{a}.abs().float().mean() + {a}.abs().float().max()"),
    ("{a}.mean()", "f", SUMS, "{a}.abs().float().mean()"),
    ("{a}.amax({d}, keepdim={k})", "fib", 0, ""),
    ("{a}.amin({d}, keepdim={k})", "fib", 0, ""),
    ("{a}.max()", "fib", 0, ""),
    ("{a}.argmax({d1})", "fi", 0, ""),
    ("{a}.argmin({d1}, keepdim={k})", "fi", 0, ""),
    ("{a}.any({d1})", "fib", 0, ""),
    ("{a}.all()", "fib", 0, ""),
    ("{a}.count_nonzero({d1})", "fib", 0, ""),
    ("{a}.max({d1}).values", "fib", 0, ""),
    ("{a}.min({d1}, keepdim={k})[1]", "fi", 0, ""),
    ("{a}.var({d}, correction=0)", "f", SUMS, "({a}.float() ** 2).sum()"),
    ("{a}.float().var({d1}, keepdim={k})", "f", SUMS, "({a}.float() ** 2).sum()"),
    ("torch.linalg.vector_norm({a}, 2, {d}, {k})", "f", SUMS, ""),
    ("torch.linalg.vector_norm({a}, 1, {d1})", "f", SUMS, ""),
    ("torch.linalg.vector_norm({a}, float('inf'), {d1})", "f", 0, ""),
    ("{a}.logsumexp({d}, {k})", "f", 2 * LIBM, "1 + {a}.abs().float().nan_to_num().max()"),
    ("{a}.softmax({d1})", "f", 4 * LIBM, ""),
    ("{a}.log_softmax({d1})", "f", 4 * LIBM, "1 + {a}.abs().float().nan_to_num().max()"),
    ("F.softmax({a}, {d1}, dtype=torch.float32)", "f", 4 * LIBM, ""),
    ("{a}.cumsum({d1})", "fi", SUMS, "{a}.abs().float().sum()"),
    ("{a}[..., :3].prod(-1)", "fi", SUMS, ""),
)

# Normalised rows have numbers of size 1, divided by a deviation of at least sqrt(eps) = 0.003.
NORMAL = (
    "{a}.abs().float().nan_to_num(0, 0, 0).max() / ({a}.float().var(-1, False).nan_to_num(0, 0, 0).min() + 1e-5).sqrt()"
)
NORMS: tuple[tuple[str, str], ...] = (
    ("F.layer_norm({a}, {a}.shape[-1:])", NORMAL),
    ("F.layer_norm({a}, {a}.shape[-1:], {w}, {w})", NORMAL),
    ("F.rms_norm({a}, {a}.shape[-1:])", ""),
    ("F.rms_norm({a}, {a}.shape[-1:], {w})", ""),
    ("F.group_norm({a}[None, :, None], 1).squeeze()", NORMAL),
    ("F.normalize({a}, dim=-1)", ""),
)

# --- views of a tensor; {i} and {j} are small numbers chosen so that they mostly fit
VIEWS: tuple[tuple[str, int], ...] = (  # expression, least number of dimensions
    ("{a}[1:]", 1),
    ("{a}[..., ::2]", 1),
    ("{a}[..., 1:-1]", 1),
    ("{a}[{i}]", 1),
    ("{a}[..., {i}]", 1),
    ("{a}.t()", 2),
    ("{a}.mT", 2),
    ("{a}.transpose(0, -1)", 1),
    ("{a}.movedim(0, -1)", 1),
    ("{a}.unsqueeze({z})", 0),
    ("{a}.squeeze()", 0),
    ("{a}.flatten()", 0),
    ("{a}.view(-1)", 0),
    ("{a}.reshape(-1, 1)", 0),
    ("{a}.reshape({a}.shape[::-1])", 0),
    ("{a}.expand(2, *{a}.shape)", 0),
    ("{a}[None].expand(3, *{a}.shape)[1:]", 0),
    ("{a}.narrow(0, 0, 1)", 1),
    ("{a}.narrow(-1, {i}, 1)", 1),
    ("{a}.chunk(2)[-1]", 1),
    ("{a}.split(2, -1)[0]", 1),
    ("{a}.unbind(0)[-1]", 1),
    ("{a}.diagonal()", 2),
    ("{a}.unfold(-1, 1, 2)", 1),
    ("{a}.view_as({a})", 0),
    ("{a}.detach()", 0),
    ("{a}.as_strided((({a}.numel() + 1) // 2,), (1,), {a}.storage_offset())", 0),
    ("{a}.as_strided((2, {a}.numel() // 3), ({a}.numel() // 3, 1), {a}.storage_offset())", 0),
)

# --- written in place: expression, kinds, noise. {b} broadcasts to {a}
INPLACE: tuple[tuple[str, str, float], ...] = (
    ("{a}.add_({s})", "fi", 0),
    ("{a}.sub_({s})", "fi", 0),
    ("{a}.mul_({s})", "fi", 0),
    ("{a}.div_({s})", "f", 1),
    ("{a} += {s}", "fi", 0),
    ("{a}.add_({b})", "fi", 0),
    ("{a}.mul_({b})", "fib", 0),
    ("{a}.sub_({b}, alpha=0.5)", "f", 1),
    ("{a} *= {b}", "f", 0),
    ("{a}.copy_({b})", "fb", 0),
    ("{a}[...] = {b}", "f", 0),  # not bool: the CPU's fill_ gives a bool tensor a gradient, no other device does
    ("{a}[..., 1:] = {s}", "fi", 0),
    ("{a}[{a} > 1] = {s}", "fi", 0),
    ("{a}.fill_({s})", "fi", 0),
    ("{a}.zero_()", "fib", 0),
    ("{a}.masked_fill_({a} > 0.5, {s})", "fi", 0),
    ("{a}.clamp_(-1, 2)", "fi", 0),
    ("{a}.relu_()", "fi", 0),
    ("{a}.neg_()", "fi", 0),
    ("{a}.abs_()", "fi", 0),
    ("{a}.square_()", "f", 0),
    ("{a}.exp_()", "f", LIBM),
    ("{a}.tanh_()", "f", LIBM),
    ("{a}.sigmoid_()", "f", LIBM),
    ("{a}.sin_()", "f", LIBM),
    ("{a}.logical_not_()", "b", 0),
    ("{a}.bitwise_xor_(3)", "i", 0),
    ("{a}.addcmul_({b}, {b}, value=0.5)", "F", 2),
    ("{a}.lerp_({b}, 0.25)", "F", 2),
    ("torch.maximum({a}, {b}, out={a})", "f", 0),
    ("torch.add({a}, {s}, out={a})", "fi", 0),
)

# --- out=: the expression without it
OUT: tuple[tuple[str, str, float], ...] = (
    ("torch.add({a}, {b}, out={o})", "fi", 0),
    ("torch.mul({a}, {b}, out={o})", "fib", 0),
    ("torch.sub({a}, {s}, out={o})", "fi", 0),
    ("torch.exp({a}, out={o})", "f", LIBM),
    ("torch.neg({a}, out={o})", "fi", 0),
    ("torch.gt({a}, {b}, out={o})", "fib", 0),
    ("torch.amax({a}, -1, out={o})", "fi", 0),
    ("torch.sum({a}, -1, out={o})", "f", SUMS),
    ("torch.softmax({a}, -1, out={o})", "f", 4 * LIBM),
)

# --- what ends a group of fused operators: products, sorting, joining, indexing
BREAKERS: tuple[tuple[str, str, float, str], ...] = (
    ("torch.cat([{a}, {a}], -1)", "fib", 0, ""),
    ("torch.stack([{a}, {a}])", "fib", 0, ""),
    ("{a}.sort(-1).values", "fi", 0, ""),
    ("{a}.flip(0)", "fib", 0, ""),
    ("{a}.roll(1, -1)", "fib", 0, ""),
    ("{a}[..., [0, -1]]", "fib", 0, ""),
    ("{a}.index_select(0, torch.tensor([0], device=dev))", "fib", 0, ""),
    ("{a}[{a} > 0]", "fib", 0, ""),
    ("{a}.nonzero()", "fib", 0, ""),
    ("{a}.tril()", "f", 0, ""),
    ("{a}.flatten()[:64] @ {a}.flatten()[:64]", "f", SUMS, "({a}.float() ** 2).sum()"),
    (
        "{a}.reshape(-1, {a}.shape[-1])[:32] @ {a}.reshape(-1, {a}.shape[-1])[:32].t()",
        "f",
        SUMS,
        "({a}.float() ** 2).sum()",
    ),
    ("{a}.detach().cpu().to(dev, copy=True)", "fib", 0, ""),
)

RANDOM: tuple[tuple[str, str], ...] = (  # on the device, and how the CPU gets the same numbers
    ("torch.rand({shape}, device=dev)", "torch.rand({shape}, device='neuron').cpu()"),
    ("torch.randn({shape}, device=dev)", "torch.randn({shape}, device='neuron').cpu()"),
    (
        "torch.randn({shape}, device=dev, dtype=torch.bfloat16)",
        "torch.randn({shape}, device='neuron', dtype=torch.bfloat16).cpu()",
    ),
    ("torch.randint(-4, 9, {shape}, device=dev)", "torch.randint(-4, 9, {shape}, device='neuron').cpu()"),
    ("F.dropout({a}, 0.4)", "F.dropout({a}.to('neuron'), 0.4).cpu()"),
    (
        "torch.bernoulli(torch.full({shape}, 0.3, device=dev))",
        "torch.bernoulli(torch.full({shape}, 0.3, device='neuron')).cpu()",
    ),
)

# --- what a careful program does not do; the exception has to be the CPU's
ERRORS: tuple[str, ...] = (
    "{n} = {a} + torch.ones(3, 11, 13, device=dev)",
    "{n} = {a}.view(17, 19)",
    "{n} = {a}.sum(7)",
    "{n} = {a}[12345678]",
    "{n} = {a} + undefined_name",
    "{n} = {a}.long().add_(0.5)",
    "{n} = {a} & 1.5",
    "{n} = torch.where({a}, {a}, {a})",
    "{n} = {a} @ torch.ones(41, 43, device=dev)",
    "{n} = torch.add({a}, 1, out=torch.empty({a}.shape, dtype=torch.bool, device=dev))",
    "{n} = {a}.expand(3).add_(1)",
    "raise ValueError('on purpose')",
    "with torch.no_grad(): {n} = {a} * 2; raise KeyError('on purpose')",
    "{n} = {a}.sum().backward()",
    "{n} = {a}.numpy() if dev == 'cpu' and False else {a}.no_such_method()",
    "{n} = {a}.flatten()[:0].max()",
)

READS: tuple[str, ...] = (
    "{a}.sum().item()",
    "{a}.flatten()[-1].item()",
    "{a}.cpu().clone()",
    "{a}.detach().to('cpu', torch.float32, copy=True)",
    "{a}.flatten()[:5].tolist()",
    "bool(({a} > 0).any())",
    "str({a}.flatten()[:4])",
    "torch.equal({a}, {a})",
    "int({a}.count_nonzero())",
    "[{a}.is_contiguous(), {a}.numel()]",
)

STREAMS: tuple[str, ...] = (
    "{st} = torch.neuron.Stream()",
    "torch.neuron.set_stream({st})",
    "torch.neuron.set_stream(torch.neuron.default_stream())",
    "{st}.wait_stream(torch.neuron.current_stream())",
    "{a}.record_stream({st})",
    "{st}.synchronize()",
    "torch.neuron.synchronize()",
    "torch.neuron.current_stream().record_event()",
    "torch.neuron.empty_cache()",
)
