#include "replay/line_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "replay/compress.h"
#include "replay/errors.h"

namespace cairn::replay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string zstd(const std::string& text) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(context.get(), packed.data(), packed.size(), text.data(), text.size()));
  return packed;
}

std::vector<std::string> lines_of(LineSource source) {
  std::vector<std::string> lines;
  for (std::string line; source.next(line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> lines_of(const std::string& bytes, const std::string& name = "input") {
  std::istringstream in(bytes);
  return lines_of(LineSource(in, name));
}

std::string failure_of(const std::string& bytes, const std::string& name) {
  try {
    lines_of(bytes, name);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

std::string file_with(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Bytes that do not compress, so that a packed file has a body to cut.
std::string noise(std::size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>('a' + random() % 26);
  return text;
}

TEST(LineSource, YieldsLinesWithoutTheirEndsAndNumbersThem) {
  std::istringstream in("one\n\nthree");
  LineSource source(in, "input");
  std::string line;
  ASSERT_TRUE(source.next(line));
  EXPECT_EQ(line, "one");
  EXPECT_EQ(source.line_number(), 1U);
  ASSERT_TRUE(source.next(line));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(source.next(line));
  EXPECT_EQ(line, "three");
  EXPECT_EQ(source.line_number(), 3U);
  EXPECT_FALSE(source.next(line));
}

TEST(LineSource, EmptyInputHasNoLines) {
  EXPECT_TRUE(lines_of("").empty());
}

TEST(LineSource, JoinsLinesLongerThanAChunk) {
  const std::string text = noise(300'000);
  EXPECT_THAT(lines_of(text + "\nend\n"), ElementsAre(text, "end"));
}

TEST(LineSource, ReadsFilesOfSeveralMembersAndFrames) {
  EXPECT_THAT(lines_of(LineSource::open(file_with("two.gz", gzip("a\nb") + gzip("c\nd\n")))),
              ElementsAre("a", "bc", "d"));
  EXPECT_THAT(lines_of(LineSource::open(file_with("two.zst", zstd("a\nb") + zstd("") + zstd("c\nd\n")))),
              ElementsAre("a", "bc", "d"));
}

TEST(LineSource, TellsCompressedStandardInputByItsFirstByte) {
  EXPECT_THAT(lines_of(gzip("a\nb\n")), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of(zstd("a\nb\n")), ElementsAre("a", "b"));
}

TEST(LineSource, DecompressesWhatIsLargerThanEveryBuffer) {
  const std::string text = noise(3'000'000);
  EXPECT_THAT(lines_of(gzip(text)), ElementsAre(text));
  EXPECT_THAT(lines_of(zstd(text)), ElementsAre(text));
  const std::string zeros(5'000'000, '0');
  EXPECT_THAT(lines_of(zstd(zeros)), ElementsAre(zeros));
}

TEST(LineSource, RefusesCompressedInputThatIsCutOffAnywhere) {
  const std::string text = noise(500) + "\n" + noise(500) + "\n";
  for (const auto& [name, packed] : {std::pair("t.gz", gzip(text)), std::pair("t.zst", zstd(text))}) {
    for (std::size_t kept = 0; kept < packed.size(); ++kept) {
      const std::string failure = failure_of(packed.substr(0, kept), name);
      EXPECT_THAT(failure, HasSubstr("cut off")) << name << " cut after byte " << kept;
      EXPECT_THAT(failure, HasSubstr(std::string(name) + ":"));
    }
  }
}

TEST(LineSource, RefusesCompressedInputThatIsCorrupt) {
  for (const auto& [name, packed] : {std::pair("t.gz", gzip(noise(2000))), std::pair("t.zst", zstd(noise(2000)))}) {
    std::string corrupt = packed;
    for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 40; ++i) corrupt[i] = '\x55';
    EXPECT_THAT(failure_of(corrupt, name), HasSubstr(std::string(name) + ":1: cannot be read on, corrupt")) << name;
    EXPECT_THAT(failure_of("{\"plain\": 1}\n", name), HasSubstr(std::string(name) + ":1: ")) << name;
  }
}

TEST(LineSource, NamesAFileThatCannotBeOpenedOrRead) {
  try {
    LineSource::open("/nowhere/trace.jsonl");
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_STREQ(error.what(), "/nowhere/trace.jsonl: cannot be opened: No such file or directory");
  }
  EXPECT_THROW(lines_of(LineSource::open(testing::TempDir())), TraceError);
}

}  // namespace
}  // namespace cairn::replay
