#include "tier/inspect.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "tier/store_directory.h"

namespace cairn {
namespace {

constexpr std::size_t kMetaBytesMax = std::size_t{1} << 16;
constexpr std::uint64_t kSlotsMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kBytesMax = std::size_t{1} << 40;  // of a payload, and of the tokens in a header

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(io_message(path, what, errno));
}

File open_directory(const std::string& path) {
  File directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) fail(path, "can't be opened");
  return directory;
}

// Not open if there is no such file.
File open_in(const File& directory, const std::string& path, const char* name) {
  File file(::openat(directory.get(), name, O_RDONLY | O_CLOEXEC));
  if (!file.is_open() && errno != ENOENT) fail(path + "/" + name, "can't be opened");
  return file;
}

// False if another process has the lock.
bool try_lock(const File& lock, int how, const std::string& path) {
  while (::flock(lock.get(), how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail(path + "/" + kLockName, "can't be locked");
  }
  return true;
}

// How much could be read before the file's end.
std::size_t read_at(const File& file, const std::string& path, std::uint64_t offset, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t bytes = ::pread(file.get(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) fail(path, "can't be read");
    if (bytes == 0) break;
    done += static_cast<std::size_t>(bytes);
  }
  return done;
}

StoreMeta read_meta(const File& directory, const std::string& path) {
  const File file = open_in(directory, path, kMetaName);
  if (!file.is_open()) throw std::runtime_error(path + ": holds no store: there is no file \"meta\"");
  std::vector<std::byte> bytes(kMetaBytesMax);
  bytes.resize(read_at(file, path + "/" + kMetaName, 0, bytes));
  std::optional<StoreMeta> meta = decode_meta(bytes);
  const auto is_sane = [](const SpillLayout& layout) {
    return std::max({layout.block_size, layout.record_tokens, layout.block_bytes, layout.snapshot_bytes}) <= kBytesMax;
  };
  if (!meta || !is_sane(meta->layout)) {
    throw std::runtime_error(path + "/" + kMetaName + ": is damaged or of another version");
  }
  return *std::move(meta);
}

std::uint64_t disk_bytes_of(const File& directory) {
  constexpr std::uint64_t kStatBlockBytes = 512;
  std::uint64_t bytes = 0;
  for (const char* name : {kLockName, kMetaName, kNewMetaName, kSlabNames[0], kSlabNames[1]}) {
    struct stat status{};
    if (::fstatat(directory.get(), name, &status, 0) != 0) continue;
    bytes += static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

std::size_t record_bytes(const SpillLayout& layout, SlabId slab) {
  const RecordKind kind = slab == SlabId::kBlocks ? RecordKind::kBlock : RecordKind::kPlainSnapshot;
  const std::size_t payload = record_payload_bytes(layout, kind);
  return payload == 0 ? 0 : record_header_bytes(layout) + round_up_to_alignment(payload);
}

}  // namespace

struct DirectoryInspector::Slab {
  SlabId id = SlabId::kBlocks;
  File file;
  std::string path;
  std::size_t record_bytes = 0;
  std::uint64_t file_bytes = 0;
};

DirectoryInspector::DirectoryInspector(std::string directory) : directory_(std::move(directory)) {
  const File opened = open_directory(directory_);
  StoreMeta meta = read_meta(opened, directory_);
  layout_ = std::move(meta.layout);
  incarnation_ = meta.incarnation;
  {
    // Shared, and let go at once: a store that starts in this moment is refused, and no other is disturbed.
    const File lock = open_in(opened, directory_, kLockName);
    in_use_ = lock.is_open() && !try_lock(lock, LOCK_SH, directory_);
  }
  disk_bytes_ = disk_bytes_of(opened);
  for (const SlabId id : {SlabId::kBlocks, SlabId::kSnapshots}) {
    const char* const name = kSlabNames[static_cast<std::size_t>(id)];
    Slab slab{.id = id,
              .file = open_in(opened, directory_, name),
              .path = directory_ + "/" + name,
              .record_bytes = record_bytes(layout_, id)};
    if (!slab.file.is_open() || slab.record_bytes == 0) continue;
    struct stat status{};
    if (::fstat(slab.file.get(), &status) != 0) fail(slab.path, "can't be read");
    slab.file_bytes = static_cast<std::uint64_t>(status.st_size);
    read_headers(slab);
    slabs_.push_back(std::move(slab));
  }
  drop_replaced();
}

DirectoryInspector::~DirectoryInspector() = default;

void DirectoryInspector::read_headers(const Slab& slab) {
  const std::size_t header_bytes = record_header_bytes(layout_);
  std::vector<std::byte> header(header_bytes);
  ::posix_fadvise(slab.file.get(), 0, 0, POSIX_FADV_RANDOM);  // payloads are not wanted
  std::uint64_t slot = 0;
  while (true) {
    const off_t data = ::lseek(slab.file.get(), static_cast<off_t>(slot * slab.record_bytes), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;  // nothing but holes from here
    if (data < 0) fail(slab.path, "can't be read");
    slot = static_cast<std::uint64_t>(data) / slab.record_bytes;
    if (slot >= kSlotsMax) return;
    std::fill(header.begin(), header.end(), std::byte{0});
    (void)read_at(slab.file, slab.path, slot * slab.record_bytes, header);
    if (!is_wiped(header)) {
      std::optional<RecordHeader> record = decode_header(layout_, header);
      // As a store does when it is opened, which would be the next incarnation.
      const bool is_good = record && record->slab == slab.id && record->slot == slot &&
                           (slot + 1) * slab.record_bytes <= slab.file_bytes &&
                           incarnation_of(record->key) <= incarnation_ &&
                           incarnation_of(record->generation) <= incarnation_;
      if (is_good) {
        records_.push_back(*std::move(record));
      } else {
        damaged_headers_.push_back({.slab = slab.id, .slot = static_cast<std::uint32_t>(slot)});
      }
    }
    ++slot;
  }
}

void DirectoryInspector::drop_replaced() {
  const auto rank = [](const RecordHeader& record) { return std::tuple(record.key, ~record.generation); };
  std::sort(records_.begin(), records_.end(),
            [&](const RecordHeader& a, const RecordHeader& b) { return rank(a) < rank(b); });
  const auto end = std::unique(records_.begin(), records_.end(),
                               [](const RecordHeader& a, const RecordHeader& b) { return a.key == b.key; });
  replaced_records_ = static_cast<std::size_t>(records_.end() - end);
  records_.erase(end, records_.end());
}

DirectoryInspector::Verdict DirectoryInspector::verify(const RecordHeader& record) {
  const auto slab =
      std::find_if(slabs_.begin(), slabs_.end(), [&](const Slab& each) { return each.id == record.slab; });
  if (slab == slabs_.end()) throw std::invalid_argument("record: is not of this directory");
  buffer_.resize(slab->record_bytes);
  const std::size_t header_bytes = record_header_bytes(layout_);
  // A store at work may write the slot while it is read: then its header is another one afterwards.
  constexpr int kTries = 2;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::size_t read = read_at(slab->file, slab->path, record.slot * slab->record_bytes, buffer_);
    if (read == buffer_.size()) {
      const bool is_same = decode_header(layout_, std::span(buffer_).first(header_bytes)) == record;
      if (!is_same) return in_use_ ? Verdict::kGone : Verdict::kDamaged;
      if (is_payload_whole(layout_, buffer_)) return Verdict::kWhole;
    }
    if (!in_use_) break;
  }
  return Verdict::kDamaged;
}

void empty_store_directory(const std::string& path) {
  const File directory = open_directory(path);
  const auto exists = [&](const char* name) { return ::faccessat(directory.get(), name, F_OK, 0) == 0; };
  if (!exists(kMetaName) && !exists(kSlabNames[0]) && !exists(kSlabNames[1])) {
    throw std::runtime_error(path + ": holds no store");
  }
  // Made if it is missing: whoever opens the directory meanwhile has to find it locked.
  const File lock(::openat(directory.get(), kLockName, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.is_open()) fail(path + "/" + kLockName, "can't be opened");
  if (!try_lock(lock, LOCK_EX, path)) throw std::runtime_error(path + ": a store has it open; stop that first");
  const auto remove = [&](const char* name) {
    if (::unlinkat(directory.get(), name, 0) != 0 && errno != ENOENT) fail(path + "/" + name, "can't be removed");
  };
  const auto sync = [&] {
    if (::fsync(directory.get()) != 0) fail(path, "can't be synced");
  };
  for (const char* name : kSlabNames) remove(name);
  sync();  // records without a layout are noticed; a layout without records is fine
  remove(kNewMetaName);
  remove(kMetaName);
  sync();
}

}  // namespace cairn
