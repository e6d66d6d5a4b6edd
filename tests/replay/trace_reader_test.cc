#include "replay/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/compress.h"
#include "replay/errors.h"

namespace cairn::replay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

Trace read(const std::string& text, TraceOptions options = {}) {
  std::istringstream in(text);
  LineSource source(in, "t.jsonl");
  return read_trace(source, options);
}

std::string failure_of(const std::string& text, const TraceOptions& options = {}) {
  try {
    static_cast<void>(read(text, options));
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

std::vector<TokenId> prompt(const Trace& trace, std::size_t index) {
  std::vector<TokenId> tokens;
  trace.workload.prompt(index, tokens);
  return tokens;
}

const TraceOptions kBlocksOf4 = {.trace_block_tokens = 4};

TEST(TraceReader, ReadsTheTokenFormat) {
  const Trace trace = read(R"({"timestamp": 5, "tokens": [1, 4294967295], "output_tokens": [7], "session": "a"}
{"timestamp": 6.5, "tokens": [3], "adapter": 4, "session": 12, "turn": {"of": "another kind"}}
)");
  EXPECT_EQ(trace.format, TraceFormat::kTokens);
  ASSERT_EQ(trace.workload.size(), 2U);
  EXPECT_THAT(prompt(trace, 0), ElementsAre(1, 4294967295U));
  EXPECT_THAT(prompt(trace, 1), ElementsAre(3));
  std::vector<TokenId> output;
  trace.workload.append_output(0, output);
  EXPECT_THAT(output, ElementsAre(7));
  const Request& first = trace.workload[0];
  const Request& second = trace.workload[1];
  EXPECT_TRUE(first.has_output_tokens);
  EXPECT_EQ(first.output_length, 1U);
  EXPECT_EQ(first.adapter, 0U);
  EXPECT_FALSE(second.has_output_tokens);
  EXPECT_EQ(second.output_length, 0U);
  EXPECT_EQ(second.timestamp_ms, 6.5);
  EXPECT_EQ(second.line, 2U);
  EXPECT_NE(second.adapter, 0U);
  EXPECT_NE(first.session, second.session);
  EXPECT_TRUE(trace.workload.has_timestamps());
  EXPECT_EQ(trace.workload.prompt_tokens(), 3U);
  EXPECT_EQ(trace.workload.output_tokens(), 1U);
}

TEST(TraceReader, ReadsTheBlockIdFormat) {
  const Trace trace = read(R"({"timestamp": 0, "input_length": 6, "output_length": 9, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 9, "hash_ids": [0, 18446744073709551615], "session": 0}
)",
                           kBlocksOf4);
  EXPECT_EQ(trace.format, TraceFormat::kBlockIds);
  ASSERT_EQ(trace.workload.size(), 2U);
  EXPECT_THAT(prompt(trace, 0), SizeIs(6));
  EXPECT_THAT(prompt(trace, 1), SizeIs(9));
  EXPECT_EQ(prompt(trace, 0)[3], prompt(trace, 1)[3]);
  EXPECT_NE(prompt(trace, 0)[4], prompt(trace, 1)[4]);
  EXPECT_EQ(trace.workload[0].output_length, 9U);
  EXPECT_FALSE(trace.workload[0].has_output_tokens);
  EXPECT_EQ(trace.workload[1].output_length, 0U);
  EXPECT_EQ(trace.workload[0].session, 0U) << "absent";
  EXPECT_NE(trace.workload[1].session, 0U) << "0 is a session like any other";
}

TEST(TraceReader, NamesOfSessionsAndAdaptersKeepTheirType) {
  const Trace trace = read(R"({"tokens": [1], "session": 7, "adapter": 0}
{"tokens": [1], "session": "7", "adapter": "0"}
{"tokens": [1], "session": 7, "adapter": "0"}
{"tokens": [1], "session": -7, "adapter": null}
{"tokens": [1], "session": 18446744073709551609}
)");
  EXPECT_NE(trace.workload[0].session, trace.workload[1].session);
  EXPECT_EQ(trace.workload[0].session, trace.workload[2].session);
  EXPECT_NE(trace.workload[3].session, trace.workload[4].session);
  EXPECT_EQ(trace.workload[0].adapter, 0U) << "the integer 0 is the base model";
  EXPECT_NE(trace.workload[1].adapter, 0U) << "the string \"0\" is an adapter's name";
  EXPECT_EQ(trace.workload[1].adapter, trace.workload[2].adapter);
  EXPECT_EQ(trace.workload[3].adapter, 0U);
}

TEST(TraceReader, ATenantKeepsRequestsApartWithinItsAdapter) {
  const Trace trace = read(R"({"tokens": [1]}
{"tokens": [1], "tenant": "a"}
{"tokens": [1], "tenant": "a", "adapter": "l"}
{"tokens": [1], "adapter": "l", "tenant": null}
{"tokens": [1], "tenant": 0}
{"tokens": [1], "tenant": "a"}
)");
  const Workload& workload = trace.workload;
  EXPECT_EQ(workload[0].context(), 0U);
  EXPECT_EQ(workload[1].tenant, workload[2].tenant);
  EXPECT_EQ(workload[3].tenant, 0U);
  EXPECT_NE(workload[4].tenant, 0U) << "0 is a tenant like any other";
  EXPECT_EQ(workload[1].context(), workload[5].context());
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t k = i + 1; k < 5; ++k) EXPECT_NE(workload[i].context(), workload[k].context()) << i << " " << k;
  }
  EXPECT_THROW((void)read("{\"tokens\": [1], \"tenant\": [2]}"), TraceError);
}

TEST(TraceReader, PassesOverBlankLinesButCountsThem) {
  const Trace trace = read("\n{\"tokens\": [1]}\r\n  \t\r\n{\"tokens\": [2]}");
  ASSERT_EQ(trace.workload.size(), 2U);
  EXPECT_EQ(trace.workload[0].line, 2U);
  EXPECT_EQ(trace.workload[1].line, 4U);
  EXPECT_FALSE(trace.workload.has_timestamps());
}

TEST(TraceReader, AMissingTimeStampIsThatOfTheLineBefore) {
  const Trace trace = read("{\"tokens\": [1], \"timestamp\": 9}\n{\"tokens\": [2]}\n");
  EXPECT_EQ(trace.workload[1].timestamp_ms, 9);
}

TEST(TraceReader, PlainIdsMayComeInAnyOrder) {
  TraceOptions options = kBlocksOf4;
  const std::string text =
      "{\"input_length\": 8, \"hash_ids\": [1, 2]}\n{\"input_length\": 12, \"hash_ids\": [2, 2, 1]}\n";
  EXPECT_THAT(failure_of(text, options), HasSubstr("hash id 2 stands at the start of a prompt"));
  options.ids = BlockIdKind::kPlain;
  const Trace trace = read(text, options);
  EXPECT_EQ(prompt(trace, 0)[0], prompt(trace, 1)[8]);
  EXPECT_EQ(prompt(trace, 0)[4], prompt(trace, 1)[0]);
}

TEST(TraceReader, ReadsCompressedText) {
  EXPECT_EQ(read(gzip("{\"tokens\": [1]}\n{\"tokens\": [2]}\n")).workload.size(), 2U);
}

struct Malformed {
  const char* line;
  const char* reason;
};

class MalformedTokens : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedTokens, IsAnErrorWithFileLineAndReason) {
  const std::string failure =
      failure_of(std::string("{\"timestamp\": 10, \"tokens\": [1]}\n") + GetParam().line + "\n");
  EXPECT_THAT(failure, StartsWith("t.jsonl:2: "));
  EXPECT_THAT(failure, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    TraceReader, MalformedTokens,
    testing::Values(
        Malformed{"{\"tokens\": [1]", "not JSON: "}, Malformed{"{\"tokens\": [1]} x", "not JSON: "},
        Malformed{"[1, 2]", "not a JSON object: [1, 2]"}, Malformed{"{}", "\"tokens\" is missing"},
        Malformed{"{\"tokens\": null}", "\"tokens\" is missing"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 512}", "\"tokens\" is missing"},
        Malformed{"{\"tokens\": []}", "\"tokens\": []: a prompt has at least one token"},
        Malformed{"{\"tokens\": 3}", "\"tokens\": 3: must be an array"},
        Malformed{"{\"tokens\": [1, -2]}", "\"tokens\": -2: a token is a whole number"},
        Malformed{"{\"tokens\": [4294967296]}", "\"tokens\": 4294967296: a token is"},
        Malformed{"{\"tokens\": [1.5]}", "\"tokens\": 1.5: a token is"},
        Malformed{"{\"tokens\": [\"a\"]}", "\"tokens\": \"a\": a token is"},
        Malformed{"{\"tokens\": [1], \"tokens\": [1]}", "\"tokens\" is given twice"},
        Malformed{"{\"tokens\": [1], \"output_tokens\": \"x\"}", "\"output_tokens\": \"x\": must be an array"},
        Malformed{"{\"tokens\": [1], \"output_tokens\": [true]}", "\"output_tokens\": true: a token is"},
        Malformed{"{\"tokens\": [1], \"timestamp\": \"now\"}", "\"timestamp\": \"now\": must be a number"},
        Malformed{"{\"tokens\": [1], \"timestamp\": -1}", "\"timestamp\": -1: must be a number"},
        Malformed{"{\"tokens\": [1], \"timestamp\": 9}", "\"timestamp\": 9: goes back from 10"},
        Malformed{"{\"tokens\": [1], \"session\": 1.5}", "\"session\": 1.5: must be an integer or a string"},
        Malformed{"{\"tokens\": [1], \"adapter\": [1]}", "\"adapter\": [1]: must be an integer or a string"}));

class MalformedBlockIds : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedBlockIds, IsAnErrorWithFileLineAndReason) {
  const std::string first = "{\"timestamp\": 10, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1, 2]}\n";
  const std::string failure = failure_of(first + GetParam().line, kBlocksOf4);
  EXPECT_THAT(failure, StartsWith("t.jsonl:2: "));
  EXPECT_THAT(failure, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    TraceReader, MalformedBlockIds,
    testing::Values(
        Malformed{"{\"input_length\": 4}", "\"hash_ids\" is missing"},
        Malformed{"{\"hash_ids\": [1]}", "\"input_length\" is missing"},
        Malformed{"{\"tokens\": [1]}", "\"hash_ids\" is missing"},
        Malformed{"{\"hash_ids\": {}, \"input_length\": 4}", "\"hash_ids\": {}: must be an array"},
        Malformed{"{\"hash_ids\": [-1], \"input_length\": 4}", "\"hash_ids\": -1: an id is a whole number"},
        Malformed{"{\"hash_ids\": [1.5], \"input_length\": 4}", "\"hash_ids\": 1.5: an id is"},
        Malformed{"{\"hash_ids\": [\"1\"], \"input_length\": 4}", "\"hash_ids\": \"1\": an id is"},
        Malformed{"{\"hash_ids\": [18446744073709551616], \"input_length\": 4}", "not JSON: "},
        Malformed{"{\"hash_ids\": [1], \"input_length\": \"4\"}", "\"input_length\": \"4\": must be a whole number"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": -4}", "\"input_length\": -4: must be"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 0}", "input_length 0: a prompt has at least one token"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 16777217}", "\"input_length\": 16777217: must be"},
        Malformed{"{\"hash_ids\": [1, 2], \"input_length\": 4}", "input_length 4: too short for 2 hash_ids"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 4, \"output_length\": 1e3}", "\"output_length\": 1000"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 4, \"output_length\": -1}", "\"output_length\": -1: must be"},
        Malformed{"{\"hash_ids\": [2], \"input_length\": 4}", "hash id 2 stands at the start of a prompt"},
        Malformed{"{\"hash_ids\": [1, 3, 2], \"input_length\": 12}", "hash id 2 stands after id 3"},
        Malformed{"{\"hash_ids\": [1], \"input_length\": 4, \"timestamp\": 9.5}", "\"timestamp\": 9.5: goes back"}));

TEST(TraceReader, TheFirstLineTellsTheFormat) {
  EXPECT_EQ(failure_of("{\"timestamp\": 1}\n"), "t.jsonl:1: has neither \"hash_ids\" nor \"tokens\"");
  const std::string both = "{\"tokens\": [1], \"hash_ids\": [2], \"input_length\": 3}\n";
  EXPECT_THAT(failure_of(both), HasSubstr("t.jsonl:1: has both"));
  EXPECT_EQ(read(both, {.format = TraceFormat::kTokens}).workload.prompt_tokens(), 1U);
  EXPECT_EQ(read(both, {.format = TraceFormat::kBlockIds}).workload.prompt_tokens(), 3U);
}

TEST(TraceReader, CountsBadLinesAndGoesOnIfAsked) {
  const std::string bad = "{\"tokens\": [-1], \"timestamp\": 50}\n";
  const Trace trace = read("nothing\n" + bad + "{\"tokens\": [1], \"timestamp\": 5}\n" + bad + bad + bad + bad +
                               "{\"tokens\": [2], \"timestamp\": 6}\n",
                           {.skip_bad_lines = true});
  EXPECT_EQ(trace.workload.size(), 2U);
  EXPECT_EQ(trace.bad_lines, 6U);
  ASSERT_THAT(trace.bad_line_reasons, SizeIs(Trace::kReasonsMax));
  EXPECT_THAT(trace.bad_line_reasons[0], StartsWith("t.jsonl:1: not JSON"));
  EXPECT_THAT(trace.bad_line_reasons[1], StartsWith("t.jsonl:2: \"tokens\": -1"));
}

TEST(TraceReader, InputThatIsCutOffIsAnErrorEvenIfBadLinesAreSkipped) {
  const std::string packed = gzip("{\"tokens\": [1]}\n");
  EXPECT_THAT(failure_of(packed.substr(0, packed.size() - 3), {.skip_bad_lines = true}), HasSubstr("cut off"));
}

TEST(TraceReader, ATraceWithoutRequestsIsAnError) {
  EXPECT_EQ(failure_of(""), "t.jsonl: holds no request (0 malformed lines skipped)");
  EXPECT_EQ(failure_of("x\n", {.skip_bad_lines = true}), "t.jsonl: holds no request (1 malformed lines skipped)");
}

TEST(TraceReader, RunningOutOfTokenIdsIsAnErrorEvenIfBadLinesAreSkipped) {
  std::string text;
  for (int id = 0; id < 257; ++id) text += "{\"input_length\": 1, \"hash_ids\": [" + std::to_string(id) + "]}\n";
  EXPECT_THAT(failure_of(text, {.trace_block_tokens = 1U << 24, .skip_bad_lines = true}),
              HasSubstr("t.jsonl:257: the 2^32 token ids are used up"));
}

TEST(TraceReader, LongValuesAreShortenedAndCleanedInMessages) {
  const std::string failure = failure_of("\x01\xff" + std::string(500, 'y') + "\n");
  EXPECT_LT(failure.size(), 200U);
  EXPECT_THAT(failure, HasSubstr("??yyy"));
  EXPECT_THAT(failure, HasSubstr("y..."));
}

}  // namespace
}  // namespace cairn::replay
