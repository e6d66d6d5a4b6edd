// A look into the directory of a file store from outside: what lies in it, and whether it is whole. Changes nothing,
// and works beside a store that has the directory open.
#ifndef CAIRN_TIER_INSPECT_H_
#define CAIRN_TIER_INSPECT_H_

#include <cairn/spill_store.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tier/record.h"

namespace cairn {

// A slot whose header is neither wiped nor right.
struct InspectedDamage {
  SlabId slab = SlabId::kBlocks;
  std::uint32_t slot = 0;
};

class DirectoryInspector {
 public:
  // Reads all headers. Throws std::runtime_error with path and cause: there is no such directory, no store was ever
  // opened in it, it can't be read, or what describes it is damaged.
  explicit DirectoryInspector(std::string directory);
  ~DirectoryInspector();
  DirectoryInspector(const DirectoryInspector&) = delete;
  DirectoryInspector& operator=(const DirectoryInspector&) = delete;

  // Another process had it open when this was made: records may have come and gone since.
  [[nodiscard]] bool in_use() const noexcept { return in_use_; }
  [[nodiscard]] const SpillLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] std::uint64_t disk_bytes() const noexcept { return disk_bytes_; }  // taken by all files
  // Those that a store would find, by key.
  [[nodiscard]] std::span<const RecordHeader> records() const noexcept { return records_; }
  // Records that another one with the same key and a later generation has replaced.
  [[nodiscard]] std::size_t replaced_records() const noexcept { return replaced_records_; }
  [[nodiscard]] std::span<const InspectedDamage> damaged_headers() const noexcept { return damaged_headers_; }

  enum class Verdict : std::uint8_t {
    kWhole,
    kDamaged,
    kGone,  // another record is there now, or none: a store works on it
  };
  // Reads the whole record and compares its checksums. Throws std::runtime_error with path and cause if it can't be
  // read.
  [[nodiscard]] Verdict verify(const RecordHeader& record);

 private:
  struct Slab;
  void read_headers(const Slab& slab);
  void drop_replaced();

  std::string directory_;
  std::vector<Slab> slabs_;
  std::vector<std::byte> buffer_;  // for one record
  bool in_use_ = false;
  SpillLayout layout_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t disk_bytes_ = 0;
  std::vector<RecordHeader> records_;
  std::size_t replaced_records_ = 0;
  std::vector<InspectedDamage> damaged_headers_;
};

// Removes all records and what describes them: the next store may have any layout. Throws std::runtime_error with path
// and cause: it is open in another process, holds no store, or can't be changed.
void empty_store_directory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_TIER_INSPECT_H_
