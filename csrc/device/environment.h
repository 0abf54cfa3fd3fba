// How the device reads its environment variables: blank means unset, and what is wrong is said in one way.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace neuron::device {

// The variable's value without surrounding blanks; nullopt when it is unset or blank.
std::optional<std::string> environment(const char* name);

// A decimal number from the variable, or nullopt when it is unset. Throws as bad_value unless low <= number <= high.
std::optional<uint64_t> environment_number(const char* name, uint64_t low, uint64_t high);

// Digits only, no sign, no more than 18 of them; nullopt otherwise.
std::optional<uint64_t> parse_number(std::string_view text);

// Throws std::invalid_argument: "NAME='value' is not valid: it takes `allowed`. `remedy`"
[[noreturn]] void bad_value(const char* name, const std::string& value, const std::string& allowed,
                            const std::string& remedy = "Correct it or unset it.");

}  // namespace neuron::device
