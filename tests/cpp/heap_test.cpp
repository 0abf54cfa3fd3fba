// The HBM heap without PyTorch: pages, windows, the host's limits, the debug mode. tests/memory/test_heap.py builds it
// and runs `heap_test NAME` for every case; exit status 0 is success.
#include "device/heap.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/host_memory.h"
#include "device/topology.h"

namespace neuron::device {

const Topology& topology() {  // a chip small enough to fill: 2 cores of 32 MiB
  static const Topology small = [] {
    Topology t;
    t.instance = "test";
    t.visible = {0, 1};
    t.hbm_bytes_per_core = 32u << 20;
    return t;
  }();
  return small;
}

}  // namespace neuron::device

using namespace neuron::device;

namespace {

constexpr size_t kPage = Heap::kPage;

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (false)

template <typename Error>
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Signal that ends a child which runs `f`, or 0.
int signal_of(const std::function<void()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// Whether this process may read or write `ptr`: asks the kernel, since a forked child does not have these pages.
bool accessible(void* ptr) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const bool readable = write(ends[1], ptr, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

void pages() {
  Heap& h = heap(0);
  CHECK(h.capacity() == 32u << 20 && h.mapped() == 0 && h.window() >= 2 * h.capacity());
  CHECK(reinterpret_cast<uintptr_t>(h.base()) % kPage == 0);
  CHECK(!accessible(h.base()));
  CHECK(h.map(h.base(), 4 * kPage) && h.mapped() == 4 * kPage);
  CHECK(accessible(h.base()) && accessible(h.base() + 4 * kPage - 1) && !accessible(h.base() + 4 * kPage));
  std::memset(h.base(), 7, 4 * kPage);
  h.unmap(h.base() + kPage, 2 * kPage);  // a hole
  CHECK(h.mapped() == 2 * kPage && !accessible(h.base() + kPage) && h.base()[0] == 7 && h.base()[3 * kPage] == 7);
  CHECK(h.map(h.base() + kPage, kPage) && h.base()[kPage] == 0);  // fresh pages are empty
  h.unmap(h.base(), 2 * kPage);
  h.unmap(h.base() + 3 * kPage, kPage);
  CHECK(h.mapped() == 0);
}

void capacity() {
  Heap& h = heap(0);
  CHECK(!h.map(h.base(), h.capacity() + kPage) && h.mapped() == 0);
  char* const far = h.base() + h.window() - h.capacity();  // the window is larger than the capacity
  CHECK(h.map(far, h.capacity()) && h.mapped() == h.capacity());
  CHECK(!h.map(h.base(), kPage));
  h.unmap(far + kPage, kPage);
  CHECK(h.map(h.base(), kPage));
}

void misuse() {
  Heap& h = heap(0);
  using Wrong = std::invalid_argument;
  CHECK(h.map(h.base(), kPage));
  CHECK(error_of<Wrong>([&] { h.map(h.base(), kPage); }) == "Heap: page is mapped");
  CHECK(error_of<Wrong>([&] { h.unmap(h.base() + kPage, kPage); }) == "Heap: page is not mapped");
  for (const auto& [ptr, bytes] : std::vector<std::pair<char*, size_t>>{{h.base() + 512, kPage},
                                                                        {h.base() + kPage, 512},
                                                                        {h.base() + kPage, 0},
                                                                        {h.base() - kPage, kPage},
                                                                        {h.base() + h.window(), kPage}}) {
    CHECK(error_of<Wrong>([&] { h.map(ptr, bytes); }) == "Heap: not a range of whole pages of this window");
  }
  CHECK(h.mapped() == kPage);
  CHECK(error_of<Wrong>([] { heap(2); }) == "Heap: there is no core 2, this process sees 2");
  CHECK(!error_of<Wrong>([] { heap(-1); }).empty());
}

void cores() {
  int local = 0;
  CHECK(core_of(&local) == -1 && core_of(nullptr) == -1);
  Heap &a = heap(0), &b = heap(1);
  CHECK(core_of(a.base()) == 0 && core_of(a.base() + a.window() - 1) == 0);
  CHECK(core_of(b.base()) == 1 && core_of(b.base() + b.window() - 1) == 1);
  CHECK(core_of(a.base() - 1) == -1 && core_of(b.base() + b.window()) == -1);
  CHECK(core_of(&local) == -1 && core_of(nullptr) == -1);
  CHECK(a.map(a.base(), kPage) && b.mapped() == 0);
}

void resident() {
  Heap& h = heap(0);
  CHECK(h.map(h.base(), 8 * kPage) && h.resident() == 0);
  std::memset(h.base() + kPage, 1, 2 * kPage);
  CHECK(h.resident() == 2 * kPage);
  h.unmap(h.base() + kPage, kPage);
  CHECK(h.resident() == kPage);
}

void host_limit() {
  constexpr uint64_t kHuge = 1ull << 44;  // 16 TiB: more than any host has
  void* window = mmap(nullptr, kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(window != MAP_FAILED);
  auto* base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(window) + kPage - 1) / kPage * kPage);
  Heap h(base, kHuge - kPage, kHuge - kPage);
  const std::string text = error_of<HostMemoryError>([&] { h.map(base, kHuge - kPage); });
  const HostMemory host = host_memory();
  CHECK(text.find("NEURON host out of memory.") == 0);
  CHECK(text.find("16384.00 GiB more were asked for") != std::string::npos);
  CHECK(text.find(" available of " + format_bytes(host.total)) != std::string::npos);
  CHECK(text.find("TORCH_NEURONX_HOST_MEMORY_CHECK=0") != std::string::npos);
  CHECK(h.mapped() == 0 && h.map(base, kPage));
  // What is promised but not touched counts: the second half of what there is does not fit beside the first.
  const size_t most = host.available / 10 * 7 / kPage * kPage;
  CHECK(h.map(base + kPage, most));
  const std::string twice = error_of<HostMemoryError>([&] { h.map(base + kPage + most, most); });
  CHECK(twice.find(" are promised already") != std::string::npos);
  h.unmap(base + kPage, most);
  CHECK(h.map(base + kPage + most, most));
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

// host_memory() against made-up hosts below a directory.
void host_files() {
  char name[] = "/tmp/heap_test_XXXXXX";
  const std::string root = mkdtemp(name);
  constexpr uint64_t kGiB = 1ull << 30;
  const auto is = [&](uint64_t total, uint64_t available) {
    const HostMemory m = host_memory(root);
    return m.total == total && m.available == available;
  };
  CHECK(is(UINT64_MAX, UINT64_MAX));
  write_file(root + "/proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  CHECK(is(16 * kGiB, 8 * kGiB));

  const std::string v2 = root + "/sys/fs/cgroup/job/part";
  write_file(root + "/proc/self/cgroup", "0::/job/part\n");
  write_file(v2 + "/memory.max", "max\n");
  CHECK(is(16 * kGiB, 8 * kGiB));
  write_file(v2 + "/memory.max", std::to_string(4 * kGiB));
  write_file(v2 + "/memory.current", std::to_string(3 * kGiB));
  CHECK(is(4 * kGiB, 1 * kGiB));
  write_file(v2 + "/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\n");
  CHECK(is(4 * kGiB, 2 * kGiB));                                                 // file cache can go
  write_file(root + "/sys/fs/cgroup/job/memory.max", std::to_string(2 * kGiB));  // a group above is tighter
  write_file(root + "/sys/fs/cgroup/job/memory.current", std::to_string(2 * kGiB));
  CHECK(is(2 * kGiB, 0));

  const std::string v1 = root + "/sys/fs/cgroup/memory";
  write_file(root + "/proc/self/cgroup", "9:cpu,memory:/unseen/by/us\n0::/\n");
  write_file(v1 + "/memory.limit_in_bytes", std::to_string(UINT64_MAX / 2));  // v1's word for no limit
  CHECK(is(16 * kGiB, 8 * kGiB));
  write_file(v1 + "/memory.limit_in_bytes", std::to_string(3 * kGiB));
  write_file(v1 + "/memory.usage_in_bytes", std::to_string(kGiB));
  write_file(v1 + "/memory.stat", "cache 7\ntotal_inactive_file 0\n");
  CHECK(is(3 * kGiB, 2 * kGiB));
  write_file(root + "/proc/self/cgroup", "9:cpu:/\n");
  CHECK(is(16 * kGiB, 8 * kGiB));
  std::filesystem::remove_all(root);

  CHECK(format_bytes(3) == "3 bytes" && format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(5 << 20) == "5.00 MiB" && format_bytes(24 * kGiB) == "24.00 GiB");
}

void forked() {
  Heap& h = heap(0);
  CHECK(h.map(h.base(), kPage));
  h.base()[0] = 5;
  CHECK(signal_of([&] { h.base()[0] = 6; }) == SIGSEGV);  // not shared, not copied
  CHECK(signal_of([&] {
          // The addresses stay taken, so pointers from before the fork still tell whose they are.
          void* p = mmap(h.base(), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
          if (p != MAP_FAILED || core_of(h.base()) != 0) raise(SIGABRT);
          h.unmap(h.base(), kPage);  // harmless
        }) == 0);
  CHECK(h.base()[0] == 5 && h.mapped() == kPage);
}

void debug() {  // run with TORCH_NEURONX_DEBUG_MEMORY=1
  CHECK(debug_memory());
  Heap &h = heap(0), &other = heap(1);
  CHECK(h.map(h.base(), 2 * kPage) && !accessible(h.base()));
  open_memory();
  CHECK(accessible(h.base()) && h.map(h.base() + 4 * kPage, kPage) && accessible(h.base() + 4 * kPage));
  CHECK(other.map(other.base(), kPage) && accessible(other.base()));
  CHECK(!accessible(h.base() + 2 * kPage));  // not mapped
  open_memory();
  close_memory();
  CHECK(accessible(h.base()));  // still one level inside
  h.base()[0] = 9;
  std::thread([&] {
    open_memory();
    close_memory();
    CHECK(accessible(h.base()));  // another thread is inside
  }).join();
  close_memory();
  CHECK(!accessible(h.base()) && !accessible(h.base() + 4 * kPage) && !accessible(other.base()));
  open_memory();
  CHECK(h.base()[0] == 9);
  h.unmap(h.base(), kPage);
  close_memory();
  CHECK(!accessible(h.base()) && h.mapped() == 2 * kPage);
}

}  // namespace

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"pages", pages},           {"capacity", capacity}, {"misuse", misuse},
               {"cores", cores},           {"resident", resident}, {"host_limit", host_limit},
               {"host_files", host_files}, {"forked", forked},     {"debug", debug}};
  for (const auto& one : cases) {
    if (argc > 1 && std::strcmp(argv[1], one.name) != 0) continue;
    if (argc == 1) {
      std::puts(one.name);
    } else {
      one.run();
      return 0;
    }
  }
  return argc == 1 ? 0 : 2;
}
