// What a command was given, for checks of which options go together.
#ifndef CAIRN_TOOLS_CAIRN_GIVEN_OPTIONS_H_
#define CAIRN_TOOLS_CAIRN_GIVEN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace cairn::tool {

class GivenOptions {
 public:
  explicit GivenOptions(const CLI::App& command) : command_(command) {}

  [[nodiscard]] bool has(const char* name) const { return command_.get_option(name)->count() > 0; }
  // Throws CLI::ValidationError with the option's name, its value if it is no flag, and `why`.
  [[noreturn]] void refuse(const char* name, std::string_view why) const {
    const CLI::Option& option = *command_.get_option(name);
    std::string text;
    if (option.get_expected_min() > 0) {
      for (const std::string& value : option.results()) text += (text.empty() ? "" : ",") + value;
      text += ": ";
    }
    throw CLI::ValidationError(name, text.append(why));
  }

 private:
  const CLI::App& command_;
};

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_CAIRN_GIVEN_OPTIONS_H_
