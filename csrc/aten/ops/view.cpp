// Views share the storage and cost nothing on the device.
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "aten/boundary.h"
#include "aten/kernel.h"

namespace neuron::aten {
namespace {

// nn.Module.to() may swap the tensor inside a Parameter between the CPU and neuron, so that the Parameter object, ties
// and optimizers built before keep their identity, as with cuda.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (on_neuron(t) || t.device().is_cpu()) && !t.is_quantized() && !t.is_nested();
  };
  return dense(self) && dense(from);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("is_set_to", at::native::is_set_to);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  for (const char* name : {"as_strided", "view", "_reshape_alias", "unfold", "is_set_to", "view_as_real",
                           "view_as_complex", "_has_compatible_shallow_copy_type"}) {
    note_native("view", name, device::Kind::kNone);
  }
}

}  // namespace neuron::aten
