#include "engine/blas.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace neuron::engine {
namespace {

template <typename F>
F find(const char* name, void* library = RTLD_DEFAULT) {
  return reinterpret_cast<F>(dlsym(library, name));
}

// Sets the thread's own number of OpenMP threads and returns the previous one.
int set_openmp_threads(int threads) {
  static const auto set = find<void (*)(int)>("omp_set_num_threads");
  static const auto get = find<int (*)()>("omp_get_max_threads");
  if (set == nullptr || get == nullptr) return threads;
  const int previous = get();
  set(threads);
  return previous;
}

int set_blas_threads(int threads) {
  // Libraries other than MKL ask OpenMP.
  static const auto mkl = find<int (*)(int)>("MKL_Set_Num_Threads_Local");
  return mkl != nullptr ? mkl(threads) : set_openmp_threads(threads);
}

Sgemm find_sgemm() {
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&at::init_num_threads), &library) == 0) return nullptr;
  void* handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : find<Sgemm>("sgemm_", handle);
}

}  // namespace

int host_threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

Sgemm sgemm() {
  static const Sgemm found = find_sgemm();
  return found;
}

SerialBlas::SerialBlas() : previous_(set_blas_threads(1)) {}
SerialBlas::~SerialBlas() { set_blas_threads(previous_); }
SerialOpenMp::SerialOpenMp() : previous_(set_openmp_threads(1)) {}
SerialOpenMp::~SerialOpenMp() { set_openmp_threads(previous_); }

}  // namespace neuron::engine
