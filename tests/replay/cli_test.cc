// The program as its user meets it: exit codes, messages, standard input and output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "replay/compress.h"

namespace cairn::replay {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

struct Result {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class CairnCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "cairn_cli_" + testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // `arguments` go through the shell, and may redirect standard input.
  Result run(const std::string& arguments) {
    const std::string command =
        std::string("'") + CAIRN_TOOL + "' " + arguments + " >" + folder_ + "out 2>" + folder_ + "err";
    const int status = std::system(command.c_str());
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .out = content_of(folder_ + "out"),
            .err = content_of(folder_ + "err")};
  }
  std::string file(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + name, std::ios::binary) << content;
    return folder_ + name;
  }
  static std::string content_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
};

const char* const kTokenTrace =
    "{\"timestamp\": 0, \"tokens\": [1, 2, 3, 4, 5], \"output_tokens\": [6, 7, 8]}\n"
    "{\"timestamp\": 50, \"tokens\": [1, 2, 3, 4, 5, 6, 7, 8]}\n";

TEST_F(CairnCommand, HelpShowsTheSubcommandAndItsExamples) {
  const Result general = run("--help");
  EXPECT_EQ(general.exit_code, 0);
  EXPECT_THAT(general.out, HasSubstr("replay"));
  const Result replay = run("replay --help");
  EXPECT_EQ(replay.exit_code, 0);
  EXPECT_THAT(replay.out, AllOf(HasSubstr("Examples:\n  cairn replay\n"), HasSubstr("--trace-block-size"),
                                HasSubstr("--service-rate"), HasSubstr("--json")));
}

TEST_F(CairnCommand, VersionIsPrinted) {
  const Result result = run("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, testing::MatchesRegex("cairn [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(CairnCommand, ReplaysTheBuiltinWorkloadIntoATable) {
  const Result result = run("replay --requests 200");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("workload  built-in, seed 1: 200 requests, "));
  EXPECT_THAT(result.out, HasSubstr("unbounded\n"));
  EXPECT_THAT(result.err, IsEmpty()) << "progress is for terminals only";
}

TEST_F(CairnCommand, ReadsATraceFromAFileOrStandardInputPackedOrNot) {
  const std::string plain = file("t.jsonl", kTokenTrace);
  const std::string packed = file("t.jsonl.gz", gzip(kTokenTrace));
  for (const std::string& arguments : {plain, packed, "- <" + plain, "- <" + packed}) {
    const Result result = run("replay --block-size 4 --blocks 10 --json - " + arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json document = Json::parse(result.out);
    const Json& lru = document.at("runs").at(1);
    EXPECT_EQ(lru.at("prompt_tokens"), 13) << arguments;
    EXPECT_EQ(lru.at("matched_tokens"), 8) << arguments;
    EXPECT_EQ(lru.at("reused_tokens"), 7) << arguments;
  }
}

TEST_F(CairnCommand, JsonGoesToAFileBesideTheTable) {
  const std::string path = file("report.json", "old");
  const Result result = run("replay --requests 20 --blocks 2Mt --json " + path);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("workload"));
  EXPECT_EQ(Json::parse(content_of(path)).at("schema_version"), 1);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
    ++files;
  }
  EXPECT_EQ(files, 3U) << "the report, and this test's two";
}

TEST_F(CairnCommand, AReportThatCannotBeWrittenIsAnError) {
  const Result no_folder = run("replay --requests 20 --blocks 2Mt --json " + folder_ + "none/report.json");
  EXPECT_EQ(no_folder.exit_code, 1);
  EXPECT_THAT(no_folder.err, HasSubstr("cannot be written: No such file or directory"));
  const Result full = run("replay --requests 20 --blocks 2Mt --json /dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot be written: No space left on device"));
}

TEST_F(CairnCommand, AMalformedLineIsAnErrorWithFileLineAndReason) {
  const std::string path = file("t.jsonl", std::string(kTokenTrace) + "{\"tokens\": [-5], \"timestamp\": 99}\n");
  const Result result = run("replay " + path);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, StartsWith("cairn: " + path + ":3: \"tokens\": -5: a token is a whole number"));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(CairnCommand, SkippedLinesAreCountedInTableAndJson) {
  const std::string path = file("t.jsonl", std::string("what\n") + kTokenTrace);
  const Result text = run("replay --skip-bad-lines --block-size 4 --blocks 10 " + path);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("1 malformed lines skipped"), HasSubstr(path + ":1: not JSON")));
  const Result json = run("replay --skip-bad-lines --block-size 4 --blocks 10 --json - " + path);
  EXPECT_EQ(Json::parse(json.out).at("bad_lines"), 1);
}

TEST_F(CairnCommand, NamesRequestsThatCanNeverFit) {
  const Result result = run("replay --block-size 1 --blocks 7 " + file("t.jsonl", kTokenTrace));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("2 requests can never fit into the pool of 7 blocks, the first of them:\n"
                                    "  line 1: needs 8 blocks\n  line 2: needs 8 blocks\n"));
}

TEST_F(CairnCommand, PlainIdsAndAnotherBlockSizeAreOptions) {
  const std::string path = file("t.jsonl",
                                "{\"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
                                "{\"input_length\": 12, \"output_length\": 1, \"hash_ids\": [1, 1, 2]}\n");
  EXPECT_THAT(run("replay " + path).err, HasSubstr("input_length 8: too short for 2 hash_ids of 512 tokens"));
  EXPECT_THAT(run("replay --trace-block-size 4 " + path).err, HasSubstr("hash id 1 stands after id 1"));
  const Result result = run("replay --trace-block-size 4 --ids plain --block-size 2 --blocks 99 --json - " + path);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("runs").at(3).at("matched_tokens"), 4);
}

TEST_F(CairnCommand, OverlapIsAnOption) {
  const std::string path = file("t.jsonl", kTokenTrace);
  const auto peak_running = [&](const std::string& options) {
    const Result result = run("replay --block-size 4 --blocks 10 --json - " + options + " " + path);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out).at("runs").at(3).at("peak_running").get<int>();
  };
  EXPECT_EQ(peak_running(""), 1);
  EXPECT_EQ(peak_running("--concurrency 2"), 2);
  EXPECT_EQ(peak_running("--service-rate 10"), 2) << "3 tokens take 300 ms, the next comes after 50";
  EXPECT_EQ(peak_running("--service-rate 100"), 1);
}

TEST_F(CairnCommand, TheVerifyingEngineChecksEveryByteItIsHanded) {
  const std::string path = file("t.jsonl", kTokenTrace);
  const Result result = run("replay --engine verify --block-size 4 --blocks 10 --json - " + path);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = Json::parse(result.out);
  EXPECT_EQ(document.at("settings").at("engine"), "verify");
  EXPECT_TRUE(document.at("workload").at("distinct_blocks").is_null());
  ASSERT_EQ(document.at("runs").size(), 1U);
  const Json& verified = document.at("runs").at(0);
  EXPECT_EQ(verified.at("name"), "verify");
  EXPECT_EQ(verified.at("prompt_tokens"), 13);
  EXPECT_EQ(verified.at("matched_tokens"), 4);
  EXPECT_EQ(verified.at("reused_tokens"), 4);
  EXPECT_EQ(verified.at("block_bytes_checked"), 2 * 4 * 8) << "the one reused, and the one computed twice";
  EXPECT_EQ(verified.at("states_checked"), 0);
  const Result table = run("replay --engine verify --block-size 4 --blocks 10 " + path);
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("engine    verifying, prefill in chunks of 2048 tokens, attention layers only"),
                    HasSubstr("reused tokens"), HasSubstr("blocks checked")));
}

#ifdef CAIRN_HAS_METRICS
TEST_F(CairnCommand, TheVerifyingEngineWritesItsMetrics) {
  const Result result = run("replay --engine verify --block-size 4 --blocks 10 --metrics " + folder_ + "m.prom " +
                            file("t.jsonl", kTokenTrace));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("reused tokens"));
  const std::string metrics = content_of(folder_ + "m.prom");
  EXPECT_THAT(metrics, HasSubstr("cairn_prompt_tokens_total{cache=\"replay\",source=\"memory\"} 4\n"));
  EXPECT_THAT(metrics, HasSubstr("cairn_blocks{cache=\"replay\",state=\"used\"} 2\n")) << "cached at the end";
  EXPECT_THAT(run("replay --metrics m.prom --requests 5").err,
              HasSubstr("--metrics: m.prom: only the verifying engine has it; add --engine verify"));
}
#endif

TEST_F(CairnCommand, TheVerifyingEngineReplaysAHybridModel) {
  const Result result =
      run("replay --requests 40 --engine verify --snapshots 20 --snapshot-bytes 100 --checkpoint-every 512 "
          "--prefill-chunk 300 --blocks 50% --json -");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = Json::parse(result.out);
  const Json& settings = document.at("settings");
  EXPECT_EQ(settings.at("snapshots"), 20);
  EXPECT_EQ(settings.at("snapshot_bytes"), 100);
  EXPECT_EQ(settings.at("checkpoint_every"), 512);
  EXPECT_EQ(settings.at("prefill_chunk"), 300);
  EXPECT_GT(document.at("workload").at("distinct_blocks"), 0);
  const Json& verified = document.at("runs").at(0);
  const auto count = [&](const char* name) { return verified.at(name).get<std::uint64_t>(); };
  EXPECT_EQ(count("prompt_tokens"), count("reused_tokens") + count("computed_tokens"));
  EXPECT_EQ(count("matched_tokens"), count("reused_tokens") + count("stateless_tokens"));
  EXPECT_GT(count("reused_tokens"), 0U);
  EXPECT_GT(count("captures_published"), 20U);
  EXPECT_EQ(count("state_bytes_checked"), 100 * count("states_checked"));
  EXPECT_GT(count("states_checked"), 0U);
}

TEST_F(CairnCommand, TiersKeepWhatLeavesMemoryAndALaterReplayGoesOn) {
  const std::string command =
      "replay --requests 40 --engine verify --block-size 128 --blocks 50% --ram-tier-bytes 1Mi --spill-dir " +
      folder_ + "spill --spill-bytes 1G --json - ";
  const Result first = run(command + "--stop-after 20");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json stopped = Json::parse(first.out).at("runs").at(0);
  EXPECT_EQ(stopped.at("requests"), 20);
  EXPECT_EQ(stopped.at("tiers").at("recovered_blocks"), 0);
  EXPECT_TRUE(stopped.at("tiers").at("save").at("flushed").get<bool>());
  const Result second = run(command + "--skip 20");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const Json document = Json::parse(second.out);
  EXPECT_EQ(document.at("settings").at("tiers").at("ram_tier_bytes"), 1 << 20);
  EXPECT_EQ(document.at("settings").at("tiers").at("spill_bytes"), 1'000'000'000);
  EXPECT_EQ(document.at("settings").at("tiers").at("prefill_tokens_per_s"), 10'000.0);
  const Json& went_on = document.at("runs").at(0);
  EXPECT_EQ(went_on.at("requests"), 20);
  EXPECT_GT(went_on.at("tiers").at("recovered_blocks"), 0);
  EXPECT_GT(went_on.at("tiers").at("reused_from_file_tier_tokens"), 0);

  const Result other = run("replay --requests 40 --engine verify --block-size 64 --blocks 50% --spill-dir " + folder_ +
                           "spill --spill-bytes 1G");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, AllOf(HasSubstr(folder_ + "spill"), HasSubstr("128"), HasSubstr("64")));
}

TEST_F(CairnCommand, TheVerifyingEngineNamesRequestsThatNeverFitAndTokensItCannotTake) {
  const Result rejected = run("replay --engine verify --block-size 1 --blocks 7 " + file("t.jsonl", kTokenTrace));
  EXPECT_EQ(rejected.exit_code, 0);
  EXPECT_THAT(rejected.out, HasSubstr("2 requests can never fit into the pool of 7 blocks, the first of them:\n"
                                      "  line 1: needs 8 blocks\n  line 2: needs 8 blocks\n"));
  const Result reserved = run("replay --engine verify --blocks 7 " + file("r.jsonl", "{\"tokens\": [2147483648]}\n"));
  EXPECT_EQ(reserved.exit_code, 1);
  EXPECT_THAT(reserved.err, HasSubstr("request 1 (line 1): "));
}

TEST_F(CairnCommand, SweepsThePoolsSizeIntoTableJsonCsvAndPlot) {
  const Result result = run("replay --requests 60 --sweep --sizes 5%,20%,100% --jobs 2 --json " + folder_ +
                            "s.json --csv " + folder_ + "s.csv --plot " + folder_ + "s.svg");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("of distinct"), HasSubstr("optimum  unbounded"), HasSubstr("Nine tenths")));
  EXPECT_THAT(result.err, IsEmpty()) << "progress is for terminals only";
  EXPECT_EQ(Json::parse(content_of(folder_ + "s.json")).at("curves").size(), 3U);
  EXPECT_THAT(content_of(folder_ + "s.csv"), HasSubstr("\noptimum,"));
  EXPECT_THAT(content_of(folder_ + "s.svg"), StartsWith("<svg"));
  const Result lru = run("replay --requests 60 --sweep --policies lru --csv -");
  EXPECT_THAT(lru.out, AllOf(StartsWith("policy,"), HasSubstr("\nlru,"), Not(HasSubstr("\nunbounded,"))));
}

TEST_F(CairnCommand, SweepsTheSlotsOfAHybridModel) {
  const Result result = run("replay --requests 40 --sweep-snapshots --slots 5,50 --blocks 50% --checkpoint-every 512");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("a checkpoint every 512 tokens"), HasSubstr("\n        5 "),
                                HasSubstr("\n       50 "), HasSubstr("\nunbounded ")));
}

TEST_F(CairnCommand, ExplainsWhyPromptsWereNotCached) {
  const std::string path = file("t.jsonl", kTokenTrace);
  const Result text = run("explain --block-size 4 --blocks 10 --requests " + path);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("The costliest causes"), HasSubstr("To do: "), HasSubstr("Example: request 1"),
                              HasSubstr("request 2 (line 2, at 0.1 s): 8 of 8 tokens matched; all full blocks\n")));
  const Result json = run("explain --block-size 4 --blocks 10 --json - " + path);
  const Json document = Json::parse(json.out);
  EXPECT_EQ(document.at("tokens").at("matched"), 8);
  EXPECT_EQ(document.at("requests_by_cause").at("never_seen"), 1);
  EXPECT_FALSE(document.contains("requests"));
  EXPECT_THAT(run("explain --block-size 4 --blocks 10 --policy learned " + path).out,
              HasSubstr(" distinct), learned, "));
  const Result builtin = run("explain --workload-requests 50 --seed 2 --blocks 2Mt --json " + folder_ + "e.json");
  EXPECT_THAT(builtin.out, StartsWith("workload  built-in, seed 2: 50 requests, "));
  EXPECT_EQ(Json::parse(content_of(folder_ + "e.json")).at("settings").at("seed"), 2);
  EXPECT_THAT(run("explain --help").out, HasSubstr("Examples:\n  cairn explain "));
}

TEST_F(CairnCommand, AServiceRateNeedsTimeStamps) {
  const Result result = run("replay --blocks 9 --service-rate 10 " + file("t.jsonl", "{\"tokens\": [1]}\n"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("needs a workload with time stamps"));
}

TEST_F(CairnCommand, WrongUseIsToldWithValueAndRule) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "subcommand is required"},
      {"replay --no-such-option", "--no-such-option"},
      {"replay --block-size 0", "--block-size: Value 0 not in range 1 to 65536"},
      {"replay --blocks lots", "--blocks: 'lots': must be a whole number"},
      {"replay --blocks 0%", "'0%': a percentage is a number from 0.001"},
      {"replay --concurrency 0", "--concurrency: Value 0 not in range 1 to 1000000"},
      {"replay --service-rate 0", "--service-rate: 0 is not a number above 0"},
      {"replay --service-rate 1 --concurrency 2", "excludes"},
      {"replay --requests 0", "--requests: Value 0 not in range 1 to 1000000"},
      {"replay --requests 5 t.jsonl", "excludes --requests"},
      {"replay --seed 5 t.jsonl", "excludes --seed"},
      {"replay --workload t.jsonl", "excludes"},
      {"replay --ids plain", "--ids requires"},
      {"replay --skip-bad-lines", "--skip-bad-lines requires"},
      {"replay --ids loose t.jsonl", "--ids: loose not in {chained,plain}"},
      {"replay --format csv t.jsonl", "--format: csv not in {auto,blocks,tokens}"},
      {"replay --trace-block-size 0 t.jsonl", "--trace-block-size: Value 0 not in range"},
      {"replay --sweep --blocks 5%", "--blocks excludes --sweep"},
      {"replay --sweep --engine verify", "--engine excludes --sweep"},
      {"replay --sweep --sweep-snapshots", "--sweep excludes --sweep-snapshots"},
      {"replay --sizes 5%", "--sizes requires --sweep"},
      {"replay --sweep --sizes 5%,some", "--sizes: 'some': must be a whole number"},
      {"replay --sweep --policies lru,mru", "--policies: mru not in"},
      {"replay --sweep --jobs 0", "--jobs: Value 0 not in range"},
      {"replay --jobs 3", "--jobs: 3: only a sweep has it; add --sweep, --sweep-snapshots or"},
      {"replay --plot x.svg", "--plot: x.svg: only a sweep has it; add --sweep, --sweep-snapshots or"},
      {"explain --blocks lots", "--blocks: 'lots': must be a whole number"},
      {"explain --workload-requests 5 t.jsonl", "excludes"},
      {"replay --engine real", "--engine: real not in {index,verify}"},
      {"replay --snapshots 5", "--snapshots: 5: only the verifying engine has it; add --engine verify"},
      {"replay --engine index --prefill-chunk 64", "--prefill-chunk: 64: only the verifying engine has it; add"},
      {"replay --snapshot-bytes 9", "--snapshot-bytes: 9: only the verifying engine has it; add --engine verify"},
      {"replay --checkpoint-every 16",
       "--checkpoint-every: 16: only the verifying engine has it; add --engine verify"},
      {"replay --engine verify --checkpoint-every 16", "16: without --snapshots no state is kept; add --snapshots N"},
      {"replay --engine verify --snapshot-bytes 9", "9: without --snapshots no state is kept; add --snapshots N"},
      {"replay --engine verify --snapshots 5 --checkpoint-every 100",
       "--checkpoint-every: 100: must be a multiple of the block size 16; take 96 or 112"},
      {"replay --engine verify --snapshots 5 --checkpoint-every 3 --block-size 8",
       "--checkpoint-every: 3: must be a multiple of the block size 8; take 8"},
      {"replay --ram-tier-bytes 1M",
       "--ram-tier-bytes: 1000000: only the verifying engine has it; add --engine verify"},
      {"replay --skip 5", "--skip: 5: only the verifying engine has it; add --engine verify"},
      {"replay --sweep-tiers --ram-tier-bytes 2M", "--ram-tier-bytes: 2000000: not with --sweep-tiers, which sets"},
      {"replay --sweep-tiers --skip 5", "--skip: 5: not with --sweep-tiers, which replays all requests"},
      {"replay --sweep-snapshots --stop-after 5", "--stop-after: 5: not with --sweep-snapshots, which replays all"},
      {"replay --sweep --ram-tier-bytes 2M", "2000000: not with --sweep, which has no tier; take --sweep-tiers"},
      {"replay --sweep --write-through", "--write-through: not with --sweep, which has no tier; take --sweep-tiers"},
      {"replay --sweep --snapshots 5",
       "--snapshots: 5: not with --sweep, which has no verifying engine; take --sweep-snapshots or --sweep-tiers"},
      {"replay --sweep --model none", "--model: none not in"},
      {"replay --sweep --session-leases 5", "--session-leases: 5: not with --sweep, which has no verifying engine"},
#ifdef CAIRN_HAS_METRICS
      {"replay --sweep --metrics m",
       "--metrics: m: not with --sweep, which makes many replays; leave one of them out"},
      {"replay --sweep-tiers --metrics m", "--metrics: m: not with --sweep-tiers, which makes many replays"},
#endif
      {"replay --sweep-snapshots --snapshot-policy session",
       "--snapshot-policy: session: not with --sweep-snapshots; take --snapshot-policies"},
      {"replay --engine verify --snapshots 5 --snapshot-policy flop-auto --flop-alpha 2",
       "--flop-alpha: 2: only the snapshot policy flop uses it, not flop-auto; add --snapshot-policy flop"},
      {"replay --engine verify --snapshots 5 --flop-alpha 2",
       "--flop-alpha: 2: only the snapshot policy flop uses it"},
      {"replay --engine verify --snapshots 5 --snapshot-policy flop --session-leases 7",
       "--session-leases: 7: only the snapshot policy session uses it, not flop; add --snapshot-policy session"},
      {"replay --sweep-snapshots --snapshot-policies lru,flop --session-lease-evictions 7",
       "--session-lease-evictions: 7: only the snapshot policy session uses it, not lru, flop; add "
       "--snapshot-policies session"},
      {"replay --sweep --csv - --json -", "--csv: -: --json - has standard output already; give one of them a file"},
      {"explain none.jsonl --snapshots 9 --checkpoint-every 100",
       "--checkpoint-every: 100: must be a multiple of the block size 16; take 96 or 112"},
      {"replay --engine verify --spill-dir x", "--spill-dir requires --spill-bytes"},
      {"replay --engine verify --spill-bytes 1M", "--spill-bytes requires --spill-dir"},
      {"replay --engine verify --ram-tier-bytes many", "--ram-tier-bytes"},
      {"replay --engine verify --ram-tier-bytes 0", "--ram-tier-bytes"},
      {"replay --engine verify --reinitialize", "--reinitialize requires --spill-dir"},
      {"replay --engine verify --write-through", "--write-through: without a tier nothing is stored; add"},
      {"replay --engine verify --ram-tier-bytes 1M --fetch-bytes-per-s -1", "-1 is not a number from 0 on"},
      {"replay --engine verify --snapshots 0", "--snapshots: Value 0 not in range 1 to 10000000"},
      {"replay --engine verify --prefill-chunk 0", "--prefill-chunk: Value 0 not in range 1 to 16777216"},
  };
  for (const auto& [arguments, message] : cases) {
    const Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr(message)) << arguments;
    EXPECT_THAT(result.out, IsEmpty()) << arguments;
  }
}

TEST_F(CairnCommand, AMissingFileIsAnError) {
  const Result result = run("replay " + folder_ + "none.jsonl");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "cairn: " + folder_ + "none.jsonl: cannot be opened: No such file or directory\n");
}

}  // namespace
}  // namespace cairn::replay
