// `cairn explain`.
#ifndef CAIRN_TOOLS_EXPLAIN_COMMAND_H_
#define CAIRN_TOOLS_EXPLAIN_COMMAND_H_

namespace CLI {
class App;
}

namespace cairn::tool {

// Adds the subcommand to `app`; it runs when app parses a command line that names it.
void add_explain_command(CLI::App& app);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_EXPLAIN_COMMAND_H_
