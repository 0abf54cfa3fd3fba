#include "device/host_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace neuron::device {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or the word "max"
}

// The number behind `key` in a file of "key value" lines.
std::optional<uint64_t> read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

// File cache counts as use, but the kernel drops it before it refuses memory: only what is not inactive file cache is
// taken as used.
void apply_group(const std::string& directory, const char* limit_file, const char* usage_file, const char* cache_key,
                 HostMemory& memory) {
  const auto limit = read_number(directory + limit_file);
  if (!limit || *limit >= memory.total) return;  // v1 writes a huge number for "no limit"
  const uint64_t usage = read_number(directory + usage_file).value_or(0);
  const uint64_t cache = std::min(usage, read_field(directory + "/memory.stat", cache_key).value_or(0));
  const uint64_t used = usage - cache;
  memory.total = std::min(memory.total, *limit);
  memory.available = std::min(memory.available, *limit > used ? *limit - used : 0);
}

struct Hierarchy {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;
};
constexpr Hierarchy kV2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr Hierarchy kV1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                        "total_inactive_file"};

// Every group from ours up to the root limits us. Inside a container the path may name groups that only the host
// sees; the files are then at the mount itself, which is the last step of the walk.
void apply_groups(const std::string& root, const Hierarchy& h, std::string path, HostMemory& memory) {
  for (;;) {
    apply_group(root + h.mount + path, h.limit, h.usage, h.cache, memory);
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  HostMemory memory{kNoLimit, kNoLimit};
  const std::string meminfo = root + "/proc/meminfo";
  if (const auto total = read_field(meminfo, "MemTotal:")) memory.total = *total << 10;
  if (const auto available = read_field(meminfo, "MemAvailable:")) memory.available = *available << 10;

  // Lines are "id:controllers:path"; v2 has id 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) apply_groups(root, kV2, path, memory);
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == "memory") apply_groups(root, kV1, path, memory);
    }
  }
  return memory;
}

std::string format_bytes(uint64_t bytes) {
  char text[32];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes < (1ull << 20)) {
    std::snprintf(text, sizeof text, "%.2f KiB", bytes / 1024.0);
  } else if (bytes < (1ull << 30)) {
    std::snprintf(text, sizeof text, "%.2f MiB", bytes / 1048576.0);
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", bytes / 1073741824.0);
  }
  return text;
}

}  // namespace neuron::device
