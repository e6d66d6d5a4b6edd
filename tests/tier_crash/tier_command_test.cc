// `cairn tier` as its user meets it.
#include <cairn/spill_store.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tier_crash/known_records.h"
#include "tier_crash/test_folder.h"

namespace cairn::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kRecords = 30;
constexpr std::uint64_t kBytesMax = std::uint64_t{16} << 20;

struct Result {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class TierCommandTest : public ::testing::Test {
 protected:
  TierCommandTest() {
    const OpenedStore opened = open();
    first_key_ = opened.store->first_key();
    for (std::size_t record = 0; record < kRecords; ++record) {
      if (!put_known(*opened.store, first_key_ + record)) ADD_FAILURE() << "not stored";
    }
  }

  [[nodiscard]] OpenedStore open() const {
    return open_file_store({.buffers = std::make_shared<SpillBuffers>(known_layout(), std::size_t{4} << 20),
                            .directory = directory_,
                            .bytes_max = kBytesMax});
  }

  [[nodiscard]] Result run(const std::string& arguments) const {
    const std::string command = std::string("'") + CAIRN_TOOL + "' tier " + arguments + " >'" + (folder_ / "out") +
                                "' 2>'" + (folder_ / "err") + "'";
    const int status = std::system(command.c_str());
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .out = content_of(folder_ / "out"),
            .err = content_of(folder_ / "err")};
  }

  // Names, bytes and times of all files of the directory.
  [[nodiscard]] std::map<std::string, std::string> picture() const {
    std::map<std::string, std::string> files;
    for (const std::filesystem::path& file : files_of(directory_)) {
      files[file.string()] = content_of(file.string()) +
                             std::to_string(std::filesystem::last_write_time(file).time_since_epoch().count());
    }
    return files;
  }

  // Changes one byte of the middle of a payload: of the first data that has this key's first bytes.
  void damage_payload(TierKey key) const {
    std::vector<std::byte> start(known_payload_bytes(key));
    fill_known_payload(key, start);
    const std::string wanted(reinterpret_cast<const char*>(start.data()), 64);
    for (const std::filesystem::path& file : files_of(directory_)) {
      const std::string content = content_of(file.string());
      const std::size_t found = content.find(wanted);
      if (found == std::string::npos) continue;
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(static_cast<std::streamoff>(found + 1'000));
      stream.put(static_cast<char>(~content[found + 1'000]));
      return;
    }
    ADD_FAILURE() << "no file has the payload of key " << key;
  }

  TestFolder folder_;
  const std::string directory_ = folder_ / "store";
  TierKey first_key_ = 0;
};

TEST_F(TierCommandTest, HelpShowsExamples) {
  const Result result = run("--help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Examples:\n  cairn tier /var/cache/cairn\n"));
}

TEST_F(TierCommandTest, ListsWhatIsThereAndChangesNothing) {
  const auto before = picture();
  const Result text = run(directory_);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(to_string(known_layout().fingerprint)));
  EXPECT_THAT(text.out, Not(HasSubstr("in use")));
  const Result json = run(directory_ + " --json -");
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const Json document = Json::parse(json.out);
  EXPECT_EQ(document.at("schema_version"), 1);
  EXPECT_EQ(document.at("fingerprint").at("weights"), known_layout().fingerprint.weights);
  EXPECT_EQ(document.at("block_size"), known_layout().block_size);
  EXPECT_EQ(document.at("block_bytes"), known_layout().block_bytes);
  EXPECT_EQ(document.at("snapshot_bytes"), known_layout().snapshot_bytes);
  EXPECT_EQ(document.at("disk_bytes"), disk_bytes(directory_));
  EXPECT_EQ(document.at("damaged_headers"), 0);
  EXPECT_EQ(document.at("in_use"), false);
  std::size_t records = 0;
  for (const Json& kind : document.at("kinds")) records += kind.at("records").get<std::size_t>();
  EXPECT_EQ(records, kRecords);
  records = 0;
  for (const Json& adapter : document.at("adapters")) records += adapter.at("records").get<std::size_t>();
  EXPECT_EQ(records, kRecords);
  EXPECT_FALSE(document.contains("records"));
  EXPECT_EQ(picture(), before);
}

TEST_F(TierCommandTest, ListsEachRecordWithItsLineage) {
  const Result json = run(directory_ + " --records --json -");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json document = Json::parse(json.out);
  const Json& records = document.at("records");
  ASSERT_EQ(records.size(), kRecords);
  for (std::size_t index = 0; index < kRecords; ++index) {
    const TierKey key = first_key_ + index;
    const RecordLineage lineage = known_lineage(key);
    const Json& record = records.at(index);
    EXPECT_EQ(record.at("key"), key);
    EXPECT_EQ(record.at("parent"), lineage.parent);
    EXPECT_EQ(record.at("first_token"), lineage.first_token);
    EXPECT_EQ(record.at("tokens"), lineage.tokens);
    EXPECT_EQ(record.at("adapter"), lineage.adapter);
    EXPECT_EQ(record.at("adapter_generation"), lineage.adapter_generation);
    EXPECT_EQ(record.at("payload_bytes"), known_payload_bytes(key));
    EXPECT_EQ(record.at("media").size(), lineage.media.size());
  }
  const Result text = run(directory_ + " --records");
  EXPECT_THAT(text.out, HasSubstr(std::to_string(first_key_ + kRecords - 1)));
}

TEST_F(TierCommandTest, VerifiesAndNamesWhatIsDamaged) {
  const auto whole = picture();
  const Result fine = run(directory_ + " --verify");
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_THAT(fine.out, HasSubstr("30 whole, 0 damaged"));
  EXPECT_EQ(picture(), whole);

  damage_payload(first_key_ + 7);
  const auto before = picture();
  EXPECT_NE(before, whole);
  EXPECT_EQ(run(directory_).exit_code, 0) << "not looked at without --verify";
  const Result damaged = run(directory_ + " --verify");
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.out, HasSubstr("29 whole, 1 damaged"));
  EXPECT_THAT(damaged.out, HasSubstr("key " + std::to_string(first_key_ + 7) + ","));
  EXPECT_THAT(damaged.err, HasSubstr("1 damaged record"));
  const Json document = Json::parse(run(directory_ + " --verify --json -").out);
  EXPECT_EQ(document.at("verification").at("whole"), 29);
  EXPECT_EQ(document.at("verification").at("damaged").at(0).at("key"), first_key_ + 7);
  EXPECT_EQ(picture(), before) << "damaged records are the store's to erase";
}

TEST_F(TierCommandTest, LooksAtADirectoryThatIsInUseAndDoesNotEmptyIt) {
  const OpenedStore opened = open();
  ASSERT_TRUE(opened.store) << opened.error.message;
  const auto before = picture();
  const Result text = run(directory_ + " --verify");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("in use"));
  EXPECT_THAT(text.out, HasSubstr("30 whole"));
  const Result empty = run(directory_ + " --empty --yes");
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr(directory_));
  EXPECT_EQ(picture(), before);
  EXPECT_EQ(get_now(*opened.store, first_key_).status, GetResult::Status::kFound);
}

TEST_F(TierCommandTest, EmptiesWhenToldTwice) {
  const auto before = picture();
  const Result once = run(directory_ + " --empty");
  EXPECT_EQ(once.exit_code, 2);
  EXPECT_THAT(once.err, HasSubstr("--yes"));
  EXPECT_EQ(picture(), before);
  const Result twice = run(directory_ + " --empty --yes");
  EXPECT_EQ(twice.exit_code, 0) << twice.err;
  const OpenedStore opened = open();
  ASSERT_TRUE(opened.store) << opened.error.message;
  EXPECT_THAT(opened.store->take_recovered(), IsEmpty());
  EXPECT_GT(opened.store->first_key(), 0U);
  EXPECT_TRUE(put_known(*opened.store, opened.store->first_key()));
}

TEST_F(TierCommandTest, WhatIsNoStoreIsAnErrorThatNamesIt) {
  const Result missing = run(folder_ / "nothing");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr(folder_ / "nothing"));
  std::filesystem::create_directories(folder_ / "other");
  std::ofstream(folder_ / "other/precious") << "do not touch";
  for (const char* const option : {"", " --verify", " --empty --yes"}) {
    const Result other = run((folder_ / "other") + option);
    EXPECT_EQ(other.exit_code, 1) << option;
    EXPECT_THAT(other.err, HasSubstr(folder_ / "other")) << option;
  }
  EXPECT_EQ(content_of(folder_ / "other/precious"), "do not touch");
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run(directory_ + " --yes").exit_code, 2);
}

}  // namespace
}  // namespace cairn::testing
