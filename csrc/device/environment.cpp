#include "device/environment.h"

#include <cstdlib>
#include <stdexcept>

namespace neuron::device {

std::optional<std::string> environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view = text;
  const size_t first = view.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return std::nullopt;
  const size_t last = view.find_last_not_of(" \t\r\n");
  return std::string(view.substr(first, last - first + 1));
}

std::optional<uint64_t> parse_number(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}

std::optional<uint64_t> environment_number(const char* name, uint64_t low, uint64_t high) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto number = parse_number(*text);
  if (!number || *number < low || *number > high) {
    bad_value(name, *text, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

void bad_value(const char* name, const std::string& value, const std::string& allowed, const std::string& remedy) {
  throw std::invalid_argument(std::string(name) + "='" + value + "' is not valid: it takes " + allowed + ". " + remedy);
}

}  // namespace neuron::device
