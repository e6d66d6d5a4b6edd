// What lies in the slab files when a store is opened.
#ifndef CAIRN_TIER_RECOVERY_H_
#define CAIRN_TIER_RECOVERY_H_

#include <cairn/spill_store.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tier/async_io.h"
#include "tier/record.h"
#include "tier/slab.h"
#include "tier/store_directory.h"

namespace cairn {

// Does many operations, as many at a time as the device takes, and waits for them.
class IoBatch {
 public:
  IoBatch(AsyncIo& io, std::chrono::milliseconds timeout) : io_(io), timeout_(timeout) {}

  // The requests' tokens are free to use: the answer's index says which request it is for. `memory_slots` requests at
  // most are under way; each answer names the one that is free again. False if the device has not answered for the
  // timeout: then what is under way is still under way.
  using Request = std::function<IoRequest(std::size_t index, std::size_t memory_slot)>;
  using Answer = std::function<void(std::size_t index, std::size_t memory_slot, const IoResult& result)>;
  [[nodiscard]] bool run(std::size_t requests, std::size_t memory_slots, const Request& request, const Answer& answer);

 private:
  AsyncIo& io_;
  const std::chrono::milliseconds timeout_;
};

struct Recovery {
  std::vector<RecordHeader> records{};  // the newest of each key, in order of generation
  std::array<std::size_t, kSlabs> slots{};
  std::uint64_t damaged = 0;
  std::uint64_t io_errors = 0;
  std::uint64_t read_bytes = 0;
  bool is_timed_out = false;  // the rest says nothing then, and the files and this thread's I/O are not to be used
};

// Reads all headers: 4 KiB for each record, or everything where records are small.
[[nodiscard]] Recovery recover_records(AsyncIo& io, const StoreDirectory& directory, const SpillBuffers& buffers,
                                       std::chrono::milliseconds timeout);

}  // namespace cairn

#endif  // CAIRN_TIER_RECOVERY_H_
