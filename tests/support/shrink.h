// Makes a failing program smaller.
#ifndef CAIRN_TESTS_SUPPORT_SHRINK_H_
#define CAIRN_TESTS_SUPPORT_SHRINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace cairn::testing {

using ProgramFails = std::function<bool(std::span<const std::uint8_t>)>;

// Leaves out records for as long as `fails` stays true, in at most `attempts_max` attempts.
std::vector<std::uint8_t> shrink_program(std::vector<std::uint8_t> bytes, const ProgramFails& fails,
                                         std::size_t attempts_max);

// Runs the program in a child process: true if it fails or crashes there.
bool fails_in_child(std::span<const std::uint8_t> bytes);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_SHRINK_H_
