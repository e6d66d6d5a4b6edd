// The directory of a file store: who has it, what it is for, and its files.
//
//   lock            flocked as long as a store has the directory
//   meta            fingerprint, layout and incarnation; replaced as a whole
//   blocks.slab     records of blocks
//   snapshots.slab  records of snapshots
#ifndef CAIRN_TIER_STORE_DIRECTORY_H_
#define CAIRN_TIER_STORE_DIRECTORY_H_

#include <cairn/spill_store.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tier/record.h"

namespace cairn {

inline constexpr std::uint32_t kStoreFormatVersion = 1;

// The files, by name in the directory.
inline constexpr const char* kLockName = "lock";
inline constexpr const char* kMetaName = "meta";
inline constexpr const char* kNewMetaName = "meta.new";  // the next one, until it takes the place of the other
inline constexpr std::array<const char*, kSlabs> kSlabNames = {"blocks.slab", "snapshots.slab"};

// What the file `meta` says.
struct StoreMeta {
  SpillLayout layout{};
  std::uint64_t incarnation = 0;  // how often the directory was opened, this time included

  static constexpr std::uint64_t kIncarnationMax = (std::uint64_t{1} << 24) - 1;
};
[[nodiscard]] std::vector<std::byte> encode_meta(const StoreMeta& meta);
// None if anything is wrong with it.
[[nodiscard]] std::optional<StoreMeta> decode_meta(std::span<const std::byte> bytes);

// Keys and generations of one incarnation count up from here.
[[nodiscard]] constexpr std::uint64_t first_of_incarnation(std::uint64_t incarnation) noexcept {
  return incarnation << 40 | 1;
}
[[nodiscard]] constexpr std::uint64_t incarnation_of(std::uint64_t key_or_generation) noexcept {
  return key_or_generation >> 40;
}

// A descriptor that is closed.
class File {
 public:
  File() = default;
  explicit File(int descriptor) noexcept : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  // Never closed: something may still be under way in it.
  void abandon() noexcept { descriptor_ = -1; }

 private:
  int descriptor_ = -1;
};

// "PATH: what failed: errno's text"
[[nodiscard]] std::string io_message(const std::string& path, const std::string& what, int error);

class StoreDirectory {
 public:
  struct Opened {
    std::unique_ptr<StoreDirectory> directory{};  // null: see error
    SpillOpenError error{};
  };
  // Blocks. The incarnation has counted up, durably, when it returns. With `reinitialize` a directory of another
  // layout, or a damaged one, is emptied.
  [[nodiscard]] static Opened open(const std::string& path, const SpillLayout& layout, bool reinitialize);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  // -1 if the layout has no such records.
  [[nodiscard]] int slab_file(SlabId slab) const noexcept { return slabs_[static_cast<std::size_t>(slab)].get(); }
  [[nodiscard]] std::string slab_path(SlabId slab) const;
  // Taken on disk by all files.
  [[nodiscard]] std::uint64_t disk_bytes() const noexcept;
  void abandon_slabs() noexcept;

 private:
  using Failure = std::optional<SpillOpenError>;

  explicit StoreDirectory(std::string path) : path_(std::move(path)) {}
  Failure open_all(const SpillLayout& layout, bool reinitialize);
  Failure lock();
  Failure read_meta(const SpillLayout& layout, bool reinitialize);
  Failure write_meta(const SpillLayout& layout);
  Failure open_slabs(const SpillLayout& layout);
  Failure open_slab(SlabId slab);
  Failure remove_slabs();
  [[nodiscard]] SpillOpenError io_error(const std::string& name, const std::string& what) const;
  [[nodiscard]] bool has_slabs() const noexcept;

  std::string path_;
  File directory_;
  File lock_;
  std::array<File, kSlabs> slabs_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_TIER_STORE_DIRECTORY_H_
