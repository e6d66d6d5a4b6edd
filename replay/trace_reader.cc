#include "replay/trace_reader.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

namespace dom = simdjson::dom;

// The fields we know. Others are let pass: published traces carry more.
enum Field : std::size_t {
  kTimestamp,
  kInputLength,
  kOutputLength,
  kHashIds,
  kTokens,
  kOutputTokens,
  kSession,
  kAdapter,
  kTenant,
  kFieldCount
};
constexpr std::array<std::string_view, kFieldCount> kFieldNames = {"timestamp", "input_length", "output_length",
                                                                   "hash_ids",  "tokens",       "output_tokens",
                                                                   "session",   "adapter",      "tenant"};

using Fields = std::array<std::optional<dom::element>, kFieldCount>;

std::string shown(std::string value) {
  constexpr std::size_t kShownBytes = 40;
  if (value.size() > kShownBytes) value = value.substr(0, kShownBytes) + "...";
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return value;
}

[[noreturn]] void bad_value(std::string_view field, const dom::element& value, std::string_view rule) {
  throw BadLineError(fmt::format("\"{}\": {}: {}", field, shown(simdjson::minify(value)), rule));
}

Fields fields_of(dom::parser& parser, const std::string& line) {
  dom::element document;
  if (const auto error = parser.parse(line).get(document); error != simdjson::SUCCESS) {
    throw BadLineError(fmt::format("not JSON: {}: {}", simdjson::error_message(error), shown(line)));
  }
  dom::object object;
  if (document.get(object) != simdjson::SUCCESS) {
    throw BadLineError(fmt::format("not a JSON object: {}", shown(line)));
  }
  Fields fields;
  for (const auto& [key, value] : object) {
    for (std::size_t i = 0; i < kFieldCount; ++i) {
      if (key != kFieldNames[i]) continue;
      if (fields[i]) throw BadLineError(fmt::format("\"{}\" is given twice", key));
      fields[i] = value;
    }
  }
  return fields;
}

// An optional field that is null counts as absent.
const dom::element* find(const Fields& fields, Field field) {
  return fields[field] && !fields[field]->is_null() ? &*fields[field] : nullptr;
}

const dom::element& need(const Fields& fields, Field field) {
  if (const dom::element* value = find(fields, field)) return *value;
  throw BadLineError(fmt::format("\"{}\" is missing", kFieldNames[field]));
}

std::uint64_t length(const dom::element& value, Field field) {
  std::uint64_t tokens = 0;
  if (value.get(tokens) != simdjson::SUCCESS || tokens > kSequenceTokensMax) {
    bad_value(kFieldNames[field], value, fmt::format("must be a whole number from 0 to {}", kSequenceTokensMax));
  }
  return tokens;
}

dom::array array(const dom::element& value, Field field) {
  dom::array elements;
  if (value.get(elements) != simdjson::SUCCESS) bad_value(kFieldNames[field], value, "must be an array");
  return elements;
}

void read_tokens(const dom::element& value, Field field, std::vector<TokenId>& tokens) {
  tokens.clear();
  for (const dom::element element : array(value, field)) {
    std::uint64_t token = 0;
    if (element.get(token) != simdjson::SUCCESS || token > std::numeric_limits<TokenId>::max()) {
      bad_value(kFieldNames[field], element, "a token is a whole number from 0 to 4294967295");
    }
    if (tokens.size() == kSequenceTokensMax) {
      throw BadLineError(fmt::format("\"{}\": more than {} tokens", kFieldNames[field], kSequenceTokensMax));
    }
    tokens.push_back(static_cast<TokenId>(token));
  }
}

// Names of sessions, adapters or tenants, numbered from 1 as they come. The integer 7 and the string "7" are two
// names.
class Names {
 public:
  std::uint64_t number(const dom::element& value, Field field) {
    Name name;
    if (std::int64_t integer = 0; value.get(integer) == simdjson::SUCCESS) {
      name = integer;
    } else if (std::uint64_t large = 0; value.get(large) == simdjson::SUCCESS) {
      name = large;
    } else if (std::string_view text; value.get(text) == simdjson::SUCCESS) {
      name = std::string(text);
    } else {
      bad_value(kFieldNames[field], value, "must be an integer or a string");
    }
    return numbers_.emplace(std::move(name), numbers_.size() + 1).first->second;
  }

 private:
  using Name = std::variant<std::int64_t, std::uint64_t, std::string>;
  std::map<Name, std::uint64_t> numbers_;
};

class TraceReader {
 public:
  TraceReader(const TraceOptions& options, Trace& trace)
      : trace_(trace), expander_(token_ids_, options.trace_block_tokens, options.ids) {
    trace_.format = options.format;
  }

  // Throws BadLineError, with the workload as it was.
  void read_line(const std::string& line, std::uint64_t line_number) {
    const Fields fields = fields_of(parser_, line);
    const TraceFormat format = trace_.format == TraceFormat::kAuto ? told_by(fields) : trace_.format;
    Request request;
    request.line = line_number;
    request.timestamp_ms = timestamp(fields);
    if (const dom::element* session = find(fields, kSession)) request.session = sessions_.number(*session, kSession);
    request.adapter = adapter(fields);
    if (const dom::element* tenant = find(fields, kTenant)) {
      request.tenant = small_number(tenants_, *tenant, kTenant);
    }
    if (format == TraceFormat::kBlockIds) {
      add_block_ids(request, fields);
    } else {
      add_tokens(request, fields);
    }
    trace_.format = format;
    last_timestamp_ms_ = request.timestamp_ms;
    if (find(fields, kTimestamp) != nullptr) trace_.workload.set_has_timestamps();
  }

 private:
  static TraceFormat told_by(const Fields& fields) {
    const bool block_ids = find(fields, kHashIds) != nullptr;
    const bool tokens = find(fields, kTokens) != nullptr;
    if (block_ids && tokens) {
      throw BadLineError("has both \"hash_ids\" and \"tokens\": the format must be named");
    }
    if (!block_ids && !tokens) throw BadLineError("has neither \"hash_ids\" nor \"tokens\"");
    return block_ids ? TraceFormat::kBlockIds : TraceFormat::kTokens;
  }

  double timestamp(const Fields& fields) const {
    const dom::element* value = find(fields, kTimestamp);
    if (value == nullptr) return last_timestamp_ms_;
    double timestamp_ms = 0;
    if (value->get(timestamp_ms) != simdjson::SUCCESS || timestamp_ms < 0) {
      bad_value("timestamp", *value, "must be a number of milliseconds, not negative");
    }
    if (timestamp_ms < last_timestamp_ms_) {
      bad_value("timestamp", *value, fmt::format("goes back from {}", last_timestamp_ms_));
    }
    return timestamp_ms;
  }

  // There are fewer names than lines, and fewer lines than that in any file that can be replayed.
  static std::uint32_t small_number(Names& names, const dom::element& value, Field field) {
    const std::uint64_t number = names.number(value, field);
    if (number > std::numeric_limits<std::uint32_t>::max()) bad_value(kFieldNames[field], value, "too many names");
    return static_cast<std::uint32_t>(number);
  }

  std::uint32_t adapter(const Fields& fields) {
    const dom::element* value = find(fields, kAdapter);
    if (value == nullptr) return 0;
    if (std::int64_t integer = 0; value->get(integer) == simdjson::SUCCESS && integer == 0) return 0;
    return small_number(adapters_, *value, kAdapter);
  }

  void add_block_ids(Request& request, const Fields& fields) {
    ids_.clear();
    for (const dom::element element : array(need(fields, kHashIds), kHashIds)) {
      std::uint64_t id = 0;
      if (element.get(id) != simdjson::SUCCESS) {
        bad_value("hash_ids", element, "an id is a whole number from 0 to 18446744073709551615");
      }
      ids_.push_back(id);
    }
    const std::uint64_t input_length = length(need(fields, kInputLength), kInputLength);
    if (const dom::element* value = find(fields, kOutputLength)) {
      request.output_length = static_cast<std::uint32_t>(length(*value, kOutputLength));
    }
    trace_.workload.add(request, expander_.expand(ids_, input_length), {});
  }

  void add_tokens(const Request& request, const Fields& fields) {
    read_tokens(need(fields, kTokens), kTokens, prompt_);
    if (prompt_.empty()) throw BadLineError("\"tokens\": []: a prompt has at least one token");
    output_.clear();
    if (const dom::element* value = find(fields, kOutputTokens)) read_tokens(*value, kOutputTokens, output_);
    const TokenRun prompt = trace_.workload.store(prompt_);
    const TokenRun output = trace_.workload.store(output_);
    trace_.workload.add(request, {&prompt, 1}, {&output, output_.empty() ? 0U : 1U});
  }

  Trace& trace_;
  dom::parser parser_;
  TokenIdAllocator token_ids_;
  BlockIdExpander expander_;
  Names sessions_;
  Names adapters_;
  Names tenants_;
  double last_timestamp_ms_ = 0;
  std::vector<std::uint64_t> ids_;
  std::vector<TokenId> prompt_;
  std::vector<TokenId> output_;
};

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

Trace read_trace(LineSource& source, const TraceOptions& options) {
  Trace trace;
  TraceReader reader(options, trace);
  std::string line;
  while (source.next(line)) {
    if (is_blank(line)) continue;
    try {
      reader.read_line(line, source.line_number());
    } catch (const BadLineError& error) {
      std::string reason = fmt::format("{}:{}: {}", source.name(), source.line_number(), error.what());
      if (!options.skip_bad_lines) throw TraceError(reason);
      ++trace.bad_lines;
      if (trace.bad_line_reasons.size() < Trace::kReasonsMax) trace.bad_line_reasons.push_back(std::move(reason));
    } catch (const std::length_error& error) {
      throw TraceError(fmt::format("{}:{}: {}", source.name(), source.line_number(), error.what()));
    }
  }
  if (trace.workload.size() == 0) {
    throw TraceError(fmt::format("{}: holds no request ({} malformed lines skipped)", source.name(), trace.bad_lines));
  }
  return trace;
}

}  // namespace cairn::replay
