#include "tier/store_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/hash.h"
#include "tier/bytes.h"

namespace cairn {
namespace {

using Reason = SpillOpenError::Reason;

constexpr mode_t kMode = 0600;  // what users have typed can be guessed from what is cached

// docs/spill-format.md has the same table.
constexpr std::array<char, 8> kMagic = {'C', 'A', 'I', 'R', 'N', 'D', 'I', 'R'};
namespace at {
constexpr std::size_t kMagic = 0;
constexpr std::size_t kVersion = 8;
constexpr std::size_t kRanks = 12;
constexpr std::size_t kIncarnation = 16;
constexpr std::size_t kBlockSize = 24;
constexpr std::size_t kBlockBytes = 32;
constexpr std::size_t kSnapshotBytes = 40;
constexpr std::size_t kWeightsBytes = 48;
constexpr std::size_t kKvTypeBytes = 50;
constexpr std::size_t kLayoutBytes = 52;
constexpr std::size_t kTexts = 56;
}  // namespace at
constexpr std::size_t kMetaBytes = 512;
constexpr std::size_t kRecordTokensAt = 480;  // behind the longest texts
constexpr std::size_t kChecksumAt = kMetaBytes - sizeof(XXH128_hash_t);

std::string layout_text(const SpillLayout& layout) {
  return "block_size=" + std::to_string(layout.block_size) + ", block_bytes=" + std::to_string(layout.block_bytes) +
         ", snapshot_bytes=" + std::to_string(layout.snapshot_bytes) +
         ", record_tokens=" + std::to_string(layout.record_tokens);
}

bool write_fully(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string io_message(const std::string& path, const std::string& what, int error) {
  return path + ": " + what + ": " + std::generic_category().message(error);
}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (is_open()) ::close(descriptor_);
}

std::vector<std::byte> encode_meta(const StoreMeta& meta) {
  std::vector<std::byte> bytes(kMetaBytes);
  std::byte* const to = bytes.data();
  const ModelFingerprint& fingerprint = meta.layout.fingerprint;
  std::memcpy(to + at::kMagic, kMagic.data(), kMagic.size());
  store_little_endian(to + at::kVersion, kStoreFormatVersion);
  store_little_endian(to + at::kRanks, fingerprint.ranks);
  store_little_endian(to + at::kIncarnation, meta.incarnation);
  store_little_endian<std::uint64_t>(to + at::kBlockSize, meta.layout.block_size);
  store_little_endian<std::uint64_t>(to + at::kBlockBytes, meta.layout.block_bytes);
  store_little_endian<std::uint64_t>(to + at::kSnapshotBytes, meta.layout.snapshot_bytes);
  store_little_endian<std::uint64_t>(to + kRecordTokensAt, meta.layout.record_tokens);
  std::size_t end = at::kTexts;
  for (auto [text, field] : {std::pair{&fingerprint.weights, at::kWeightsBytes},
                             {&fingerprint.kv_type, at::kKvTypeBytes},
                             {&fingerprint.layout, at::kLayoutBytes}}) {
    store_little_endian(to + field, static_cast<std::uint16_t>(text->size()));
    if (!text->empty()) std::memcpy(to + end, text->data(), text->size());  // of 128 bytes at most, so all fit
    end += text->size();
  }
  const XXH128_hash_t checksum = XXH3_128bits(to, kChecksumAt);
  store_little_endian<std::uint64_t>(to + kChecksumAt, checksum.low64);
  store_little_endian<std::uint64_t>(to + kChecksumAt + sizeof(std::uint64_t), checksum.high64);
  return bytes;
}

std::optional<StoreMeta> decode_meta(std::span<const std::byte> bytes) {
  if (bytes.size() != kMetaBytes) return std::nullopt;
  const std::byte* const from = bytes.data();
  const XXH128_hash_t checksum = XXH3_128bits(from, kChecksumAt);
  if (load_little_endian<std::uint64_t>(from + kChecksumAt) != checksum.low64) return std::nullopt;
  if (load_little_endian<std::uint64_t>(from + kChecksumAt + sizeof(std::uint64_t)) != checksum.high64) {
    return std::nullopt;
  }
  if (std::memcmp(from + at::kMagic, kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  if (load_little_endian<std::uint32_t>(from + at::kVersion) != kStoreFormatVersion) return std::nullopt;
  StoreMeta meta;
  ModelFingerprint& fingerprint = meta.layout.fingerprint;
  fingerprint.ranks = load_little_endian<std::uint32_t>(from + at::kRanks);
  meta.incarnation = load_little_endian<std::uint64_t>(from + at::kIncarnation);
  meta.layout.block_size = load_little_endian<std::uint64_t>(from + at::kBlockSize);
  meta.layout.block_bytes = load_little_endian<std::uint64_t>(from + at::kBlockBytes);
  meta.layout.snapshot_bytes = load_little_endian<std::uint64_t>(from + at::kSnapshotBytes);
  meta.layout.record_tokens = load_little_endian<std::uint64_t>(from + kRecordTokensAt);
  std::size_t end = at::kTexts;
  for (auto [text, field] : {std::pair{&fingerprint.weights, at::kWeightsBytes},
                             {&fingerprint.kv_type, at::kKvTypeBytes},
                             {&fingerprint.layout, at::kLayoutBytes}}) {
    const std::size_t size = load_little_endian<std::uint16_t>(from + field);
    if (size > kRecordTokensAt - end) return std::nullopt;
    text->assign(size, '\0');
    std::memcpy(text->data(), from + end, size);
    end += size;
  }
  return meta;
}

SpillOpenError StoreDirectory::io_error(const std::string& name, const std::string& what) const {
  return {.reason = Reason::kIo, .message = io_message(name.empty() ? path_ : path_ + "/" + name, what, errno)};
}

StoreDirectory::Opened StoreDirectory::open(const std::string& path, const SpillLayout& layout, bool reinitialize) {
  std::unique_ptr<StoreDirectory> directory(new StoreDirectory(path));
  if (Failure failure = directory->open_all(layout, reinitialize)) return {.error = std::move(*failure)};
  return {.directory = std::move(directory)};
}

StoreDirectory::Failure StoreDirectory::open_all(const SpillLayout& layout, bool reinitialize) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) return SpillOpenError{.reason = Reason::kIo, .message = path_ + ": can't be made: " + error.message()};
  directory_ = File(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_.is_open()) return io_error("", "can't be opened");
  if (Failure failure = lock()) return failure;
  if (Failure failure = read_meta(layout, reinitialize)) return failure;
  if (incarnation_ >= StoreMeta::kIncarnationMax) {
    return SpillOpenError{.reason = Reason::kDamaged, .message = path_ + ": was opened too often; use another one"};
  }
  ++incarnation_;
  if (Failure failure = open_slabs(layout)) return failure;
  return write_meta(layout);
}

StoreDirectory::Failure StoreDirectory::lock() {
  lock_ = File(::openat(directory_.get(), kLockName, O_RDWR | O_CREAT | O_CLOEXEC, kMode));
  if (!lock_.is_open()) return io_error(kLockName, "can't be opened");
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return io_error(kLockName, "can't be locked");
    return SpillOpenError{.reason = Reason::kLocked,
                          .message = path_ + ": another store has it open; give each its own directory"};
  }
  return std::nullopt;
}

bool StoreDirectory::has_slabs() const noexcept {
  for (const char* name : kSlabNames) {
    struct stat status{};
    if (::fstatat(directory_.get(), name, &status, 0) == 0 && status.st_size > 0) return true;
  }
  return false;
}

StoreDirectory::Failure StoreDirectory::read_meta(const SpillLayout& layout, bool reinitialize) {
  const File file(::openat(directory_.get(), kMetaName, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open() && errno != ENOENT) return io_error(kMetaName, "can't be opened");
  if (!file.is_open() && !has_slabs()) return std::nullopt;  // a new one

  std::optional<StoreMeta> meta;
  if (file.is_open()) {
    std::vector<std::byte> bytes(kMetaBytes + 1);
    const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
    if (size < 0) return io_error(kMetaName, "can't be read");
    meta = decode_meta(std::span(bytes).first(static_cast<std::size_t>(size)));
  }
  if (meta) incarnation_ = meta->incarnation;
  const bool is_same =
      meta && meta->layout.fingerprint == layout.fingerprint && layout_text(meta->layout) == layout_text(layout);
  if (is_same) return std::nullopt;
  if (reinitialize) return remove_slabs();

  const std::string advice = "; open it with `reinitialize` to throw its records away, or use another directory";
  if (!meta) {
    return SpillOpenError{.reason = Reason::kDamaged,
                          .message = path_ + "/" + kMetaName + ": is missing, damaged or of another version, beside " +
                                     "files with records" + advice};
  }
  if (meta->layout.fingerprint != layout.fingerprint) {
    return SpillOpenError{.reason = Reason::kOtherFingerprint,
                          .message = path_ + ": holds records of (" + to_string(meta->layout.fingerprint) +
                                     "), not of (" + to_string(layout.fingerprint) + ")" + advice};
  }
  return SpillOpenError{.reason = Reason::kOtherLayout,
                        .message = path_ + ": holds records of (" + layout_text(meta->layout) + "), not of (" +
                                   layout_text(layout) + ")" + advice};
}

// Removed, not emptied: the new ones have nothing to do with them, whatever is still on its way to the disk.
StoreDirectory::Failure StoreDirectory::remove_slabs() {
  for (const char* name : kSlabNames) {
    if (::unlinkat(directory_.get(), name, 0) != 0 && errno != ENOENT) return io_error(name, "can't be removed");
  }
  // Before the new meta: no old record may ever be found under it.
  if (::fsync(directory_.get()) != 0) return io_error("", "can't be synced");
  return std::nullopt;
}

StoreDirectory::Failure StoreDirectory::open_slabs(const SpillLayout& layout) {
  if (layout.block_bytes > 0) {
    if (Failure failure = open_slab(SlabId::kBlocks)) return failure;
  }
  if (layout.snapshot_bytes > 0) {
    if (Failure failure = open_slab(SlabId::kSnapshots)) return failure;
  }
  return std::nullopt;
}

StoreDirectory::Failure StoreDirectory::open_slab(SlabId slab) {
  const char* const name = kSlabNames[static_cast<std::size_t>(slab)];
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  File file(::openat(directory_.get(), name, flags | O_DIRECT, kMode));
  // Some file systems, in memory mostly, know no direct I/O.
  if (!file.is_open() && errno == EINVAL) file = File(::openat(directory_.get(), name, flags, kMode));
  if (!file.is_open()) return io_error(name, "can't be opened");
  // Behind everything: whether holes can be punched has to be known before there is something to lose.
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return io_error(name, "can't be looked at");
  const off_t behind = (status.st_size / 4096 + 1) * 4096;
  if (::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, behind, 4096) != 0) {
    return io_error(name, "its file system can't give parts of a file back (ext4, XFS, Btrfs and tmpfs can)");
  }
  slabs_[static_cast<std::size_t>(slab)] = std::move(file);
  return std::nullopt;
}

StoreDirectory::Failure StoreDirectory::write_meta(const SpillLayout& layout) {
  const File file(
      ::openat(directory_.get(), kNewMetaName, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!file.is_open()) return io_error(kNewMetaName, "can't be opened");
  if (!write_fully(file.get(), encode_meta({.layout = layout, .incarnation = incarnation_}))) {
    return io_error(kNewMetaName, "can't be written");
  }
  if (::fsync(file.get()) != 0) return io_error(kNewMetaName, "can't be synced");
  if (::renameat(directory_.get(), kNewMetaName, directory_.get(), kMetaName) != 0) {
    return io_error(kNewMetaName, "can't be renamed");
  }
  if (::fsync(directory_.get()) != 0) return io_error("", "can't be synced");
  return std::nullopt;
}

std::string StoreDirectory::slab_path(SlabId slab) const {
  return path_ + "/" + kSlabNames[static_cast<std::size_t>(slab)];
}

std::uint64_t StoreDirectory::disk_bytes() const noexcept {
  constexpr std::uint64_t kStatBlockBytes = 512;
  std::uint64_t bytes = 0;
  for (const char* name : {kLockName, kMetaName, kNewMetaName, kSlabNames[0], kSlabNames[1]}) {
    struct stat status{};
    if (::fstatat(directory_.get(), name, &status, 0) != 0) continue;
    bytes += static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

void StoreDirectory::abandon_slabs() noexcept {
  for (File& slab : slabs_) slab.abandon();
}

}  // namespace cairn
