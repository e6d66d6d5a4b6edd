// The header of a record: what is encoded is decoded, and nothing else is.
#include "tier/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tier/records.h"
#include "tier/store_directory.h"

namespace cairn::testing {
namespace {

// The example of docs/spill-format.md.
SpillLayout example_layout() {
  return {.fingerprint = {.weights = "w@1", .kv_type = "fp16", .layout = "nhd", .ranks = 2},
          .block_size = 4,
          .block_bytes = 8,
          .snapshot_bytes = 0};
}

RecordHeader example_header() {
  return {.key = first_of_incarnation(1),
          .generation = first_of_incarnation(1) + 2,
          .slab = SlabId::kBlocks,
          .slot = 5,
          .payload_bytes = 8,
          .lineage = {.kind = RecordKind::kBlock,
                      .adapter = "lora",
                      .adapter_generation = 7,
                      .tenant_salt = "t1",
                      .parent = 0,
                      .first_token = 0,
                      .tokens = {11, 12, 900, 14},
                      .media = {{.offset = 2, .length = 64, .content_id = {0xA1, 0xB2}}}}};
}

std::vector<std::byte> example_record() {
  std::vector<std::byte> record(2 * SpillBuffer::kAlignment);
  for (std::size_t i = 0; i < 8; ++i) record[SpillBuffer::kAlignment + i] = static_cast<std::byte>(i + 1);
  encode_header(example_layout(), example_header(), checksum_payload(example_layout(), record), record);
  return record;
}

std::span<const std::byte> header_of(const std::vector<std::byte>& record) {
  return std::span(record).first(record_header_bytes(example_layout()));
}

TEST(Record, IsDecodedAsItWasEncoded) {
  const std::vector<std::byte> record = example_record();
  EXPECT_EQ(decode_header(example_layout(), header_of(record)), example_header());
  EXPECT_TRUE(is_payload_whole(example_layout(), record));
  EXPECT_FALSE(is_wiped(header_of(record)));
}

TEST(Record, KeepsTheLargestLineageThatFits) {
  SpillLayout layout = example_layout();
  layout.fingerprint.weights = layout.fingerprint.kv_type = layout.fingerprint.layout = std::string(128, 'f');
  layout.block_size = 1000;
  RecordHeader header = example_header();
  header.lineage.adapter = header.lineage.tenant_salt = std::string(RecordLineage::kNameBytesMax, 'n');
  header.lineage.tokens.assign(layout.block_size, 0xFFFFFFFF);
  header.lineage.media.assign(kMediaMin, {.offset = 1, .length = 2, .content_id = {3, 4}});
  while (true) {
    ASSERT_TRUE(fits_header(layout, header.lineage));
    std::vector<std::byte> record(record_header_bytes(layout) + SpillBuffer::kAlignment);
    encode_header(layout, header, checksum_payload(layout, record), record);
    ASSERT_EQ(decode_header(layout, std::span(record).first(record_header_bytes(layout))), header);
    header.lineage.media.emplace_back();
    if (!fits_header(layout, header.lineage)) break;
  }
  EXPECT_GT(header.lineage.media.size(), kMediaMin);
}

TEST(Record, HasRoomForAsManyTokensAsTheLayoutSays) {
  SpillLayout layout = example_layout();
  layout.record_tokens = 3000;
  RecordHeader header = example_header();
  header.lineage.tokens.assign(layout.record_tokens, 7);
  ASSERT_TRUE(fits_header(layout, header.lineage));
  std::vector<std::byte> record(record_header_bytes(layout) + SpillBuffer::kAlignment);
  encode_header(layout, header, checksum_payload(layout, record), record);
  EXPECT_EQ(decode_header(layout, std::span(record).first(record_header_bytes(layout))), header);
  header.lineage.tokens.push_back(7);
  EXPECT_FALSE(fits_header(layout, header.lineage));
}

TEST(Record, DoesNotFitWithNamesTokensOrMediaThatAreTooMany) {
  RecordLineage lineage = example_header().lineage;
  EXPECT_TRUE(fits_header(example_layout(), lineage));
  lineage.tokens.push_back(1);
  EXPECT_FALSE(fits_header(example_layout(), lineage));
  lineage = example_header().lineage;
  lineage.tenant_salt = std::string(RecordLineage::kNameBytesMax + 1, 's');
  EXPECT_FALSE(fits_header(example_layout(), lineage));
  lineage = example_header().lineage;
  lineage.media.resize(170);
  EXPECT_FALSE(fits_header(example_layout(), lineage));
}

TEST(Record, NoticesEveryFlippedBit) {
  const std::vector<std::byte> good = example_record();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> record = good;
    record[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const bool is_header_bit = bit / 8 < SpillBuffer::kAlignment;
    if (is_header_bit) {
      ASSERT_EQ(decode_header(example_layout(), header_of(record)), std::nullopt) << "bit " << bit;
    } else {
      ASSERT_FALSE(is_payload_whole(example_layout(), record)) << "bit " << bit;
    }
  }
}

TEST(Record, IsOfItsFingerprintAndLayoutAlone) {
  const std::vector<std::byte> record = example_record();
  const auto is_decoded = [&](auto change) {
    SpillLayout layout = example_layout();
    change(layout);
    return decode_header(layout, header_of(record)).has_value();
  };
  EXPECT_TRUE(is_decoded([](SpillLayout&) {}));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.fingerprint.weights = "w@2"; }));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.fingerprint.kv_type = "fp8"; }));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.fingerprint.layout = "hnd"; }));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.fingerprint.ranks = 4; }));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.block_size = 8; }));
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) { layout.block_bytes = 9; }));
  // The texts' borders count, not their bytes alone.
  EXPECT_FALSE(is_decoded([](SpillLayout& layout) {
    layout.fingerprint.weights = "w@1f";
    layout.fingerprint.kv_type = "p16";
  }));
}

TEST(Record, IsNoneInRubbish) {
  std::mt19937_64 random(7);
  std::vector<std::byte> header(record_header_bytes(example_layout()));
  EXPECT_TRUE(is_wiped(header));
  EXPECT_EQ(decode_header(example_layout(), header), std::nullopt);
  for (int i = 0; i < 100; ++i) {
    for (std::byte& byte : header) byte = static_cast<std::byte>(random() & 0xFF);
    ASSERT_EQ(decode_header(example_layout(), header), std::nullopt);
  }
  EXPECT_EQ(decode_header(example_layout(), std::span(header).first(100)), std::nullopt);
}

TEST(Meta, IsDecodedAsItWasEncodedAndNoticesEveryFlippedBit) {
  const StoreMeta meta{.layout = small_layout(), .incarnation = 77};
  const std::vector<std::byte> good = encode_meta(meta);
  const std::optional<StoreMeta> decoded = decode_meta(good);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->layout.fingerprint, meta.layout.fingerprint);
  EXPECT_EQ(decoded->layout.block_size, meta.layout.block_size);
  EXPECT_EQ(decoded->layout.block_bytes, meta.layout.block_bytes);
  EXPECT_EQ(decoded->layout.snapshot_bytes, meta.layout.snapshot_bytes);
  EXPECT_EQ(decoded->incarnation, 77U);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    ASSERT_FALSE(decode_meta(bytes)) << "bit " << bit;
  }
  EXPECT_FALSE(decode_meta(std::span(good).first(good.size() - 1)));
}

// "000010  01 02 ...  |..|" lines of the first block of that language after `heading`; what is left out is zero.
std::vector<std::byte> documented_bytes(const std::string& heading, std::size_t size) {
  std::ifstream file(CAIRN_SPILL_FORMAT_DOCUMENT);
  std::vector<std::byte> bytes(size);
  std::string line;
  bool is_in_section = false;
  bool is_in_block = false;
  const std::regex hex_line("^([0-9a-f]{6})  ((?:[0-9a-f]{2} ){16}).*");
  while (std::getline(file, line)) {
    if (line == heading) is_in_section = true;
    if (!is_in_section) continue;
    if (line.starts_with("```")) {
      if (is_in_block) break;
      is_in_block = true;
      continue;
    }
    std::smatch match;
    if (!is_in_block || !std::regex_match(line, match, hex_line)) continue;
    std::size_t at = std::stoul(match[1], nullptr, 16);
    std::istringstream numbers(match[2]);
    std::string number;
    while (numbers >> number && at < size) bytes[at++] = static_cast<std::byte>(std::stoul(number, nullptr, 16));
  }
  return bytes;
}

std::string hex_lines(const std::vector<std::byte>& bytes) {
  std::ostringstream text;
  text << std::hex;
  text.fill('0');
  for (std::size_t line = 0; line < bytes.size(); line += 16) {
    const auto part = std::span(bytes).subspan(line, std::min<std::size_t>(16, bytes.size() - line));
    if (std::ranges::all_of(part, [](std::byte byte) { return byte == std::byte{0}; })) continue;
    text.width(6);
    text << line << " ";
    for (const std::byte byte : part) {
      text << " ";
      text.width(2);
      text << std::to_integer<unsigned>(byte);
    }
    text << "\n";
  }
  return text.str();
}

TEST(Record, LiesOnDiskAsTheDocumentShows) {
  const std::vector<std::byte> record = example_record();
  EXPECT_EQ(hex_lines(documented_bytes("### A record, byte by byte", record.size())), hex_lines(record));
}

TEST(Meta, LiesOnDiskAsTheDocumentShows) {
  const std::vector<std::byte> meta = encode_meta({.layout = example_layout(), .incarnation = 2});
  EXPECT_EQ(hex_lines(documented_bytes("### The file `meta`, byte by byte", meta.size())), hex_lines(meta));
}

}  // namespace
}  // namespace cairn::testing
