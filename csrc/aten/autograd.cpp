// Custom operators of other libraries that have a kernel for neuron and no autograd formula behave as on the CPU: they
// run, and backward says what is missing. PyTorch registers this for its own devices only (pytorch#163979).
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::autograd::basicAutogradNotImplementedFallback()); }
