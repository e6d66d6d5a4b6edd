// Memory for token words, on huge pages where the kernel has them: reading tokens in order is a tenth to a quarter
// faster there, and memory touched for the first time costs one page fault for 2 MiB instead of 512.
//
// Regions of address space are mapped, each as large as all before it together and more, so there are few. A region
// takes memory from the kernel in steps of 2 MiB, as it fills; within it Boost.Interprocess's best-fit allocator says
// what lies where. Short requests, and all for which no region can be had, go to malloc.
//
// A region that gets empty is kept until another one does, so that a cache at the limit of its size doesn't map and
// unmap all the time. When all are empty, one of 2 MiB is kept at most.
//
// Not thread-safe: for writers. What was made must not outlive the arena.
#ifndef CAIRN_INDEX_TOKEN_ARENA_H_
#define CAIRN_INDEX_TOKEN_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cairn {

class TokenArena {
 public:
  struct Free {
    TokenArena* arena = nullptr;  // none: malloc's
    void operator()(std::uint32_t* words) const noexcept;
  };
  using Words = std::unique_ptr<std::uint32_t[], Free>;

  // What is shorter than `bytes_min` goes to malloc.
  explicit TokenArena(std::size_t bytes_min);
  TokenArena(const TokenArena&) = delete;
  TokenArena& operator=(const TokenArena&) = delete;
  ~TokenArena();

  // Uninitialised. In a region aligned to kAlignment bytes. Throws std::bad_alloc.
  [[nodiscard]] Words make(std::size_t count);

  // Taken from the kernel, in use or kept.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t region_count() const noexcept { return regions_.size(); }

  static constexpr std::size_t kAlignment = 64;  // a cache line
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

 private:
  class Region;

  [[nodiscard]] void* allocate(std::size_t bytes);
  void free(void* memory) noexcept;
  void drop_empty_regions(const Region* kept) noexcept;

  const std::size_t bytes_min_;
  std::vector<std::unique_ptr<Region>> regions_;  // in order of age
};

}  // namespace cairn

#endif  // CAIRN_INDEX_TOKEN_ARENA_H_
