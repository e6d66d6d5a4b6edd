// Opening a file store.
#include <algorithm>
#include <system_error>

#include "base/refuse.h"
#include "tier/file_store.h"

namespace cairn {
namespace {

using Reason = SpillOpenError::Reason;

// What the limit leaves for all but records: meta twice while it is replaced, and the file system's own blocks for
// files with holes, 24 bytes or so for each slot.
constexpr std::uint64_t kMarginBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kMarginPart = 256;

std::uint64_t slab_bytes(std::uint64_t bytes_max) {
  const std::uint64_t margin = bytes_max / kMarginPart + kMarginBytes;
  return bytes_max > margin ? bytes_max - margin : 0;
}

std::size_t smallest_record(const SpillBuffers& buffers) {
  const std::size_t block = buffers.record_bytes(RecordKind::kBlock);
  const std::size_t snapshot = buffers.record_bytes(RecordKind::kPlainSnapshot);
  if (block == 0 || snapshot == 0) return std::max(block, snapshot);
  return std::min(block, snapshot);
}

void check_options(const FileStoreOptions& options) {
  if (options.buffers == nullptr) refuse("FileStoreOptions::buffers", "is null");
  if (options.directory.empty()) refuse("FileStoreOptions::directory", "is empty");
  if (slab_bytes(options.bytes_max) < smallest_record(*options.buffers)) {
    refuse("FileStoreOptions::bytes_max", std::to_string(options.bytes_max) + " has no room for a record of " +
                                              std::to_string(smallest_record(*options.buffers)) +
                                              " bytes beside 256 KiB and 1/256");
  }
  if (options.queue_depth == 0) refuse("FileStoreOptions::queue_depth", "must not be 0");
  if (options.pending_max == 0) refuse("FileStoreOptions::pending_max", "must not be 0");
  if (options.io_timeout <= std::chrono::milliseconds{0}) refuse("FileStoreOptions::io_timeout", "must be above 0");
  if (options.retry_after < std::chrono::milliseconds{0}) refuse("FileStoreOptions::retry_after", "is below 0");
}

std::unique_ptr<AsyncIo> make_io(const FileStoreOptions& options) {
  std::unique_ptr<AsyncIo> io;
  if (options.io != FileStoreOptions::Io::kThreads) io = make_uring_io(options.queue_depth);
  if (io == nullptr && options.io != FileStoreOptions::Io::kUring) io = make_threaded_io(options.queue_depth);
  return io;
}

OpenedStore failed(SpillOpenError error) {
  return {.store = nullptr, .error = std::move(error)};
}

}  // namespace

FileStore::FileStore(FileStoreOptions options, std::unique_ptr<StoreDirectory> directory, std::unique_ptr<AsyncIo> io)
    : options_(std::move(options)),
      directory_(std::move(directory)),
      slab_bytes_max_(slab_bytes(options_.bytes_max)),
      io_(std::move(io)),
      last_generation_(first_of_incarnation(directory_->incarnation()) - 1) {
  const SpillBuffers& buffers = *options_.buffers;
  for (const RecordKind kind : {RecordKind::kBlock, RecordKind::kPlainSnapshot}) {
    const SlabId id = slab_of(kind);
    if (directory_->slab_file(id) >= 0) slab(id) = Slab(directory_->slab_file(id), buffers.record_bytes(kind));
  }
  jobs_.resize(io_->depth());
  for (std::size_t token = jobs_.size(); token > 0; --token) free_tokens_.push_back(token - 1);
  counted_.io = io_->name();
}

std::optional<SpillOpenError> FileStore::start() {
  Recovery recovery = recover_records(*io_, *directory_, *options_.buffers, options_.io_timeout);
  bool is_answered = !recovery.is_timed_out;
  if (is_answered) {
    {
      const MutexLock lock(mutex_);
      take_over(std::move(recovery));
    }
    is_answered = punch_free_slots();
  }
  if (!is_answered) {
    directory_->abandon_slabs();
    return SpillOpenError{.reason = Reason::kIo,
                          .message = directory_->path() + ": its device has not answered for " +
                                     std::to_string(options_.io_timeout.count()) + " ms"};
  }
  thread_ = std::thread([this] { run(); });
  return std::nullopt;
}

// The newest records, as many as the limit has room for.
void FileStore::take_over(Recovery recovery) {
  counted_.damaged_records = recovery.damaged;
  counted_.io_errors = recovery.io_errors;
  counted_.read_bytes = recovery.read_bytes;
  for (std::size_t id = 0; id < kSlabs; ++id) slabs_[id].open_slots(recovery.slots[id]);
  std::uint64_t bytes = 0;
  std::size_t first = recovery.records.size();
  for (; first > 0; --first) {
    bytes += slab(recovery.records[first - 1].slab).record_bytes();
    if (bytes > slab_bytes_max_) break;
  }
  counted_.evicted_records = first;
  entries_.reserve(recovery.records.size() - first);
  for (std::size_t i = first; i < recovery.records.size(); ++i) {
    RecordHeader& record = recovery.records[i];
    Entry& entry = entry_for(record.key, record.lineage.adapter);
    entry.has_slot = true;
    ++resting_;
    entry.kind = record.lineage.kind;
    entry.slot = record.slot;
    entry.generation = record.generation;
    entry.wipe = std::make_unique<Wipe>();
    entry.wipe->slab = record.slab;
    entry.wipe->slot = record.slot;
    slab(record.slab).take_at_start(record.slot);
    recovered_.push_back({.key = record.key, .lineage = std::move(record.lineage)});
  }
  counted_.recovered_records = recovered_.size();
}

// Whatever lies in slots without a record is gone before the store is used. What can't be punched now is tried again
// by the thread.
bool FileStore::punch_free_slots() {
  struct Range {
    SlabId slab;
    std::uint32_t first;
    std::uint32_t count;
  };
  std::vector<Range> ranges;
  const MutexLock lock(mutex_);  // nobody else is there yet
  for (const SlabId id : {SlabId::kBlocks, SlabId::kSnapshots}) {
    for (std::uint32_t slot = 0; slot < slab(id).slots(); ++slot) {
      if (slab(id).state(slot) == Slab::State::kTaken) continue;
      const bool continues =
          !ranges.empty() && ranges.back().slab == id && ranges.back().first + ranges.back().count == slot;
      if (continues) {
        ++ranges.back().count;
      } else {
        ranges.push_back({.slab = id, .first = slot, .count = 1});
      }
    }
  }
  const auto request = [&](std::size_t i, std::size_t) CAIRN_REQUIRES(mutex_) {
    const Slab& of_range = slab(ranges[i].slab);
    return IoRequest{.kind = IoRequest::Kind::kPunch,
                     .file = of_range.file(),
                     .offset = of_range.offset(ranges[i].first),
                     .length = ranges[i].count * of_range.record_bytes()};
  };
  const auto answer = [&](std::size_t i, std::size_t, const IoResult& result) CAIRN_REQUIRES(mutex_) {
    if (result.error == 0) return;
    ++counted_.io_errors;
    for (std::uint32_t slot = ranges[i].first; slot < ranges[i].first + ranges[i].count; ++slot) {
      slab(ranges[i].slab).wipe_at_start(slot);
      failed_wipes_.push_back(std::make_unique<Wipe>());
      failed_wipes_.back()->slab = ranges[i].slab;
      failed_wipes_.back()->slot = slot;
    }
  };
  if (!IoBatch(*io_, options_.io_timeout).run(ranges.size(), io_->depth(), request, answer)) return false;
  for (Slab& of_size : slabs_) of_size.open_holes();
  return true;
}

OpenedStore open_file_store(FileStoreOptions options, std::unique_ptr<AsyncIo> io) {
  check_options(options);
  StoreDirectory::Opened opened =
      StoreDirectory::open(options.directory, options.buffers->layout(), options.reinitialize);
  if (opened.directory == nullptr) return failed(std::move(opened.error));
  // The last to let go of it may be a callback, on the thread that the destructor waits for: then another one destroys
  // it.
  const auto destroy = [](FileStore* last) {
    std::unique_ptr<FileStore> owned(last);
    if (owned->is_on_its_thread()) std::thread([it = std::move(owned)]() mutable { it.reset(); }).detach();
  };
  std::shared_ptr<FileStore> store(
      new FileStore(std::move(options), std::move(opened.directory), std::move(io)),  // NOLINT(*-owning-memory)
      destroy);
  if (std::optional<SpillOpenError> error = store->start()) return failed(std::move(*error));
  return {.store = std::move(store), .error = {}};
}

OpenedStore open_file_store(FileStoreOptions options) {
  check_options(options);
  std::unique_ptr<AsyncIo> io;
  try {
    io = make_io(options);
  } catch (const std::system_error& error) {
    return failed({.reason = Reason::kIo, .message = options.directory + ": no threads for I/O: " + error.what()});
  }
  if (io == nullptr) {
    return failed({.reason = Reason::kIo,
                   .message = options.directory + ": the kernel does not allow io_uring; choose kBest or kThreads"});
  }
  return open_file_store(std::move(options), std::move(io));
}

}  // namespace cairn
