#include "index/token_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <functional>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/containers.h"

namespace cairn {
namespace {

using Heap =
    boost::interprocess::rbtree_best_fit<boost::interprocess::null_mutex_family, void*, TokenArena::kAlignment>;

constexpr std::size_t kStep = TokenArena::kHugePageBytes;
// More than what the heap needs for itself and for one block.
constexpr std::size_t kHeapBytes = 4096;

constexpr std::size_t whole_steps(std::size_t bytes) {
  return (bytes + kStep - 1) / kStep * kStep;
}

}  // namespace

// Invariant: the heap covers the first bytes() of the region; the rest was never touched.
class TokenArena::Region {
 public:
  // `size` is a multiple of kStep. Throws std::bad_alloc.
  explicit Region(std::size_t size) : size_(size) {
    // One step more than needed, so that a whole number of them fits in between.
    void* const mapped =
        ::mmap(nullptr, size + kStep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    char* const begin = static_cast<char*>(mapped);
    const std::size_t skipped = (kStep - reinterpret_cast<std::uintptr_t>(begin) % kStep) % kStep;
    if (skipped > 0) ::munmap(begin, skipped);
    begin_ = begin + skipped;
    ::munmap(begin_ + size, kStep - skipped);
#ifdef MADV_HUGEPAGE
    ::madvise(begin_, size, MADV_HUGEPAGE);  // a wish
#endif
    heap_ = new (begin_) Heap(kStep, 0);
    bytes_ = kStep;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { ::munmap(begin_, size_); }

  // Null if there is no room in what was taken from the kernel.
  void* allocate(std::size_t bytes) noexcept {
    void* const memory = heap_->allocate(bytes);
    if (memory != nullptr) ++live_;
    return memory;
  }
  // The same, taking more from the kernel as long as that can help.
  void* grow_and_allocate(std::size_t bytes) noexcept {
    void* memory = nullptr;
    while (memory == nullptr && bytes_ < size_) {
      heap_->grow(kStep);
      bytes_ += kStep;
      memory = allocate(bytes);
    }
    return memory;
  }
  void free(void* memory) noexcept {
    heap_->deallocate(memory);
    --live_;
  }

  [[nodiscard]] bool holds(const void* memory) const noexcept {
    return !std::less<>{}(memory, begin_) && std::less<>{}(memory, begin_ + size_);
  }
  [[nodiscard]] bool empty() const noexcept { return live_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  char* begin_ = nullptr;
  const std::size_t size_;
  std::size_t bytes_ = 0;
  Heap* heap_ = nullptr;  // at begin_
  std::size_t live_ = 0;  // pieces that are in use
};

TokenArena::TokenArena(std::size_t bytes_min) : bytes_min_(bytes_min) {}

TokenArena::~TokenArena() = default;

void TokenArena::Free::operator()(std::uint32_t* words) const noexcept {
  if (arena == nullptr) {
    delete[] words;
  } else {
    arena->free(words);
  }
}

TokenArena::Words TokenArena::make(std::size_t count) {
  const std::size_t bytes = count * sizeof(std::uint32_t);
  if (bytes >= bytes_min_) {
    if (void* const memory = allocate(bytes)) return Words(static_cast<std::uint32_t*>(memory), Free{this});
  }
  return Words(std::make_unique_for_overwrite<std::uint32_t[]>(count).release(), Free{});
}

// Null if nothing can be mapped.
void* TokenArena::allocate(std::size_t bytes) {
  for (const auto& region : regions_) {
    if (void* const memory = region->allocate(bytes)) return memory;
  }
  for (const auto& region : regions_) {
    if (void* const memory = region->grow_and_allocate(bytes)) return memory;
  }
  make_room(regions_, 1);
  const std::size_t mapped = std::accumulate(regions_.begin(), regions_.end(), std::size_t{0},
                                             [](std::size_t sum, const auto& region) { return sum + region->size(); });
  try {
    regions_.push_back(std::make_unique<Region>(std::max({kStep, 2 * mapped, whole_steps(bytes + kHeapBytes)})));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  Region& region = *regions_.back();
  void* const memory = region.allocate(bytes);
  return memory != nullptr ? memory : region.grow_and_allocate(bytes);
}

void TokenArena::free(void* memory) noexcept {
  const auto found = std::ranges::find_if(regions_, [memory](const auto& region) { return region->holds(memory); });
  CAIRN_CHECK(found != regions_.end());
  (*found)->free(memory);
  if ((*found)->empty()) drop_empty_regions(found->get());
}

void TokenArena::drop_empty_regions(const Region* kept) noexcept {
  if (std::ranges::all_of(regions_, [](const auto& region) { return region->empty(); })) kept = nullptr;
  std::erase_if(regions_, [kept](const auto& region) {
    return region->empty() && region.get() != kept && region->size() > kStep;
  });
}

std::size_t TokenArena::bytes() const noexcept {
  return std::accumulate(regions_.begin(), regions_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& region) { return sum + region->bytes(); });
}

}  // namespace cairn
